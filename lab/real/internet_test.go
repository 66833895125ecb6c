package real

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func labNetwork(octet byte, link string, access Internet) Network {
	at := func(b ...byte) netip.Addr { return netip.AddrFrom4([4]byte{10, octet, b[0], b[1]}) }
	return Network{
		VPC: netip.PrefixFrom(at(0, 0), 16), Router: at(255, 1), Host: at(255, 2), LoadBalancers: netip.PrefixFrom(at(128, 0), 18),
		Pods: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, octet + 1, 0, 0}), 16), Link: link, Internet: access,
	}
}

// newWorld creates a network namespace that simulates the internet. The test's namespace simulates
// the host, and gets a default route to the new namespace. The host has the addresses 203.0.113.2
// and 2001:db8::2.
func newWorld(t *testing.T) *place {
	t.Helper()
	world := inNetNS(t, bareMachine(t).Process.Pid)
	host := currentPlace(t)
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(world.ns)}
	if err := host.handle.LinkAdd(cable); err != nil {
		t.Fatal(err)
	}
	for _, a := range []struct {
		at      *place
		link    string
		address string
	}{
		{host, "uplink", "203.0.113.2/24"},
		{host, "uplink", "2001:db8::2/64"},
		{world, "eth0", "203.0.113.1/24"},
		{world, "eth0", "2001:db8::1/64"},
		{world, "lo", "198.51.100.1/32"},
		{world, "lo", "169.254.1.1/32"},
		{world, "lo", "100.100.100.200/32"},
		{world, "lo", "fd00:ec2::254/128"},
	} {
		if err := configure(a.at.handle, a.link, netip.MustParsePrefix(a.address)); err != nil {
			t.Fatal(err)
		}
	}
	setDefaults(t, host, "203.0.113.1", "2001:db8::1")
	return world
}

func setDefaults(t *testing.T, p *place, gateways ...string) {
	t.Helper()
	for _, g := range gateways {
		if err := p.handle.RouteReplace(&netlink.Route{Gw: net.ParseIP(g)}); err != nil {
			t.Fatal(err)
		}
	}
}

func settingIs(t *testing.T, when, path, want string) {
	t.Helper()
	if got, err := readSetting(path); err != nil || got != want {
		t.Errorf("%s: %s is %q, error %v; want %q", when, path, got, err, want)
	}
}

// Machines reach other networks over IPv4 and IPv6. They do not reach link-local addresses, the
// metadata services of clouds, or services of the host that are not for machines. Other networks
// do not reach machines. After the end of the lab, the host has its old settings and firewall.
func TestInternet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	onHostOfItsOwn(t)
	if f := checkInternet(); !strings.Contains(f.Problem, "no default route") {
		t.Errorf("check of a host without a default route: %+v", f)
	}
	world := newWorld(t)
	const acceptRA = "net/ipv6/conf/uplink/accept_ra"
	if err := errors.Join(writeSetting(forward4, "0"), writeSetting(forward6, "0"), writeSetting(acceptRA, "1")); err != nil {
		t.Fatal(err)
	}
	access, err := FindInternet()
	if err != nil || access != (Internet{IPv4: true, IPv6: true}) {
		t.Fatalf("access by the default routes: %+v, error %v", access, err)
	}
	file, n := filepath.Join(t.TempDir(), "vpc"), labNetwork(98, "csim-test", access)
	open := func(n Network) {
		t.Helper()
		v, err := openVPC(file, n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = v.close() })
	}
	t.Cleanup(func() { _ = dropNetNS(file) })
	open(n)
	v, err := openVPC(file, n) // the second call changes nothing
	if err != nil {
		t.Fatal(err)
	}
	defer v.close() //nolint:errcheck // the handles of a namespace that ends with the test
	process := bareMachine(t)
	if err := v.bridge.attach("i-1", process.Process.Pid, netip.MustParseAddr("10.98.0.1")); err != nil {
		t.Fatal(err)
	}
	machine := inNetNS(t, process.Process.Pid)
	host := currentPlace(t)
	for _, a := range []string{"198.51.100.1:80", "[2001:db8::1]:80", "169.254.1.1:80", "100.100.100.200:80", "[fd00:ec2::254]:80"} {
		listenIn(t, world, a)
	}
	for _, a := range []string{"10.98.255.2:80", "10.98.128.1:80", "127.0.0.1:80", "203.0.113.2:80", "[2001:db8::2]:80", "[::1]:80"} {
		listenIn(t, host, a)
	}
	listenIn(t, machine, "10.98.0.1:80")
	check := func(when string, from *place, want bool, addresses ...string) {
		t.Helper()
		for _, a := range addresses {
			if want {
				waitReachable(t, when+": "+a, from, a, true)
			} else if err := connect(from, a); err == nil {
				t.Errorf("%s: %s is reachable", when, a)
			}
		}
	}
	check("the host reaches the machine", host, true, "10.98.0.1:80")
	check("a server of the internet", machine, true, "198.51.100.1:80", "[2001:db8::1]:80")
	check("the host's addresses for machines", machine, true, "10.98.255.2:80", "10.98.128.1:80")
	check("the host's own addresses", machine, false, "127.0.0.1:80", "[::1]:80", "203.0.113.2:80", "[2001:db8::2]:80")
	check("the host reaches them", host, true, "169.254.1.1:80", "100.100.100.200:80", "[fd00:ec2::254]:80")
	check("addresses that stay closed", machine, false, "169.254.1.1:80", "100.100.100.200:80", "[fd00:ec2::254]:80")
	unused := n.pods6(netip.MustParseAddr("10.98.7.7")).Addr().Next()
	if routes, err := v.link.RouteGet(unused.AsSlice()); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("the router's route to an unused IPv6 address: %v, error %v; want none", routes, err)
	}
	setDefaults(t, world, "203.0.113.2", "2001:db8::2") // now the world has routes to the machines
	check("the internet reaches no machine", world, false, "10.98.0.1:80", netip.AddrPortFrom(n.in6(netip.MustParseAddr("10.98.0.1")).Addr(), 80).String())

	isolated := n
	isolated.Internet.Isolated = true
	open(isolated)
	check("isolated: a neighbor of the host", machine, false, "203.0.113.1:80", "[2001:db8::1]:80")
	check("isolated: other networks", machine, true, "198.51.100.1:80")
	open(n)

	// A second lab needs the settings that the first lab changed. So the settings stay until both
	// labs have ended.
	second := labNetwork(90, "csim-second", access)
	secondFile := filepath.Join(t.TempDir(), "vpc")
	w, err := openVPC(secondFile, second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.close() })
	off := n
	off.Internet = Internet{}
	open(off)
	check("no access", machine, false, "198.51.100.1:80", "[2001:db8::1]:80")
	check("no access, but the host", machine, true, "10.98.255.2:80")
	for path, want := range map[string]string{forward4: "1", forward6: "1", acceptRA: "2"} {
		settingIs(t, "while a second lab runs", path, want)
	}
	if err := destroyVPC(secondFile, second.Link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{forward4: "0", forward6: "0", acceptRA: "1"} {
		settingIs(t, "after the last lab", path, want)
	}
	if left, err := tableNames(); err != nil || len(left) > 0 {
		t.Errorf("tables after the last lab: %v, error %v", left, err)
	}
	if err := destroyVPC(file, n.Link); err != nil {
		t.Error(err)
	}
}

// A lab adds rules to Docker's chain, so that the firewall accepts the lab's traffic. destroyVPC
// removes these rules.
func TestInternetWithDockerFirewall(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	onHostOfItsOwn(t)
	if _, err := runFilter("", "iptables", "-P", "FORWARD", "DROP"); err != nil {
		t.Skipf("the test needs iptables: %v", err)
	}
	world := newWorld(t)
	if f := checkInternet(); !strings.Contains(f.Problem, "firewall") {
		t.Errorf("check of a host that drops forwarded packets: %+v", f)
	}
	if _, err := runFilter("", "iptables", "-N", dockerChain); err != nil {
		t.Fatal(err)
	}
	if _, err := runFilter("", "iptables", "-A", "FORWARD", "-j", dockerChain); err != nil {
		t.Fatal(err)
	}
	if f := checkInternet(); f.Problem != "" {
		t.Errorf("check of a host with Docker: %+v", f)
	}
	file, n := filepath.Join(t.TempDir(), "vpc"), labNetwork(98, "csim-test", Internet{IPv4: true})
	v, err := openVPC(file, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(v.close(), dropNetNS(file)) })
	process := bareMachine(t)
	if err := v.bridge.attach("i-1", process.Process.Pid, netip.MustParseAddr("10.98.0.1")); err != nil {
		t.Fatal(err)
	}
	listenIn(t, world, "198.51.100.1:80")
	waitReachable(t, "a server of the internet", inNetNS(t, process.Process.Pid), "198.51.100.1:80", true)
	if err := destroyVPC(file, n.Link); err != nil {
		t.Fatal(err)
	}
	if out, err := runFilter("", "iptables", "-S", dockerChain); err != nil || strings.Contains(out, n.Link) {
		t.Errorf("rules of Docker's chain after destroyVPC: %q, error %v", out, err)
	}
}

func TestIPv6Ranges(t *testing.T) {
	n := labNetwork(98, "csim-test", Internet{})
	all := []netip.Prefix{n.in6(n.Router).Masked()}
	for _, a := range []string{"10.98.0.1", "10.98.0.2", "10.98.1.0"} {
		all = append(all, n.pods6(netip.MustParseAddr(a)))
	}
	for i, p := range all {
		if !n.vpc6().Overlaps(p) || slices.ContainsFunc(all[:i], p.Overlaps) {
			t.Errorf("%s overlaps another range or is outside of %s: %v", p, n.vpc6(), all)
		}
	}
	if other := labNetwork(100, "csim-test", Internet{}); n.vpc6().Overlaps(other.vpc6()) {
		t.Errorf("two labs have the range %s", n.vpc6())
	}
}

// The error of runFilter contains the first lines of stderr, because nft prints the
// reason in the first line.
func TestFilterError(t *testing.T) {
	_, err := runFilter("", "sh", "-c", "for i in one two three four; do echo $i >&2; done; exit 1")
	if err == nil || !strings.HasSuffix(err.Error(), ": one\ntwo\nthree") {
		t.Errorf("got the error %q", err)
	}
}

func TestNoSuchRoute(t *testing.T) {
	for err, want := range map[error]bool{
		unix.ESRCH: true, unix.EOPNOTSUPP: true, unix.EAFNOSUPPORT: true, unix.EPERM: false, unix.ENODEV: false, nil: false,
	} {
		if got := isNoSuchRoute(err); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
}
