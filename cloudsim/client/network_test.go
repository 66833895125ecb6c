package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// everyNetworkVerb calls the operations of networks, subnets, routes and network interfaces for
// TestEveryVerb.
func everyNetworkVerb(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	n := must(c.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "shop", IPv4: "10.10.0.0/16", IPv6: "fd10::/48"}))(t)
	if diff := cmp.Diff(n, must(c.GetNetwork(ctx, n.ID))(t)); diff != "" {
		t.Errorf("GetNetwork differs from CreateNetwork: %s", diff)
	}
	if l := must(c.ListNetworks(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 2 || !l.Items[0].Default {
		t.Errorf("networks: got %+v, want the default network and the new network", l.Items)
	}
	spec := cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: "10.11.0.0/16"}}
	n2 := must(c.UpdateNetwork(ctx, n.ID, cloudsim.UpdateNetwork{NetworkSpec: spec}, n.Revision))(t)
	if n2.PodRanges.IPv4Mask != 24 {
		t.Errorf("updated network: got %+v, want IPv4 mask 24", n2)
	}
	if _, err := c.UpdateNetwork(ctx, n.ID, cloudsim.UpdateNetwork{}, n.Revision); !errors.Is(err, cloudsim.Stale) {
		t.Errorf("update with an old revision: got error %v, want Stale", err)
	}
	s := must(c.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: "shop-a", Network: n.ID, Zone: "sim-1a", IPv4: "10.10.1.0/24"}))(t)
	if diff := cmp.Diff(s, must(c.GetSubnet(ctx, s.ID))(t)); diff != "" {
		t.Errorf("GetSubnet differs from CreateSubnet: %s", diff)
	}
	if l := must(c.ListSubnets(ctx, cloudsim.ListOptions{Network: n.ID}))(t); len(l.Items) != 1 {
		t.Errorf("subnets of the network: got %+v, want 1", l.Items)
	}
	i := must(c.CreateInstance(ctx, cloudsim.CreateInstance{Name: "till", Zone: "sim-1a", Type: "small", Subnet: s.ID}))(t)
	if i.InternalIP() != "10.10.1.2" || i.Network != n.ID || !cmp.Equal(i.PodRanges, []string{"10.11.0.0/24"}) {
		t.Errorf("instance: got %+v, want IP 10.10.1.2 and pod range 10.11.0.0/24", i)
	}
	if i = must(c.AttachNetwork(ctx, i.ID, cloudsim.AttachNetwork{Network: "net-000001"}))(t); len(i.NetworkInterfaces) != 1 || i.NetworkInterfaces[0].Network != "net-000001" {
		t.Errorf("network interfaces: got %+v, want one in the default network", i.NetworkInterfaces)
	}
	if i = must(c.DetachNetwork(ctx, i.ID, cloudsim.DetachNetwork{Network: "net-000001"}))(t); len(i.NetworkInterfaces) != 0 {
		t.Errorf("network interfaces after the detachment: got %+v", i.NetworkInterfaces)
	}
	if l := must(c.ListInstances(ctx, cloudsim.ListOptions{Network: n.ID}))(t); len(l.Items) != 1 {
		t.Errorf("instances of the network: got %+v, want 1", l.Items)
	}
	r := must(c.CreateRoute(ctx, cloudsim.CreateRoute{Name: "pods", Destination: i.PodRanges[0], NextHop: i.ID, Labels: map[string]string{"cluster": "a"}}))(t)
	if r.State != cloudsim.RouteActive || r.Network != n.ID {
		t.Errorf("route: got %+v, want state active in the network of the instance", r)
	}
	if diff := cmp.Diff(r, must(c.GetRoute(ctx, r.ID))(t)); diff != "" {
		t.Errorf("GetRoute differs from CreateRoute: %s", diff)
	}
	for o, want := range map[*cloudsim.ListOptions]int{
		{Network: n.ID}: 1, {Network: "net-000001"}: 0, {Labels: map[string]string{"cluster": "a"}}: 1, {Labels: map[string]string{"cluster": "b"}}: 0,
	} {
		if l := must(c.ListRoutes(ctx, *o))(t); len(l.Items) != want {
			t.Errorf("routes with the options %+v: got %+v, want %d", o, l.Items, want)
		}
	}
	must(c.DeleteRoute(ctx, r.ID))(t)
	if _, err := c.GetRoute(ctx, r.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("GetRoute after the deletion: got error %v, want NotFound", err)
	}
	if _, err := c.DeleteSubnet(ctx, s.ID); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("deletion of a used subnet: got error %v, want Conflict", err)
	}
	must(c.DeleteInstance(ctx, i.ID))(t)
	must(c.DeleteSubnet(ctx, s.ID))(t)
	must(c.DeleteNetwork(ctx, n.ID))(t)
	if _, err := c.GetNetwork(ctx, n.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("GetNetwork after the deletion: got error %v, want NotFound", err)
	}
}
