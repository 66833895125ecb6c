package hcloud_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// TestRandomNetworkCalls makes random calls for the subnets and routes of a network. After each
// call, it compares the error and the network with a model.
func TestRandomNetworkCalls(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	const of = "10.50.9.0/24" // the subnet of the server
	n, resp, err := w.Network.Create(ctx, sdk.NetworkCreateOpts{
		Name: "Net", IPRange: cidr("10.50.0.0/16"), Subnets: []sdk.NetworkSubnet{{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr(of), NetworkZone: "sim-1"}},
	})
	must(t, n, resp, err)
	made, resp, err := w.Server.Create(ctx, sdk.ServerCreateOpts{
		Name: "gateway", ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}, Networks: []*sdk.Network{n},
	})
	gateway := must(t, made, resp, err).Server.PrivateNet[0].IP
	rng := rand.New(rand.NewPCG(9, 9)) //nolint:gosec // a repeatable test
	subnets, routes, label := map[string]bool{of: true}, map[string]bool{}, ""
	for step := range 200 {
		subnet := sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr(fmt.Sprintf("10.50.%d.0/24", rng.IntN(4))), NetworkZone: "sim-1"}
		route := sdk.NetworkRoute{Destination: cidr(fmt.Sprintf("10.244.%d.0/24", rng.IntN(4))), Gateway: gateway}
		in, to := subnet.IPRange.String(), route.Destination.String()
		var want sdk.ErrorCode
		op := rng.IntN(5)
		switch op {
		case 0:
			if subnets[in] {
				want = sdk.ErrorCodeUniquenessError
			}
			subnets[in] = true
			_, _, err = w.Network.AddSubnet(ctx, n, sdk.NetworkAddSubnetOpts{Subnet: subnet})
		case 1:
			if !subnets[in] {
				want = sdk.ErrorCodeNotFound
			}
			delete(subnets, in)
			_, _, err = w.Network.DeleteSubnet(ctx, n, sdk.NetworkDeleteSubnetOpts{Subnet: subnet})
		case 2:
			if routes[to] {
				want = sdk.ErrorCodeUniquenessError
			}
			routes[to] = true
			_, _, err = w.Network.AddRoute(ctx, n, sdk.NetworkAddRouteOpts{Route: route})
		case 3:
			if !routes[to] {
				want = sdk.ErrorCodeNotFound
			}
			delete(routes, to)
			_, _, err = w.Network.DeleteRoute(ctx, n, sdk.NetworkDeleteRouteOpts{Route: route})
		default:
			label = fmt.Sprint(step)
			_, _, err = w.Network.Update(ctx, n, sdk.NetworkUpdateOpts{Labels: map[string]string{"step": label}})
		}
		if want == "" && err != nil || want != "" && !sdk.IsError(err, want) {
			t.Fatalf("step %d, operation %d (%s, %s): got error %v, want code %q", step, op, in, to, err, want)
		}
		got, resp, err := w.Network.GetByID(ctx, n.ID)
		if must(t, got, resp, err); len(got.Subnets) != len(subnets) || len(got.Routes) != len(routes) || got.Labels["step"] != label || len(got.Servers) != 1 {
			t.Fatalf("step %d: got network %+v, want subnets %v and routes %v", step, got, subnets, routes)
		}
		for _, s := range got.Subnets {
			if !subnets[s.IPRange.String()] {
				t.Fatalf("step %d: got subnet %+v, want one of %v", step, s, subnets)
			}
		}
		for _, r := range got.Routes {
			if !routes[r.Destination.String()] || !r.Gateway.Equal(gateway) {
				t.Fatalf("step %d: got route %+v, want one of %v", step, r, routes)
			}
		}
	}
}
