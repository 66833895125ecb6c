package hostnet

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Routes returns the destinations of all IPv4 and IPv6 routes of this machine, from all routing
// tables. It omits default routes, and routes to half of all addresses (see listDestinations).
func Routes() ([]netip.Prefix, error) {
	return listDestinations(func(netlink.Route) bool { return true })
}

// Addresses returns the address ranges that belong to this machine. These are the addresses of its
// interfaces, all loopback addresses, and ranges with a local route. The function omits a local
// default route, because this route does not mean that all addresses belong to this machine. For
// example, if the load balancers of a lab preserve the client's address, the lab adds a local
// default route to a separate routing table.
func Addresses() ([]netip.Prefix, error) {
	return listDestinations(func(r netlink.Route) bool { return r.Type == unix.RTN_LOCAL })
}

// listDestinations returns the destinations of the routes for which keep returns true. It omits
// default routes. It also omits a route to half of all addresses, because VPN clients split a
// default route into two such routes.
func listDestinations(keep func(netlink.Route) bool) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		table, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("reading the routes of this machine: %w", err)
		}
		for _, r := range table {
			if r.Dst == nil {
				continue // a default route
			}
			to, ok := netip.AddrFromSlice(r.Dst.IP)
			bits, size := r.Dst.Mask.Size()
			if size == 32 {
				to = to.Unmap()
			}
			if !ok || size != to.BitLen() {
				continue
			}
			if bits > 1 && keep(r) {
				all = append(all, netip.PrefixFrom(to, bits))
			}
		}
	}
	return all, nil
}
