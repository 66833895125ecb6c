package dataplane

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// claimProtocol is the routing protocol number that marks the routes of this program. Routing
// daemons mark their routes in the same way.
const claimProtocol = 78 // not used in /etc/iproute2/rt_protos; the lab's routers use 77

// claimRanges adds a local route on the loopback interface for each of the ranges, so that this
// machine receives the packets to addresses in the ranges. The caller must call release to delete
// the routes that claimRanges added or took over.
//
// If a killed process of this program left the route of a range, claimRanges takes the route over.
// It skips a range in these cases:
//   - The range is a loopback range such as 127/8.
//   - The route of the range belongs to another program, or to another running process of this
//     program.
//   - The machine does not allow the route. claimRanges logs a warning. The listeners then report
//     the addresses that they cannot open.
//
// claimRanges returns an error only if it cannot find the loopback interface.
func claimRanges(log *slog.Logger, ranges []netip.Prefix) (release func(), err error) {
	var claimed []*netlink.Route
	var signs []io.Closer
	release = func() {
		for _, r := range claimed {
			if err := netlink.RouteDel(r); err != nil && !errors.Is(err, syscall.ESRCH) {
				log.Warn("cannot release a range of addresses for load balancers", "range", r.Dst.String(), "error", err)
			}
		}
		for _, s := range signs {
			_ = s.Close()
		}
	}
	ranges = slices.DeleteFunc(slices.Clone(ranges), func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
	if len(ranges) == 0 {
		return release, nil
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("looking for the loopback interface: %w", err)
	}
	for _, p := range ranges {
		sign := signOfLife(p)
		if sign != nil {
			signs = append(signs, sign)
		}
		r := &netlink.Route{
			LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: claimProtocol,
			Dst: &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		}
		switch err := netlink.RouteAdd(r); {
		case err == nil:
			claimed = append(claimed, r)
			log.Info("claimed a range of addresses for load balancers", "range", p.String())
		case errors.Is(err, syscall.EEXIST) && sign != nil && isOurs(r):
			claimed = append(claimed, r)
			log.Info("took over a range of addresses that an earlier process claimed", "range", p.String())
		case errors.Is(err, syscall.EEXIST): // keep the route, because the other program still needs it
		default:
			log.Warn("cannot claim a range of addresses for load balancers; the process may need CAP_NET_ADMIN", "range", p.String(), "error", err)
		}
	}
	return release, nil
}

// isOurs reports whether the machine has a route with the protocol claimProtocol, and with the
// table, type, interface and destination of r.
func isOurs(r *netlink.Route) bool {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, r, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE|
		netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST|netlink.RT_FILTER_PROTOCOL)
	return err == nil && len(routes) > 0
}

// signOfLife marks the range p as in use, so that other processes of this program do not delete the
// route of the range. The mark is the name of an abstract Unix socket on which this process
// listens. The kernel removes the name when the process ends, even after a crash. signOfLife
// returns nil if it cannot listen, usually because another process has the name.
func signOfLife(p netip.Prefix) io.Closer {
	sign, err := net.Listen("unix", "@allinone/claim/"+p.Masked().String())
	if err != nil {
		return nil
	}
	return sign
}

// isLocal reports whether the routes of this machine make ip a local address.
func isLocal(ip string) bool {
	routes, err := netlink.RouteGet(net.ParseIP(ip))
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// freebind lets a socket bind to an address that no interface has.
func freebind(network, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) {
		if network == "tcp6" || network == "udp6" {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
			return
		}
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
	})
	return errors.Join(cerr, err)
}
