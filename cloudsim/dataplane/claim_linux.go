package dataplane

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// claimProtocol marks the routes that are ours, as routing daemons mark theirs.
const claimProtocol = 78 // nobody's: /etc/iproute2/rt_protos; the lab's routers have 77

// claim makes every address of some ranges one of this machine, by a local
// route on its loopback interface: packets to them are delivered here. It
// returns how to give them back. A range that one of us was killed with is taken
// over. A range that is already a local one (such as 127/8), or has somebody
// else's route, and a machine that does not allow it are left as they are; the
// last is logged, and the listeners will say what they cannot have.
func claim(log *slog.Logger, ranges []netip.Prefix) (release func(), err error) {
	var claimed []*netlink.Route
	var signs []io.Closer
	release = func() {
		for _, r := range claimed {
			if err := netlink.RouteDel(r); err != nil && !errors.Is(err, syscall.ESRCH) {
				log.Warn("cannot give a range of addresses back", "range", r.Dst.String(), "error", err)
			}
		}
		for _, s := range signs {
			_ = s.Close()
		}
	}
	for _, p := range ranges {
		if p.Addr().IsLoopback() {
			continue
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return nil, fmt.Errorf("looking for the loopback interface: %w", err)
		}
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
			log.Info("took over a range of addresses that was claimed and not given back", "range", p.String())
		case errors.Is(err, syscall.EEXIST): // somebody else's, who will want it after us
		default:
			log.Warn("cannot claim a range of addresses for load balancers: it needs CAP_NET_ADMIN", "range", p.String(), "error", err)
		}
	}
	return release, nil
}

// isOurs reports whether there is a route such as r, with our mark.
func isOurs(r *netlink.Route) bool {
	there, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, r, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE|
		netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST|netlink.RT_FILTER_PROTOCOL)
	return err == nil && len(there) > 0
}

// signOfLife tells others of us that whoever claimed a range lives, and may want
// it after them: a socket's name in this network, which goes with the process
// however that ends. It is nil if another has it.
func signOfLife(p netip.Prefix) io.Closer {
	sign, err := net.Listen("unix", "@allinone/claim/"+p.Masked().String())
	if err != nil {
		return nil
	}
	return sign
}

// isLocal reports whether packets to ip are delivered to this machine.
func isLocal(ip string) bool {
	routes, err := netlink.RouteGet(net.ParseIP(ip))
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// freebind lets a socket have an address that no interface has.
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
