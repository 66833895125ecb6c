package hostnet_test

import (
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/hostnet"
)

// The result of Addresses contains no addresses of other machines, even if this
// machine has a default route of the type local. With this route, the kernel
// treats every address as an address of this machine. The test adds the route
// in a new network namespace.
func TestLocalDefaultRouteIsOmitted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	runtime.LockOSThread() // the thread ends with the test, because the test does not unlock it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("this machine allows no new network namespace: %v", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all, Type: unix.RTN_LOCAL, Table: 100, Scope: netlink.SCOPE_HOST}); err != nil {
		t.Fatal(err)
	}
	own, err := hostnet.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	routes, err := hostnet.Routes()
	if err != nil {
		t.Fatal(err)
	}
	if !contains(own, "127.0.0.1") || contains(own, "198.51.100.1") || contains(routes, "198.51.100.1") {
		t.Errorf("own addresses: got %v, routes: got %v; want 127.0.0.1 and no default route", own, routes)
	}
}
