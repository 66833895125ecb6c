package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
)

// With ShowClients, targets see the addresses of IPv4 clients. They do not see the addresses of
// IPv6 clients, loopback clients and clients in HideClients. Targets with IPv6
// addresses see no client addresses. Without ShowClients, no target sees a client address.
func TestClientAddressesAtTargets(t *testing.T) {
	inside := dataplane.Config{ShowClients: true, HideClients: []netip.Prefix{netip.MustParsePrefix("10.100.0.0/16")}}
	for _, tc := range []struct {
		cfg    dataplane.Config
		client string
		target string
		shown  bool
	}{
		{inside, "198.51.100.2", "10.100.0.5", true},
		{inside, "::ffff:198.51.100.2", "10.100.0.5", true},
		{inside, "10.100.3.4", "10.100.0.5", false},
		{inside, "127.0.0.1", "10.100.0.5", false},
		{inside, "2001:db8::1", "10.100.0.5", false},
		{inside, "198.51.100.2", "fd00::5", false},
		{dataplane.Config{}, "198.51.100.2", "10.100.0.5", false},
	} {
		if got := tc.cfg.Source(netip.MustParseAddr(tc.client), netip.MustParseAddr(tc.target)); got.IsValid() != tc.shown || tc.shown && got.Addr().String() != "198.51.100.2" {
			t.Errorf("source address for the client %s and the target %s: got %v", tc.client, tc.target, got)
		}
	}
}
