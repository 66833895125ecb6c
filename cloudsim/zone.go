package cloudsim

import (
	"reflect"
	"time"
)

// Region is a group of zones. Regions, zones, instance types and disk types form the
// cloud's catalogue. The operator configures the catalogue at the start of the cloud, and
// all callers can read it. The name of an entry is also its id, e.g. "sim-1", "sim-1a" or
// "small".
type Region struct {
	Meta
}

// Zone is a failure domain of a region.
type Zone struct {
	Meta
	Region string      `json:"region" doc:"Region of the zone" example:"sim-1"`
	Outage *ZoneOutage `json:"outage,omitempty" doc:"Outage of the zone: the reason why no traffic reaches its instances. Absent without an outage"`
}

// ZoneOutage describes a failure of the data plane of a zone: the instances run,
// but no traffic reaches the instances.
type ZoneOutage struct {
	Fault FaultID   `json:"fault" doc:"Id of the fault that caused the outage" example:"fault-000001"`
	Since time.Time `json:"since" doc:"RFC 3339, on the cloud's clock"`
}

// Dark reports whether an outage stops the traffic to the instances of z.
func (z Zone) Dark() bool { return z.Outage != nil }

// InstanceType describes the size of an instance.
type InstanceType struct {
	Meta
	CPUs      int   `json:"cpus" doc:"Virtual processors" example:"2"`
	MemoryMiB int64 `json:"memoryMiB" doc:"Memory in MiB" example:"4096"`
	MaxDisks  int   `json:"maxDisks" doc:"Maximum number of attached disks" example:"8"`
}

// Catalogue lists the regions, zones and types that a cloud offers. When the operator
// applies a catalogue, the cloud adds the new entries and updates the existing entries. The
// cloud never removes an entry, because instances may use it.
type Catalogue struct {
	Regions       []Region       `json:"regions,omitempty"`
	Zones         []Zone         `json:"zones,omitempty"`
	InstanceTypes []InstanceType `json:"instanceTypes,omitempty"`
	DiskTypes     []DiskType     `json:"diskTypes,omitempty"`
}

// DefaultCatalogue returns one region with three zones, three instance types
// and three disk types.
func DefaultCatalogue() Catalogue {
	return Catalogue{
		Regions: []Region{{Meta: Meta{Name: "sim-1"}}},
		Zones: []Zone{
			{Meta: Meta{Name: "sim-1a"}, Region: "sim-1"},
			{Meta: Meta{Name: "sim-1b"}, Region: "sim-1"},
			{Meta: Meta{Name: "sim-1c"}, Region: "sim-1"},
		},
		InstanceTypes: []InstanceType{
			{Meta: Meta{Name: "small"}, CPUs: 2, MemoryMiB: 4096, MaxDisks: 8},
			{Meta: Meta{Name: "medium"}, CPUs: 4, MemoryMiB: 8192, MaxDisks: 16},
			{Meta: Meta{Name: "large"}, CPUs: 8, MemoryMiB: 32768, MaxDisks: MaxDisksPerInstance},
		},
		DiskTypes: defaultDiskTypes(),
	}
}

// Validate checks that names are valid and unique, that the region of each zone exists, and that
// the sizes and limits of types are valid. It also rejects fields that only the cloud may write.
// If entries are invalid, it returns an error of kind Invalid that names these entries.
func (c Catalogue) Validate() error {
	var bad checks
	regions := map[string]bool{}
	for _, r := range c.Regions {
		bad.catalogueEntry("regions", r.Meta, regions)
	}
	zones := map[string]bool{}
	for _, z := range c.Zones {
		bad.catalogueEntry("zones", z.Meta, zones)
		if !regions[z.Region] {
			bad.addf("zones."+z.Name, "is in region %q, which is not in the catalogue", z.Region)
		}
		if z.Outage != nil {
			bad.addf("zones."+z.Name+".outage", "must be absent: only the cloud writes this field")
		}
	}
	types := map[string]bool{}
	for _, t := range c.InstanceTypes {
		bad.catalogueEntry("instanceTypes", t.Meta, types)
		if t.CPUs < 1 || t.MemoryMiB < 1 {
			bad.addf("instanceTypes."+t.Name, "needs at least one CPU and one MiB of memory")
		}
		bad.between("instanceTypes."+t.Name+".maxDisks", t.MaxDisks, 0, MaxDisksPerInstance)
	}
	types = map[string]bool{}
	for _, t := range c.DiskTypes {
		bad.catalogueEntry("diskTypes", t.Meta, types)
		bad.diskType(t)
	}
	return bad.err()
}

// catalogueEntry checks the name of a catalogue entry and adds the name to
// the map seen. A name that is already in the map is an error.
func (c *checks) catalogueEntry(list string, m Meta, seen map[string]bool) {
	c.name(list, m.Name)
	if seen[m.Name] {
		c.addf(list+"."+m.Name, "is a duplicate")
	}
	seen[m.Name] = true
	if !reflect.DeepEqual(m, Meta{Name: m.Name}) {
		c.addf(list+"."+m.Name, "must not have labels, a project, a revision or a time, because only the cloud writes these fields")
	}
}
