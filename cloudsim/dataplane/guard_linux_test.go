package dataplane

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inOwnNetwork moves the calling thread into a new network namespace.
func inOwnNetwork(t *testing.T) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("cannot create a network namespace: ", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// claimRanges takes over a route that a killed process of this program has left. It returns a
// function that deletes the route. This function does not delete a route of another program or of a
// running process of this program.
func TestClaimOfExistingRoutes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to create a network namespace")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	inOwnNetwork(t)
	log := slog.New(slog.DiscardHandler)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ claimed, ip string }{{"2001:db8:7::/64", "2001:db8:7::9"}, {"203.0.113.0/24", "203.0.113.9"}} {
		p := netip.MustParsePrefix(tc.claimed)
		take := func() (release func()) {
			t.Helper()
			release, err := claimRanges(log, []netip.Prefix{p})
			if err != nil {
				t.Fatal(err)
			}
			if !isLocal(tc.ip) {
				t.Fatalf("%s is not local, want local", tc.ip)
			}
			return release
		}
		for _, left := range []struct {
			by    netlink.RouteProtocol
			stays bool
		}{{claimProtocol, false}, {unix.RTPROT_BOOT, true}, {unix.RTPROT_STATIC, true}} {
			r := &netlink.Route{
				LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: left.by,
				Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
			}
			if err := netlink.RouteAdd(r); err != nil {
				t.Fatal(err)
			}
			take()()
			if isLocal(tc.ip) != left.stays {
				t.Errorf("route %s of protocol %d exists: %v, want %v", tc.claimed, left.by, !left.stays, left.stays)
			}
			if left.stays {
				if err := netlink.RouteDel(r); err != nil {
					t.Fatal(err)
				}
			}
		}
		first, second := take(), take()
		if second(); !isLocal(tc.ip) {
			t.Errorf("the second process released the range %s of the first process", tc.claimed)
		}
		if first(); isLocal(tc.ip) {
			t.Errorf("%s is local after both releases", tc.claimed)
		}
	}
}
