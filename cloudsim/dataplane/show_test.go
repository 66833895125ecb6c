package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
)

// With ShowClients, targets see the addresses of IPv4 clients. They do not see the addresses of
// IPv6 clients, loopback clients and clients in HideClients. Without ShowClients, targets see no
// client addresses.
func TestClientAddressesAtTargets(t *testing.T) {
	inside := dataplane.Config{ShowClients: true, HideClients: []netip.Prefix{netip.MustParsePrefix("10.100.0.0/16")}}
	for _, tc := range []struct {
		cfg    dataplane.Config
		client string
		shown  bool
	}{
		{inside, "198.51.100.2", true},
		{inside, "::ffff:198.51.100.2", true},
		{inside, "10.100.3.4", false},
		{inside, "127.0.0.1", false},
		{inside, "2001:db8::1", false},
		{dataplane.Config{}, "198.51.100.2", false},
	} {
		if got := tc.cfg.Source(netip.MustParseAddr(tc.client)); got.IsValid() != tc.shown || tc.shown && got.Addr().String() != "198.51.100.2" {
			t.Errorf("source address for the client %s: got %v", tc.client, got)
		}
	}
}
