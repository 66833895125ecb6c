package real

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// routeProtocol marks the router's routes that came from the cloud's route table.
const routeProtocol = 77 // unused by the routing daemons in /etc/iproute2/rt_protos

// table holds the routes and instances of the cloud. The next hop of a route is an instance.
type table struct {
	news notification

	mu        sync.Mutex
	routes    map[cloudsim.RouteID]cloudsim.Route
	instances map[cloudsim.InstanceID]cloudsim.Instance
}

func newTable() *table {
	return &table{news: newNotification(), routes: map[cloudsim.RouteID]cloudsim.Route{}, instances: map[cloudsim.InstanceID]cloudsim.Instance{}}
}

func (t *table) change(fn func()) {
	t.mu.Lock()
	fn()
	t.mu.Unlock()
	t.news.notify()
}

// put stores a version of a route. If deleted is true, put removes the route instead. put ignores
// a version that is older than the stored version.
func (t *table) put(r cloudsim.Route, deleted bool) {
	t.change(func() {
		if stored, ok := t.routes[r.ID]; ok && r.Revision < stored.Revision {
			return // the stored version is newer
		}
		if t.routes[r.ID] = r; deleted {
			delete(t.routes, r.ID)
		}
	})
}

func (t *table) fill(instances []cloudsim.Instance, routes []cloudsim.Route) {
	t.change(func() {
		clear(t.instances)
		clear(t.routes)
		for _, i := range instances {
			t.instances[i.ID] = i
		}
		for _, r := range routes {
			t.routes[r.ID] = r
		}
	})
}

// putInstance stores a version of an instance. If deleted is true, putInstance removes the instance
// instead. putInstance ignores a version that is older than the stored version.
func (t *table) putInstance(i cloudsim.Instance, deleted bool) {
	t.change(func() {
		if stored, ok := t.instances[i.ID]; ok && i.Revision < stored.Revision {
			return
		}
		if t.instances[i.ID] = i; deleted {
			delete(t.instances, i.ID)
		}
	})
}

// runningInstances returns the instances that run. It omits crashed instances, although the cloud
// shows them as running.
func (t *table) runningInstances() (all []cloudsim.Instance) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, i := range t.instances {
		if i.State == cloudsim.InstanceRunning && i.Crashed == nil {
			all = append(all, i)
		}
	}
	return all
}

// activeRoutes returns the next hops of the usable routes, by destination. It skips routes in the
// state blackhole. It also skips routes to instances that the router cannot reach. The router can
// reach an instance if the instance is in the route's network and the instance's first address is
// in the VPC. If pods have IPv6 addresses, the result contains the IPv6 routes to the pods of each
// instance. These IPv6 routes are not in the cloud's route table.
func (t *table) activeRoutes(n Network) map[netip.Prefix]netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[netip.Prefix]netip.Addr{}
	for _, i := range t.instances {
		if a, err := netip.ParseAddr(i.InternalIP()); err == nil && n.Internet.IPv6 && n.VPC.Contains(a) {
			all[n.pods6(a)] = n.in6(a).Addr()
		}
	}
	for _, r := range t.routes {
		hop, known := t.instances[r.NextHop]
		to, err := netip.ParsePrefix(r.Destination)
		via, noAddress := netip.ParseAddr(hop.InternalIP())
		if known && err == nil && noAddress == nil && r.Network == hop.Network && n.VPC.Contains(via) && to.Addr().Is4() && r.State == cloudsim.RouteActive {
			all[to] = via
		}
	}
	return all
}

// setRoutes adds the routes in wantedRoutes to the router. If a route of an earlier call is not in
// wantedRoutes, setRoutes deletes this route.
func (v *vpc) setRoutes(wantedRoutes map[netip.Prefix]netip.Addr) error {
	now, err := v.link.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("reading the router's route table: %w", err)
	}
	existing := map[netip.Prefix]netip.Addr{}
	var errs []error
	for _, r := range now {
		to, ok := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		via, hasVia := netip.AddrFromSlice(r.Gw)
		if !ok || !hasVia {
			continue
		}
		p, via := netip.PrefixFrom(to.Unmap(), bits), via.Unmap()
		if wantedRoutes[p] == via {
			existing[p] = via
			continue
		}
		if err := v.link.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route to %s: %w", p, err))
		}
	}
	for p, via := range wantedRoutes {
		if existing[p] == via {
			continue
		}
		r := netlink.Route{Dst: ipNet(p), Gw: via.AsSlice(), Protocol: routeProtocol}
		if err := v.link.RouteReplace(&r); err != nil {
			errs = append(errs, fmt.Errorf("route to %s via %s: %w", p, via, err))
		}
	}
	return errors.Join(errs...)
}
