package hcloud

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

func locationOf(zone, region string) location {
	return location{ID: idOf(zone), Name: zone, Description: zone + " in " + region, Country: "DE", City: zone, NetworkZone: region}
}

// datacenterSuffix is the last part of the name of a datacenter. The first part is the name of its
// location. Each location has one datacenter.
const datacenterSuffix = "-dc1"

// datacenterOf returns the datacenter for a zone. Hetzner's newer API has no datacenters, but older
// clients list datacenters, and create servers in a datacenter.
func datacenterOf(zone, region string) datacenter {
	name := zone + datacenterSuffix
	return datacenter{
		ID: idOf(name), Name: name, Description: name, Location: locationOf(zone, region),
		ServerTypes: datacenterServerTypes{Supported: []int64{}, AvailableForMigration: []int64{}, Available: []int64{}},
	}
}

// An entry is a location, a datacenter, a type or an image in a catalogue.
type entry interface {
	key() (id int64, name string)
}

func (l location) key() (int64, string)         { return l.ID, l.Name }
func (d datacenter) key() (int64, string)       { return d.ID, d.Name }
func (t serverType) key() (int64, string)       { return t.ID, t.Name }
func (t loadBalancerType) key() (int64, string) { return t.ID, t.Name }
func (i image) key() (int64, string)            { return i.ID, *i.Name }

// catalogue is a small set of entries that callers cannot change.
type catalogue[T entry] struct {
	one, many string // names of one entry and of a list of entries in answers
	all       func(*dialect.Request) ([]T, error)
}

func (c catalogue[T]) list(r *dialect.Request) (int, any, error) {
	q, err := parseQuery(r.URL.Query(), "name", "created")
	if err != nil {
		return 0, nil, err
	}
	all, err := c.all(r)
	if err != nil {
		return 0, nil, err
	}
	if q.name != "" {
		all = slices.DeleteFunc(all, func(v T) bool { _, name := v.key(); return name != q.name })
	}
	slices.SortStableFunc(all, func(a, b T) int {
		x, nameX := a.key()
		y, nameY := b.key()
		return q.compare(func(field string) int {
			switch field {
			case "id":
				return cmp.Compare(x, y)
			case "name":
				return strings.Compare(nameX, nameY)
			}
			return 0 // the entries have no time of creation
		})
	})
	items, m := slicePage(all, q)
	return reply(c.many, items, m)
}

func (c catalogue[T]) get(r *dialect.Request) (int, any, error) {
	n, err := target(r)
	if err != nil {
		return 0, nil, err
	}
	all, err := c.all(r)
	if err != nil {
		return 0, nil, err
	}
	for _, v := range all {
		if id, _ := v.key(); id == n {
			return http.StatusOK, map[string]any{c.one: v}, nil
		}
	}
	return 0, nil, cloudsim.Errorf(cloudsim.NotFound, "no %s has the id %d", strings.ReplaceAll(c.one, "_", " "), n)
}

func listZones(r *dialect.Request) ([]cloudsim.Zone, error) {
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListZones, cloudsim.ListOptions{})
	return all, err
}

func locations(r *dialect.Request) ([]location, error) {
	all, err := listZones(r)
	out := make([]location, 0, len(all))
	for _, z := range all {
		out = append(out, locationOf(z.Name, z.Region))
	}
	return out, err
}

func listDatacenters(r *dialect.Request) ([]datacenter, error) {
	all, err := listZones(r)
	if err != nil {
		return nil, err
	}
	types, err := serverTypes(r)
	out := make([]datacenter, 0, len(all))
	for _, z := range all {
		d := datacenterOf(z.Name, z.Region)
		for _, t := range types {
			d.ServerTypes.Supported = append(d.ServerTypes.Supported, t.ID)
			d.ServerTypes.Available = append(d.ServerTypes.Available, t.ID)
		}
		out = append(out, d)
	}
	return out, err
}

// serverTypeOf returns an instance type in the format of Hetzner's server types. Instance types of
// this cloud have no disk size, so the field Disk is 0.
func serverTypeOf(t cloudsim.InstanceType) serverType {
	return serverType{
		ID: idOf(t.Name), Name: t.Name, Description: t.Name, Category: "Shared vCPU", Cores: t.CPUs, Memory: float64(t.MemoryMiB) / 1024,
		StorageType: "local", CPUType: "shared", Architecture: "x86", Prices: []price{}, Locations: []serverTypeLocation{},
	}
}

func serverTypes(r *dialect.Request) ([]serverType, error) {
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListInstanceTypes, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	in, err := listZones(r)
	prices := pricesIn(in)
	var places []serverTypeLocation
	for _, z := range in {
		places = append(places, serverTypeLocation{ID: idOf(z.Name), Name: z.Name, Available: true})
	}
	out := make([]serverType, 0, len(all))
	for _, t := range all {
		st := serverTypeOf(t)
		st.Locations, st.Prices = append(st.Locations, places...), prices
		out = append(out, st)
	}
	return out, err
}

// loadBalancerTypes returns Hetzner's types of load balancers with their limits.
func loadBalancerTypes() []loadBalancerType {
	t := func(id int64, name string, services, targets, certificates, connections int) loadBalancerType {
		return loadBalancerType{
			ID: id, Name: name, Description: strings.ToUpper(name), MaxServices: services, MaxTargets: targets,
			MaxAssignedCertificates: certificates, MaxConnections: connections, Prices: []price{},
		}
	}
	return []loadBalancerType{
		t(1, "lb11", 5, 25, 10, 10_000), t(2, "lb21", 15, 75, 25, 20_000), t(3, "lb31", 30, 150, 50, 40_000),
	}
}

func pricedLoadBalancerTypes(r *dialect.Request) ([]loadBalancerType, error) {
	in, err := listZones(r)
	all := loadBalancerTypes()
	for i := range all {
		all[i].Prices = pricesIn(in)
	}
	return all, err
}

func findLoadBalancerType(o idOrName) (loadBalancerType, bool) {
	for _, t := range loadBalancerTypes() {
		if o.refersTo(t.ID, t.Name) {
			return t, true
		}
	}
	return loadBalancerType{}, false
}

// authenticate returns an error if the cloud does not accept the caller's token. The cloud checks
// the token in each request that the dialect sends. Some calls read the body or send an answer
// before their first request to the cloud. These calls must use authenticate first. Otherwise the
// dialect could accept a request with an invalid token.
func authenticate(r *dialect.Request) error {
	_, err := r.Cloud.WhoAmI(r.Context())
	return err
}

// systemImages returns the system images. Machines of this cloud boot no image, so the choice of an
// image has no effect. The images exist only because clients need an image to create a server.
func systemImages() []image {
	var all []image
	for _, s := range []string{"ubuntu-24.04", "ubuntu-22.04", "debian-13", "debian-12", "rocky-9"} {
		flavor, version, _ := strings.Cut(s, "-")
		all = append(all, image{
			ID: idOf(s), Status: "available", Type: "system", Name: &s, Description: s, DiskSize: 5,
			OSFlavor: flavor, OSVersion: &version, Architecture: "x86", RapidDeploy: true, Labels: map[string]string{},
		})
	}
	return all
}

func filteredImages(r *dialect.Request) ([]image, error) {
	q := r.URL.Query()
	return slices.DeleteFunc(systemImages(), func(i image) bool {
		return q.Has("type") && !slices.Contains(q["type"], i.Type) || q.Has("architecture") && !slices.Contains(q["architecture"], i.Architecture) ||
			q.Get("bound_to") != "" || q.Get("label_selector") != ""
	}), authenticate(r)
}

type none struct{}

func (none) key() (int64, string) { return 0, "" }

// noneOf returns an empty catalogue, for a type of resource that the dialect does not support.
func noneOf(name string) catalogue[none] {
	return catalogue[none]{many: name, all: func(r *dialect.Request) ([]none, error) { return nil, authenticate(r) }}
}
