package real

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
)

// Machines cache the hardware address of the router, so this address must not change. The router's
// interface is a bridge. Without a fixed hardware address, a bridge can change its address when it
// gets another port.
func TestRouterKeepsItsHardwareAddress(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	file := filepath.Join(t.TempDir(), "vpc")
	n := Network{
		VPC: netip.MustParsePrefix("10.98.0.0/16"), Router: netip.MustParseAddr("10.98.0.1"), Host: netip.MustParseAddr("10.98.255.254"),
		LoadBalancers: netip.MustParsePrefix("10.98.128.0/17"), Pods: netip.MustParsePrefix("10.97.0.0/16"), Link: "vpc-test",
	}
	t.Cleanup(func() {
		if err := destroyVPC(file, n.Link); err != nil {
			t.Error(err)
		}
	})
	v, err := openVPC(file, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.close() })
	router := func() net.HardwareAddr {
		t.Helper()
		bridge, err := v.link.LinkByName(bridgeName)
		if err != nil {
			t.Fatal(err)
		}
		return bridge.Attrs().HardwareAddr
	}
	before := router()
	// A bridge without its own hardware address would take the address of this port, because
	// this address is the lowest.
	port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "low", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0}}, PeerName: "peer"}
	if err := errors.Join(v.link.LinkAdd(port), v.bridge.plug("low")); err != nil {
		t.Fatal(err)
	}
	if after := router(); !bytes.Equal(after, before) {
		t.Errorf("the link address of the router changed from %s to %s with another machine", before, after)
	}
}
