package hcloud

import (
	"net/http"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// locationOf returns the location of a zone. The region becomes the network zone of the
// location.
func locationOf(zone, region string) location {
	return location{ID: idOf(zone), Name: zone, Description: zone + " in " + region, Country: "DE", City: zone, NetworkZone: region}
}

// datacenterSuffix follows the name of a location in the name of its only datacenter.
const datacenterSuffix = "-dc1"

// datacenterOf returns the datacenter of a zone. Hetzner's newer API has no datacenters,
// but older clients read them.
func datacenterOf(zone, region string) datacenter {
	name := zone + datacenterSuffix
	return datacenter{
		ID: idOf(name), Name: name, Description: name, Location: locationOf(zone, region),
		ServerTypes: datacenterServerTypes{Supported: []int64{}, AvailableForMigration: []int64{}, Available: []int64{}},
	}
}

// catalogueList answers a call that lists a small, fixed set of entries.
func catalogueList[T any](r *dialect.Request, name string, all []T, nameOf func(T) string) (int, any, error) {
	q, err := parseQuery(r.URL.Query(), "name", "created")
	if err != nil {
		return 0, nil, err
	}
	if q.name != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(v T) bool { return nameOf(v) != q.name })
	}
	items, m := slice(all, q)
	return reply(name, items, m)
}

// catalogueGet answers a call that reads one entry. The path of the call contains the id
// of the entry.
func catalogueGet[T any](r *dialect.Request, name string, all []T, idOf func(T) int64) (int, any, error) {
	n, err := target(r)
	if err != nil {
		return 0, nil, err
	}
	for _, v := range all {
		if idOf(v) == n {
			return http.StatusOK, map[string]any{name: v}, nil
		}
	}
	return 0, nil, cloudsim.Errorf(cloudsim.NotFound, "no %s has the id %d", strings.ReplaceAll(name, "_", " "), n)
}

// zones returns all zones of the cloud.
func zones(r *dialect.Request) ([]cloudsim.Zone, error) {
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListZones, cloudsim.ListOptions{})
	return all, err
}

func locations(r *dialect.Request) ([]location, error) {
	all, err := zones(r)
	out := make([]location, 0, len(all))
	for _, z := range all {
		out = append(out, locationOf(z.Name, z.Region))
	}
	return out, err
}

func (a *api) listLocations(r *dialect.Request) (int, any, error) {
	all, err := locations(r)
	if err != nil {
		return 0, nil, err
	}
	return catalogueList(r, "locations", all, func(l location) string { return l.Name })
}

func (a *api) getLocation(r *dialect.Request) (int, any, error) {
	all, err := locations(r)
	if err != nil {
		return 0, nil, err
	}
	return catalogueGet(r, "location", all, func(l location) int64 { return l.ID })
}

// datacenters returns all datacenters. Each datacenter supports all server types.
func datacenters(r *dialect.Request) ([]datacenter, error) {
	all, err := zones(r)
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

func (a *api) listDatacenters(r *dialect.Request) (int, any, error) {
	all, err := datacenters(r)
	if err != nil {
		return 0, nil, err
	}
	return catalogueList(r, "datacenters", all, func(d datacenter) string { return d.Name })
}

func (a *api) getDatacenter(r *dialect.Request) (int, any, error) {
	all, err := datacenters(r)
	if err != nil {
		return 0, nil, err
	}
	return catalogueGet(r, "datacenter", all, func(d datacenter) int64 { return d.ID })
}

// serverTypeOf returns the server type of an instance type. The disk of a server has no
// size in this cloud, so the field disk is 0.
func serverTypeOf(t cloudsim.InstanceType) serverType {
	return serverType{
		ID: idOf(t.Name), Name: t.Name, Description: t.Name, Category: "Shared vCPU", Cores: t.CPUs, Memory: float64(t.MemoryMiB) / 1024,
		StorageType: "local", CPUType: "shared", Architecture: "x86", Prices: []price{}, Locations: []serverTypeLocation{},
	}
}

// serverTypes returns all server types. Each type is available in each location.
func serverTypes(r *dialect.Request) ([]serverType, error) {
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListInstanceTypes, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	in, err := zones(r)
	var places []serverTypeLocation
	for _, z := range in {
		places = append(places, serverTypeLocation{ID: idOf(z.Name), Name: z.Name, Available: true})
	}
	out := make([]serverType, 0, len(all))
	for _, t := range all {
		st := serverTypeOf(t)
		st.Locations = append(st.Locations, places...)
		out = append(out, st)
	}
	return out, err
}

func (a *api) listServerTypes(r *dialect.Request) (int, any, error) {
	all, err := serverTypes(r)
	if err != nil {
		return 0, nil, err
	}
	return catalogueList(r, "server_types", all, func(t serverType) string { return t.Name })
}

func (a *api) getServerType(r *dialect.Request) (int, any, error) {
	all, err := serverTypes(r)
	if err != nil {
		return 0, nil, err
	}
	return catalogueGet(r, "server_type", all, func(t serverType) int64 { return t.ID })
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

// findLoadBalancerType returns the type with an id or a name.
func findLoadBalancerType(o idOrName) (loadBalancerType, bool) {
	for _, t := range loadBalancerTypes() {
		if o.is(t.ID, t.Name) {
			return t, true
		}
	}
	return loadBalancerType{}, false
}

func (a *api) listLoadBalancerTypes(r *dialect.Request) (int, any, error) {
	if err := authenticate(r); err != nil {
		return 0, nil, err
	}
	return catalogueList(r, "load_balancer_types", loadBalancerTypes(), func(t loadBalancerType) string { return t.Name })
}

func (a *api) getLoadBalancerType(r *dialect.Request) (int, any, error) {
	if err := authenticate(r); err != nil {
		return 0, nil, err
	}
	return catalogueGet(r, "load_balancer_type", loadBalancerTypes(), func(t loadBalancerType) int64 { return t.ID })
}

// authenticate checks the caller's token, for a call that makes no other request to the
// cloud.
func authenticate(r *dialect.Request) error {
	_, err := r.Cloud.WhoAmI(r.Context())
	return err
}

// images returns the system images. Machines of this cloud boot no image, so all images
// are equal. The images exist only because clients need an image to create a server.
func images() []image {
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

func imageName(i image) string { return *i.Name }

func (a *api) listImages(r *dialect.Request) (int, any, error) {
	if err := authenticate(r); err != nil {
		return 0, nil, err
	}
	q := r.URL.Query()
	all := slices.DeleteFunc(images(), func(i image) bool {
		return q.Has("type") && !slices.Contains(q["type"], i.Type) || q.Has("architecture") && !slices.Contains(q["architecture"], i.Architecture) ||
			q.Get("bound_to") != "" || q.Get("label_selector") != ""
	})
	return catalogueList(r, "images", all, imageName)
}

func (a *api) getImage(r *dialect.Request) (int, any, error) {
	if err := authenticate(r); err != nil {
		return 0, nil, err
	}
	return catalogueGet(r, "image", images(), func(i image) int64 { return i.ID })
}

// noneOf returns a call that answers with an empty list of resources. The list is always
// empty, because the dialect cannot create such resources.
func (a *api) noneOf(name string) func(*dialect.Request) (int, any, error) {
	return func(r *dialect.Request) (int, any, error) {
		if err := authenticate(r); err != nil {
			return 0, nil, err
		}
		return catalogueList(r, name, []struct{}{}, func(struct{}) string { return "" })
	}
}
