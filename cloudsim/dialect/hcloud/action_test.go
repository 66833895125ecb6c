package hcloud_test

import (
	"context"
	"net"
	"slices"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestResourceOfNetworkActions proves that the resource of an action is the network if the action
// changes a subnet or a route of this network. If the subnet or the route is deleted, the action
// has no resource.
func TestResourceOfNetworkActions(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	newNetworkOf(t, w, "other", "10.60.0.0/16")
	n := newNetworkOf(t, w, "own", "10.61.0.0/16")
	check := func(command string, want ...sdk.ActionResource) func(*sdk.Action, *sdk.Response, error) {
		return func(a *sdk.Action, resp *sdk.Response, err error) {
			t.Helper()
			w.wait(t, a, resp, err)
			a, resp, err = w.Action.GetByID(ctx, a.ID)
			var got []sdk.ActionResource
			for _, r := range must(t, a, resp, err).Resources {
				got = append(got, *r)
			}
			if a.Command != command || !slices.Equal(got, want) {
				t.Errorf("action: got command %s and resources %+v, want %s and %+v", a.Command, got, command, want)
			}
		}
	}
	network := sdk.ActionResource{ID: n.ID, Type: "network"}
	subnet := sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr("10.61.1.0/24"), NetworkZone: "sim-1"}
	check("add_subnet", network)(w.Network.AddSubnet(ctx, n, sdk.NetworkAddSubnetOpts{Subnet: subnet}))
	s := newServer(t, w, "node-1")
	a, resp, err := w.Server.AttachToNetwork(ctx, s, sdk.ServerAttachToNetworkOpts{Network: n})
	w.wait(t, a, resp, err)
	route := sdk.NetworkRoute{Destination: cidr("10.244.1.0/24"), Gateway: net.ParseIP("10.61.1.2")}
	check("add_route", network)(w.Network.AddRoute(ctx, n, sdk.NetworkAddRouteOpts{Route: route}))
	check("delete_route")(w.Network.DeleteRoute(ctx, n, sdk.NetworkDeleteRouteOpts{Route: route}))
	a, resp, err = w.Server.DetachFromNetwork(ctx, s, sdk.ServerDetachFromNetworkOpts{Network: n})
	w.wait(t, a, resp, err)
	check("delete_subnet")(w.Network.DeleteSubnet(ctx, n, sdk.NetworkDeleteSubnetOpts{Subnet: subnet}))
}

// TestActionsWithoutPermission proves that a token without the permission to read subnets can read
// the actions of subnets. Such an action has no resource.
func TestActionsWithoutPermission(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	n := newNetworkOf(t, w, "own", "10.61.0.0/16")
	subnet := sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr("10.61.1.0/24"), NetworkZone: "sim-1"}
	a, resp, err := w.Network.AddSubnet(ctx, n, sdk.NetworkAddSubnetOpts{Subnet: subnet})
	w.wait(t, a, resp, err)
	if _, err := w.cloud.CreateRole(ctx, cloudsim.CreateRole{Name: "watcher", Permissions: []cloudsim.Permission{"operations.*"}}); err != nil {
		t.Fatal(err)
	}
	watcher := w.clientOf(t, cloudtest.As(t, w.cloud, "watcher", "watcher"))
	all, err := watcher.Action.AllWithOpts(ctx, sdk.ActionListOpts{ID: []int64{a.ID}})
	if err != nil || len(all) != 1 || all[0].Command != "add_subnet" || len(all[0].Resources) != 0 {
		t.Errorf("got actions %+v, error %v; want the action add_subnet without a resource", all, err)
	}
}
