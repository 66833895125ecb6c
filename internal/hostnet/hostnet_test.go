package hostnet_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/cloudsim-dev/allinone/internal/hostnet"
)

func contains(all []netip.Prefix, ip string) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr(ip)) })
}

// The results of Addresses and Routes contain every address of this machine's
// interfaces. These results do not contain addresses of documentation ranges.
func TestThisMachine(t *testing.T) {
	own, err := hostnet.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	routes, err := hostnet.Routes()
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip := netip.MustParsePrefix(a.String()).Addr().String()
		if !contains(own, ip) || !contains(routes, ip) {
			t.Errorf("%s of an interface: own address %t, in a route %t; want both", ip, contains(own, ip), contains(routes, ip))
		}
	}
	for _, ip := range []string{"198.51.100.1", "2001:db8::1"} {
		if contains(own, ip) || contains(routes, ip) {
			t.Errorf("%s is not an address of this machine and not in its routes: %v, %v", ip, own, routes)
		}
	}
}
