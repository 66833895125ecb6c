package cloudsim

import (
	"reflect"
	"time"
)

// Region is a group of zones. Regions, zones and instance types are the
// cloud's catalogue: configured when it starts, read by everyone, and named by
// what they are called, e.g. "sim-1", "sim-1a", "small".
type Region struct {
	Meta
}

// Zone is a failure domain of a region.
type Zone struct {
	Meta
	Region string      `json:"region" doc:"The region it belongs to" example:"sim-1"`
	Outage *ZoneOutage `json:"outage,omitempty" doc:"Why nothing reaches what runs there; absent when all is well"`
}

// ZoneOutage says that the data plane of a zone is dark: its machines run, and
// nothing reaches them.
type ZoneOutage struct {
	Fault FaultID   `json:"fault" doc:"The fault that did it" example:"fault-000001"`
	Since time.Time `json:"since" doc:"RFC 3339, on the cloud's clock"`
}

// Dark reports whether nothing reaches what runs in z.
func (z Zone) Dark() bool { return z.Outage != nil }

// InstanceType is a size of machine.
type InstanceType struct {
	Meta
	CPUs      int   `json:"cpus" doc:"Virtual processors" example:"2"`
	MemoryMiB int64 `json:"memoryMiB" doc:"Memory in MiB" example:"4096"`
	MaxDisks  int   `json:"maxDisks" doc:"Disks that can be attached at once" example:"8"`
}

// Catalogue is what a cloud offers. Applying one adds and changes; it removes
// nothing, because instances may stand there.
type Catalogue struct {
	Regions       []Region       `json:"regions,omitempty"`
	Zones         []Zone         `json:"zones,omitempty"`
	InstanceTypes []InstanceType `json:"instanceTypes,omitempty"`
	DiskTypes     []DiskType     `json:"diskTypes,omitempty"`
}

// DefaultCatalogue is one region of three zones, three sizes of machine and three types of disk.
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

// Validate checks that every zone has its region, that every name is one and no
// two of a kind are the same, and that nothing is set that the cloud writes.
func (c Catalogue) Validate() error {
	var bad checks
	regions := map[string]bool{}
	for _, r := range c.Regions {
		bad.offered("regions", r.Meta, regions)
	}
	zones := map[string]bool{}
	for _, z := range c.Zones {
		bad.offered("zones", z.Meta, zones)
		if !regions[z.Region] {
			bad.addf("zones."+z.Name, "is in region %q, which is not in the catalogue", z.Region)
		}
		if z.Outage != nil {
			bad.addf("zones."+z.Name+".outage", "is the cloud's to write")
		}
	}
	types := map[string]bool{}
	for _, t := range c.InstanceTypes {
		bad.offered("instanceTypes", t.Meta, types)
		if t.CPUs < 1 || t.MemoryMiB < 1 {
			bad.addf("instanceTypes."+t.Name, "needs at least one CPU and one MiB of memory")
		}
		bad.between("instanceTypes."+t.Name+".maxDisks", t.MaxDisks, 0, MaxDisksPerInstance)
	}
	types = map[string]bool{}
	for _, t := range c.DiskTypes {
		bad.offered("diskTypes", t.Meta, types)
		bad.diskType(t)
	}
	return bad.err()
}

// offered checks the name of something in a catalogue, and notes it in seen.
func (c *checks) offered(list string, m Meta, seen map[string]bool) {
	c.name(list, m.Name)
	if seen[m.Name] {
		c.addf(list+"."+m.Name, "is there twice")
	}
	seen[m.Name] = true
	if !reflect.DeepEqual(m, Meta{Name: m.Name}) {
		c.addf(list+"."+m.Name, "has labels, a project, a revision or a time, which are the cloud's to write")
	}
}
