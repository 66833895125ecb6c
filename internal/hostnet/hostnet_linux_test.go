package hostnet_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/internal/hostnet"
)

// The test runs in a new network namespace. The namespace has an interface with an IPv4 and an IPv6
// address. It also has a normal default route and a default route of the type local. With the local
// default route, the kernel treats every address as an address of this machine. Addresses must
// return only the loopback addresses and the addresses of the interface. Routes must return these
// addresses and the networks of the interface. Addresses and Routes must not return an address that
// only a default route covers.
func TestAddressesAndRoutes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	runtime.LockOSThread() // the thread ends with the test, because the test does not unlock it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("this machine allows no new network namespace: %v", err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	up := func(name string) netlink.Link {
		t.Helper()
		link, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(link))
		return link
	}
	lo := up("lo")
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"}))
	up("peer")
	eth0 := up("eth0")
	networks := []string{"192.0.2.1/24"}
	_, err := os.Stat("/proc/net/if_inet6")
	hasIPv6 := err == nil
	if hasIPv6 {
		networks = append(networks, "2001:db8::1/64")
	}
	for _, n := range networks {
		address, err := netlink.ParseAddr(n)
		must(err)
		address.Flags = unix.IFA_F_NODAD // without this flag, the kernel uses an IPv6 address only after a second
		must(netlink.AddrAdd(eth0, address))
	}
	_, all, err := net.ParseCIDR("0.0.0.0/0")
	must(err)
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: all, Gw: net.IPv4(192, 0, 2, 254)}))
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all, Type: unix.RTN_LOCAL, Table: 100, Scope: netlink.SCOPE_HOST}))

	contains := func(ranges []netip.Prefix, ip string) bool {
		return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr(ip)) })
	}
	eventually.Empty(t, func() (difference string) { // the kernel adds the route of an IPv6 address in the background
		own, err := hostnet.Addresses()
		must(err)
		routes, err := hostnet.Routes()
		must(err)
		for _, tc := range []struct {
			ip              string
			isOwn, hasRoute bool
		}{
			{"127.0.0.1", true, true},
			{"192.0.2.1", true, true},
			{"192.0.2.2", false, true},
			{"198.51.100.1", false, false},
			{"2001:db8::1", hasIPv6, hasIPv6},
			{"2001:db8::2", false, hasIPv6},
			{"2001:db8:1::1", false, false},
		} {
			if contains(own, tc.ip) != tc.isOwn || contains(routes, tc.ip) != tc.hasRoute {
				difference += fmt.Sprintf("%s: want own address %t, in a route %t. Own addresses: %v, routes: %v\n", tc.ip, tc.isOwn, tc.hasRoute, own, routes)
			}
		}
		return difference
	})
}
