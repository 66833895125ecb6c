package real

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Two networks of the cloud may have routes to one destination. The router uses the route of
// its own VPC, independently of the order of the routes.
func TestRouterHasRoutesOfItsNetworkOnly(t *testing.T) {
	pods := netip.MustParsePrefix("10.97.2.0/24")
	for range 20 { // repeated because map order is random
		table := newTable()
		table.fill([]cloudsim.Instance{
			{ID: "i-1", Network: "net-1", Addresses: []cloudsim.InstanceAddress{{Type: cloudsim.AddressInternal, Address: "10.98.0.2"}}},
			{ID: "i-2", Network: "net-2", Addresses: []cloudsim.InstanceAddress{{Type: cloudsim.AddressInternal, Address: "10.50.0.2"}}},
		}, []cloudsim.Route{
			{ID: "route-1", Network: "net-1", NextHop: "i-1", Destination: pods.String(), State: cloudsim.RouteActive},
			{ID: "route-2", Network: "net-2", NextHop: "i-2", Destination: pods.String(), State: cloudsim.RouteActive},
			{ID: "route-3", Network: "net-2", NextHop: "i-2", Destination: "10.97.3.0/24", State: cloudsim.RouteActive},
			{ID: "route-4", Network: "net-2", NextHop: "i-1", Destination: "10.97.4.0/24", State: cloudsim.RouteActive}, // i-1 is also in net-2
			{ID: "route-5", Network: "net-1", NextHop: "i-2", Destination: "10.97.5.0/24", State: cloudsim.RouteActive}, // i-2 is also in net-1
		})
		want := map[netip.Prefix]netip.Addr{pods: netip.MustParseAddr("10.98.0.2")}
		if got := table.activeRoutes(Network{VPC: netip.MustParsePrefix("10.98.0.0/16")}); !maps.Equal(got, want) {
			t.Fatalf("routes of the router: %v, want %v", got, want)
		}
	}
}
