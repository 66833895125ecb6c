package real

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// routeProtocol marks the router's routes that came from the cloud's table.
const routeProtocol = 77 // nobody's: /etc/iproute2/rt_protos names those of routing daemons

// table is the cloud's table of routes, where their next hops are, and which
// zones are dark.
type table struct {
	news chan struct{} // holds one

	mu        sync.Mutex
	routes    map[cloudsim.RouteID]cloudsim.Route
	addresses map[cloudsim.InstanceID]netip.Addr
	zones     map[cloudsim.InstanceID]string
	dark      map[string]bool
}

func newTable() *table {
	return &table{
		news: make(chan struct{}, 1), routes: map[cloudsim.RouteID]cloudsim.Route{}, addresses: map[cloudsim.InstanceID]netip.Addr{},
		zones: map[cloudsim.InstanceID]string{}, dark: map[string]bool{},
	}
}

// change applies fn to the table and has the router follow.
func (t *table) change(fn func()) {
	t.mu.Lock()
	fn()
	t.mu.Unlock()
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// put takes a route as the cloud now has it.
func (t *table) put(r cloudsim.Route, gone bool) {
	t.change(func() {
		if last, ok := t.routes[r.ID]; ok && r.Revision < last.Revision {
			return // the list was newer
		}
		if t.routes[r.ID] = r; gone {
			delete(t.routes, r.ID)
		}
	})
}

// fill replaces the whole table.
func (t *table) fill(all []cloudsim.Route) {
	t.change(func() {
		clear(t.routes)
		for _, r := range all {
			t.routes[r.ID] = r
		}
	})
}

// locate takes note of where an instance is.
func (t *table) locate(i cloudsim.Instance) {
	if a, err := netip.ParseAddr(i.InternalIP()); err == nil {
		t.change(func() { t.addresses[i.ID], t.zones[i.ID] = a, i.Zone })
	}
}

// darken takes note of whether anything reaches what runs in a zone.
func (t *table) darken(z cloudsim.Zone) {
	t.change(func() { t.dark[z.Name] = z.Dark() })
}

// cut are the instances, of those the table knows, whose cables are: those in
// a dark zone are, and the others are not.
func (t *table) cut() map[cloudsim.InstanceID]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[cloudsim.InstanceID]bool{}
	for id, zone := range t.zones {
		all[id] = t.dark[zone]
	}
	return all
}

// active are the routes that carry traffic. The cloud says of one whose next
// hop does not run that it is a black hole.
func (t *table) active() map[netip.Prefix]netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[netip.Prefix]netip.Addr{}
	for _, r := range t.routes {
		to, err := netip.ParsePrefix(r.Destination)
		via, known := t.addresses[r.NextHop]
		if err == nil && known && to.Addr().Is4() && r.State == cloudsim.RouteActive {
			all[to] = via
		}
	}
	return all
}

// route keeps the router's table what the cloud's is, and the cables to dark
// zones cut, until ctx ends.
func (h *hypervisor) route(ctx context.Context) {
	again := retry()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.table.news:
		}
		if err := errors.Join(h.vpc.setRoutes(h.table.active()), h.vpc.setCables(h.table.cut())); err != nil {
			h.log.Warn("the router is not as the cloud says; trying again", "err", err)
			again.Wait(ctx)
			h.table.change(func() {})
			continue
		}
		again.Reset()
	}
}

// setRoutes makes the routes of the cloud's table those of the router, and
// takes away those that are no longer in it.
func (v *vpc) setRoutes(want map[netip.Prefix]netip.Addr) error {
	now, err := v.link.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("reading the router's table: %w", err)
	}
	there := map[netip.Prefix]netip.Addr{}
	var errs []error
	for _, r := range now {
		to, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		via, hasVia := netip.AddrFromSlice(r.Gw.To4())
		if !ok || !hasVia {
			continue
		}
		p := netip.PrefixFrom(to, bits)
		if want[p] == via {
			there[p] = via
			continue
		}
		if err := v.link.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("taking away the route to %s: %w", p, err))
		}
	}
	for p, via := range want {
		if there[p] == via {
			continue
		}
		r := netlink.Route{Dst: ipNet(p), Gw: via.AsSlice(), Protocol: routeProtocol}
		if err := v.link.RouteReplace(&r); err != nil {
			errs = append(errs, fmt.Errorf("route to %s via %s: %w", p, via, err))
		}
	}
	return errors.Join(errs...)
}
