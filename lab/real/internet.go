package real

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/template"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/lab/real/nameserver"
)

// Internet describes how machines reach networks outside the host. The zero value means that
// machines reach no network outside the host.
type Internet struct {
	// If IPv4 or IPv6 is true, machines can connect to other networks over this protocol. For each
	// allowed protocol, the host needs a default route.
	IPv4, IPv6 bool
	// If Isolated is true, machines cannot connect to the networks to which the host is directly
	// connected. Set Isolated if the host is a container. In this case, these networks contain the
	// other containers of the lab.
	Isolated bool
}

// FindInternet returns an Internet that allows each protocol (IPv4, IPv6) for which the host has a
// default route.
func FindInternet() (Internet, error) {
	v4, err4 := defaultLinks(netlink.FAMILY_V4)
	v6, err6 := defaultLinks(netlink.FAMILY_V6)
	return Internet{IPv4: len(v4) > 0, IPv6: len(v6) > 0}, errors.Join(err4, err6)
}

// On reports whether machines reach networks outside the host.
func (i Internet) On() bool { return i.IPv4 || i.IPv6 }

// defaultLinks returns the indexes of the links with a default route of the given protocol.
func defaultLinks(family int) (links []int, err error) {
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	if err != nil {
		return nil, fmt.Errorf("reading the default routes of this host: %w", err)
	}
	for _, r := range routes {
		if r.Dst != nil && (!r.Dst.IP.IsUnspecified() || !slices.Equal(r.Dst.Mask, make([]byte, len(r.Dst.Mask)))) {
			continue
		}
		links = append(links, r.LinkIndex)
		for _, hop := range r.MultiPath {
			links = append(links, hop.LinkIndex)
		}
	}
	return slices.DeleteFunc(links, func(i int) bool { return i == 0 }), nil
}

// vpc6 returns the IPv6 range of the VPC and its pods. The range is a unique local range (RFC
// 4193). The sixth byte of its address is the second byte of the VPC's IPv4 address. Labs on one
// host differ in this byte, so they have different ranges.
func (n Network) vpc6() netip.Prefix {
	a := netip.MustParseAddr("fd63:7369:6d00::").As16() // "csim" in ASCII
	a[5] = n.VPC.Addr().As4()[1]
	return netip.PrefixFrom(netip.AddrFrom16(a), 48)
}

// in6 returns the IPv6 address of the machine with the IPv4 address v4. The last 32 bits of the
// IPv6 address are the IPv4 address.
func (n Network) in6(v4 netip.Addr) netip.Prefix {
	a, last := n.vpc6().Addr().As16(), v4.As4()
	copy(a[12:], last[:])
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// pods6 returns the IPv6 range of the pods on the machine with the IPv4 address v4.
func (n Network) pods6(v4 netip.Addr) netip.Prefix {
	a, last := n.vpc6().Addr().As16(), v4.As4()
	copy(a[6:8], last[2:]) // the VPC has 16 bits for machines, so the ranges of two machines differ
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// setInternet configures the internet access that v.Internet allows. If v.Internet allows no
// protocol, setInternet undoes the changes that an earlier run made to the firewall and the
// forwarding settings of the host.
func (v *vpc) setInternet(host *netlink.Handle) error {
	if err := v.routeInternet(host); err != nil {
		return fmt.Errorf("routes to the internet: %w", err)
	}
	if !v.Internet.On() {
		return closeInternet(v.Link)
	}
	if err := v.openHost(); err != nil {
		return fmt.Errorf("internet access of machines: %w; --no-internet starts the lab without it", err)
	}
	return nil
}

// routeInternet sets the addresses and routes for packets between the router and the host. For a
// protocol that v.Internet does not allow, it deletes the router's default route.
func (v *vpc) routeInternet(host *netlink.Handle) error {
	bridge, err := v.link.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	cable, err := host.LinkByName(v.Link)
	if err != nil {
		return err
	}
	if v.Internet.IPv6 {
		if err := errors.Join(
			configure(v.link, bridgeName, v.in6(v.Router)), configure(host, v.Link, v.in6(v.Host)),
			inNamespace(v.ns, func() error { return writeSetting(forward6, "1") }),
			host.RouteReplace(&netlink.Route{LinkIndex: cable.Attrs().Index, Dst: ipNet(v.vpc6()), Gw: v.in6(v.Router).Addr().AsSlice()}),
			// Without this route, the router and the host would send a packet for an unused address
			// to each other again and again.
			v.link.RouteReplace(&netlink.Route{Dst: ipNet(v.vpc6()), Type: unix.RTN_UNREACHABLE}),
		); err != nil {
			return err
		}
	}
	for _, r := range []struct {
		on     bool
		family int
		route  netlink.Route
	}{
		{v.Internet.IPv4, netlink.FAMILY_V4, netlink.Route{Dst: everywhere, Gw: v.Host.AsSlice()}},
		{v.Internet.IPv6, netlink.FAMILY_V6, netlink.Route{Dst: everywhere6, Gw: v.in6(v.Host).Addr().AsSlice()}},
	} {
		r.route.LinkIndex = bridge.Attrs().Index
		if r.on {
			err = v.link.RouteReplace(&r.route)
		} else if err = v.link.RouteDel(&r.route); isNoSuchRoute(err) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("default route of the router: %w", err)
		}
	}
	return nil
}

// isNoSuchRoute reports whether the deletion of a route failed because the route does not exist. It
// also returns true for the errors of a host without IPv6, where the kernel refuses all requests
// for IPv6 routes.
func isNoSuchRoute(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}

var everywhere6 = ipNet(netip.MustParsePrefix("::/0"))

//go:embed internet.nft
var rulesText string

var rules = template.Must(template.New("internet.nft").Parse(rulesText))

// guard holds the inputs of the template internet.nft.
type guard struct {
	Network
	Table    string
	VPC6     netip.Prefix
	Denied   []netip.Prefix
	Denied6  []netip.Prefix
	Original map[string]string
}

// deniedRanges lists address ranges to which the firewall forwards no packets from machines. These
// ranges contain addresses that are valid only on the host's own links, and addresses of the
// metadata services of clouds. If the host is a virtual machine of a cloud, pods must not reach the
// metadata service of this cloud. Otherwise the service could give the host's credentials to pods.
var deniedRanges = parsePrefixes(
	"127.0.0.0/8", "169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
	"::1/128", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128",
)

func parsePrefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// openHost lets the host forward packets between the VPC and other networks. First it writes
// firewall rules that limit this traffic. Comments in the rules contain the original values of
// the settings that openHost changes.
func (v *vpc) openHost() error {
	wanted, err := v.Internet.neededSettings()
	if err != nil {
		return err
	}
	table := tableOf(v.Link)
	original, err := originalValues(table, wanted)
	if err != nil {
		return err
	}
	g := guard{Network: v.Network, Table: table, VPC6: v.vpc6(), Original: original}
	all := deniedRanges
	if v.Internet.Isolated {
		near, err := v.neighborNetworks()
		if err != nil {
			return err
		}
		all = slices.Concat(all, near)
	}
	for _, p := range all {
		if p.Addr().Is4() {
			g.Denied = append(g.Denied, p)
		} else {
			g.Denied6 = append(g.Denied6, p)
		}
	}
	var text bytes.Buffer
	if err := rules.Execute(&text, g); err != nil {
		return err
	}
	if _, err := nft(text.String(), "-f", "-"); err != nil {
		return err
	}
	for _, s := range wanted {
		if err := writeSetting(s.path, s.value); err != nil {
			return err
		}
	}
	return passDocker(v.Link)
}

// neighborNetworks returns the networks to which the host is directly connected, except the
// VPC.
func (v *vpc) neighborNetworks() (all []netip.Prefix, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if l.Attrs().Name == v.Link || l.Attrs().Name == "lo" {
			continue
		}
		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && !ip.IsLinkLocalUnicast() {
				bits, _ := a.Mask.Size()
				all = append(all, netip.PrefixFrom(ip.Unmap(), bits).Masked())
			}
		}
	}
	return all, nil
}

// hostResolvers is the file with the host's resolvers. The machines' name server asks these
// resolvers.
const hostResolvers = "/etc/resolv.conf"

// NameServer returns the address of the name server for machines and pods. This is the address of
// the router. NameServer returns the zero value if machines have no internet access.
func (n Network) NameServer() netip.Addr {
	if !n.Internet.On() {
		return netip.Addr{}
	}
	return n.Router
}

// newNameServer opens the sockets of the name server for machines and pods. The sockets are in the
// router's namespace, so no program of the host can occupy the port. The name server sends its
// queries from this process's namespace, so the queries also reach resolvers on the host's
// loopback. If machines have no internet access, newNameServer returns nil.
func (r *router) newNameServer(ctx context.Context) (*nameserver.Server, error) {
	if !r.vpc.Internet.On() {
		return nil, nil
	}
	address := netip.AddrPortFrom(r.vpc.NameServer(), 53).String()
	s := nameserver.Server{Log: r.log.With("part", "nameserver"), File: hostResolvers}
	err := inNamespace(r.vpc.ns, func() (err error) {
		var l net.ListenConfig
		if s.UDP, err = l.ListenPacket(ctx, "udp", address); err != nil {
			return err
		}
		if s.TCP, err = l.Listen(ctx, "tcp", address); err != nil {
			return errors.Join(err, s.UDP.Close())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	return &s, nil
}

// tablePrefix is the first part of the name of a lab's nftables table. The second part is the
// name of the host's link.
const tablePrefix = "cloudsim-"

func tableOf(link string) string { return tablePrefix + link }

// tableNames returns the names of the nftables tables of all labs in this network namespace.
func tableNames() (names []string, err error) {
	out, err := nft("", "list", "tables", "inet")
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 && strings.HasPrefix(f[2], tablePrefix) {
			names = append(names, f[2])
		}
	}
	return names, err
}

// closeInternet removes a lab's rules from the host. The parameter link is the name of the lab's
// link. closeInternet also restores the settings that this lab changed and that no other lab needs.
// If the host has no rules of the lab, closeInternet returns nil.
func closeInternet(link string) error {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil //nolint:nilerr // without this program no lab has written rules
	}
	labs, err := tableNames()
	if err != nil {
		return err
	}
	table := tableOf(link)
	if !slices.Contains(labs, table) {
		return nil
	}
	restore, err := storedValues(table)
	if err != nil {
		return err
	}
	for _, other := range labs {
		if other == table {
			continue
		}
		values, err := storedValues(other)
		if err != nil {
			return err
		}
		for path := range values {
			delete(restore, path)
		}
	}
	for path, value := range restore {
		if err := writeSetting(path, value); err != nil && !errors.Is(err, os.ErrNotExist) { // the link may be gone
			return err
		}
	}
	if err := leaveDocker(link); err != nil {
		return err
	}
	_, err = nft("", "delete", "table", "inet", table)
	return err
}

func nft(text string, args ...string) (string, error) { return runFilter(text, "nft", args...) }

func runFilter(text, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(text)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, firstLines(errs.String(), 3))
	}
	return out.String(), nil
}

// dockerChain is the iptables chain to which users of Docker can add rules. Docker accepts a
// forwarded packet only if one of its own rules or a rule in this chain accepts the packet. The
// lab's nftables table cannot accept packets that Docker drops, so the lab adds rules to this
// chain.
const dockerChain = "DOCKER-USER"

func dockerRules(link string) [][]string {
	return [][]string{
		{dockerChain, "-i", link, "-j", "ACCEPT"},
		{dockerChain, "-o", link, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
	}
}

// passDocker lets Docker's firewall accept the traffic of a lab. The lab's own rules still apply.
func passDocker(link string) error {
	return eachDockerRule(link, func(program string, rule []string) error {
		if _, err := runFilter("", program, slices.Concat([]string{"-w", "-C"}, rule)...); err == nil {
			return nil
		}
		_, err := runFilter("", program, slices.Concat([]string{"-w", "-I"}, rule)...)
		return err
	})
}

// leaveDocker removes the rules that passDocker added.
func leaveDocker(link string) error {
	return eachDockerRule(link, func(program string, rule []string) error {
		if _, err := runFilter("", program, slices.Concat([]string{"-w", "-C"}, rule)...); err != nil {
			return nil //nolint:nilerr // there is no such rule
		}
		_, err := runFilter("", program, slices.Concat([]string{"-w", "-D"}, rule)...)
		return err
	})
}

// eachDockerRule calls fn for each rule of dockerRules, first with the program iptables and then
// with ip6tables. It skips a program if Docker has not made the chain DOCKER-USER for this program.
func eachDockerRule(link string, fn func(program string, rule []string) error) error {
	for _, program := range []string{"iptables", "ip6tables"} {
		if _, err := runFilter("", program, "-w", "-n", "-L", dockerChain); err != nil {
			continue // Docker does not run, or does not filter this protocol
		}
		for _, rule := range dockerRules(link) {
			if err := fn(program, rule); err != nil {
				return err
			}
		}
	}
	return nil
}
