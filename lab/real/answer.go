package real

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// When a load balancer of the cloud connects to a server in the VPC, the source address of the
// connection is the client's address. So the server sends its answers to an address outside the
// VPC. The router must forward these answers to the host. The host must deliver these answers to
// the load balancers, although the destination is not an address of the host. The routing rules
// recognize an answer by its source port, which is lower than the ports that Linux assigns to
// clients. So the rules do not apply to connections that machines and pods open to addresses
// outside the VPC.
const (
	firstServerPort, lastServerPort = 1, 32767

	routerTable    = 77        // routing table for answers, in the router's namespace
	routerPriority = 40_000    // after the main table, which routes the traffic to the VPC
	hostTables     = 1_000_000 // the host's routing table for answers is this number plus the index of the lab's link
	hostPriority   = 30_000    // before the host's main table
)

var everywhere = ipNet(netip.MustParsePrefix("0.0.0.0/0"))

// leadAnswers creates the rules and routes that bring answers of servers in the VPC to the host. It
// keeps existing rules, but replaces existing routes.
func (v *vpc) leadAnswers(host *netlink.Handle) error {
	bridge, err := v.link.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	cable, err := host.LinkByName(v.Link)
	if err != nil {
		return err
	}
	lo, err := host.LinkByName("lo")
	if err != nil {
		return err
	}
	table := hostTables + cable.Attrs().Index
	for _, ns := range []struct {
		handle *netlink.Handle
		route  netlink.Route
		from   string
		order  int
	}{
		{v.link, netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: everywhere, Gw: v.Host.AsSlice(), Table: routerTable}, "", routerPriority},
		{host, netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everywhere, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: table}, v.Link, hostPriority},
	} {
		if err := ns.handle.RouteReplace(&ns.route); err != nil {
			return fmt.Errorf("route for replies to clients: %w", err)
		}
		for _, protocol := range []int{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			r := answerRule(ns.from, protocol, ns.route.Table, ns.order)
			if err := ns.handle.RuleAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("routing rule for replies to clients (the kernel must support policy routing): %w", err)
			}
		}
	}
	return nil
}

func answerRule(from string, protocol, table, order int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.IifName, r.IPProto, r.Table, r.Priority = netlink.FAMILY_V4, from, protocol, table, order
	r.Sport = netlink.NewRulePortRange(firstServerPort, lastServerPort)
	return r
}

// forgetAnswers deletes the rules and routes with which the host routes the answers of servers in
// the VPC. The argument link is the name of the lab's network interface on the host. The kernel
// keeps these rules and routes after the deletion of this network interface. If no rule exists,
// forgetAnswers returns nil.
func forgetAnswers(link string) error {
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("reading the host's rules: %w", err)
	}
	var errs []error
	for _, r := range rules {
		if r.IifName != link {
			continue
		}
		errs = append(errs, netlink.RuleDel(&r))
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: r.Table}, netlink.RT_FILTER_TABLE)
		errs = append(errs, err)
		for _, route := range routes {
			if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("route for replies to clients: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
