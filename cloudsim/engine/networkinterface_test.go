package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func idsIn(t *testing.T, ctx context.Context, e *engine.Engine, n cloudsim.NetworkID) (all []cloudsim.InstanceID) {
	t.Helper()
	for _, i := range must(e.ListInstances(ctx, cloudsim.ListOptions{Network: n}))(t).Items {
		all = append(all, i.ID)
	}
	return all
}

// TestAttachNetwork proves that an instance gets one address of each family in an additional
// network, and keeps its first network. The addresses are free again after the detachment, and
// after the termination of the instance.
func TestAttachNetwork(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	n, s := shop(t, e, ctx)
	standard := must(e.ListNetworks(ctx, cloudsim.ListOptions{Name: cloudsim.DefaultNetwork}))(t).Items[0]
	must(e.UpdateNetwork(ctx, standard.ID, cloudsim.UpdateNetwork{NetworkSpec: cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: "10.244.0.0/16"}}}, 0))(t)
	before := must(e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"}))(t)
	req := cloudsim.AttachNetwork{Network: n.ID}
	i := must(e.AttachNetwork(ctx, before.ID, req))(t)
	want := []cloudsim.NetworkInterface{{Network: n.ID, Subnet: s.ID, Addresses: []string{"10.10.1.2", "fd10:0:0:1::2"}}}
	if diff := cmp.Diff(want, i.NetworkInterfaces) + cmp.Diff(before.Addresses, i.Addresses) + cmp.Diff(before.PodRanges, i.PodRanges); diff != "" || i.Network != before.Network || i.Operation != before.Operation {
		t.Errorf("instance after AttachNetwork: got %+v, want a new interface and no other change (-want +got):\n%s", i, diff)
	}
	if repeated := must(e.AttachNetwork(ctx, i.ID, req))(t); repeated.Revision != i.Revision {
		t.Errorf("repeated request: got revision %d, want %d", repeated.Revision, i.Revision)
	}
	if diff := cmp.Diff([]cloudsim.InstanceID{i.ID}, idsIn(t, ctx, e, n.ID)) + cmp.Diff([]cloudsim.InstanceID{i.ID}, idsIn(t, ctx, e, before.Network)); diff != "" {
		t.Errorf("ids of ListInstances in the attached network and in the first network (-want +got):\n%s", diff)
	}
	_, err := e.DeleteSubnet(ctx, s.ID)
	expectError(t, err, cloudsim.Conflict, string(i.ID))
	// The instance has no pod range from this network, so the pod ranges of the network can change.
	must(e.UpdateNetwork(ctx, n.ID, cloudsim.UpdateNetwork{}, 0))(t)
	other := must(e.CreateInstance(ctx, in("b", s.ID)))(t)
	if diff := cmp.Diff([]string{"10.10.1.3", "fd10:0:0:1::3"}, ips(other)); diff != "" {
		t.Errorf("addresses of another instance: %s", diff)
	}
	must(e.DetachNetwork(ctx, i.ID, cloudsim.DetachNetwork{Network: n.ID}))(t)
	if i = must(e.DetachNetwork(ctx, i.ID, cloudsim.DetachNetwork{Network: n.ID}))(t); len(i.NetworkInterfaces) != 0 {
		t.Errorf("interfaces after the detachment: %+v", i.NetworkInterfaces)
	}
	i = must(e.AttachNetwork(ctx, i.ID, cloudsim.AttachNetwork{Network: n.ID, Subnet: s.ID, Address: "10.10.1.2"}))(t)
	if unchanged := must(e.AttachNetwork(ctx, i.ID, cloudsim.AttachNetwork{Network: n.ID, Address: "fd10:0000::1:0:0:0:2"}))(t); unchanged.Revision != i.Revision {
		t.Errorf("repeated request with another form of the address: got revision %d, want %d", unchanged.Revision, i.Revision)
	}
	must(e.DeleteInstance(ctx, i.ID))(t)
	must(e.DeleteInstance(ctx, other.ID))(t)
	last := must(e.CreateInstance(ctx, in("c", s.ID)))(t)
	if diff := cmp.Diff([]string{"10.10.1.2", "fd10:0:0:1::2"}, ips(last)); diff != "" {
		t.Errorf("addresses of a new instance after the termination (-want +got):\n%s", diff)
	}
}

// TestAttachNetworkRefusals proves that a refused attachment takes no address, and that the error
// contains the reason.
func TestAttachNetworkRefusals(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	n, s := shop(t, e, ctx)
	i := must(e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"}))(t)
	other := must(e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "b", Zone: "sim-1b", Type: "small"}))(t)
	attach := func(id cloudsim.InstanceID, req cloudsim.AttachNetwork, kind cloudsim.Kind, words ...string) {
		t.Helper()
		_, err := e.AttachNetwork(ctx, id, req)
		expectError(t, err, kind, words...)
	}
	attach(i.ID, cloudsim.AttachNetwork{}, cloudsim.Invalid, "network", "required")
	attach(i.ID, cloudsim.AttachNetwork{Network: "net-00ffff"}, cloudsim.Invalid, "network", "does not exist")
	attach(i.ID, cloudsim.AttachNetwork{Network: n.ID, Subnet: i.Subnet}, cloudsim.Invalid, "subnet", string(i.Network))
	attach(i.ID, cloudsim.AttachNetwork{Network: n.ID, Address: "x"}, cloudsim.Invalid, "address")
	attach(i.ID, cloudsim.AttachNetwork{Network: n.ID, Address: "10.10.2.2"}, cloudsim.Invalid, "address", string(s.ID))
	attach(i.ID, cloudsim.AttachNetwork{Network: n.ID, Address: "10.10.1.1"}, cloudsim.Invalid, "address", "reserved")
	attach(other.ID, cloudsim.AttachNetwork{Network: n.ID}, cloudsim.Invalid, "network", "sim-1b")
	attach("i-00ffff", cloudsim.AttachNetwork{Network: n.ID}, cloudsim.NotFound)
	attach(i.ID, cloudsim.AttachNetwork{Network: i.Network, Address: "127.64.0.99"}, cloudsim.Conflict, "already in network")
	if unchanged := must(e.AttachNetwork(ctx, i.ID, cloudsim.AttachNetwork{Network: i.Network}))(t); unchanged.Revision != i.Revision {
		t.Errorf("attachment to the first network: got revision %d, want %d", unchanged.Revision, i.Revision)
	}
	// The variable far contains an address after the first /64 of the subnet's range. The store's
	// list of used addresses covers only the first /64, so the engine searches all instances for
	// this address.
	wide := must(e.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "wide", IPv4: "10.20.0.0/24", IPv6: "fd20::/48"}))(t)
	must(e.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: "wide", Network: wide.ID, IPv4: "10.20.0.0/24", IPv6: "fd20::/48"}))(t)
	far := cloudsim.AttachNetwork{Network: wide.ID, Address: "fd20:0:0:9::9"}
	must(e.AttachNetwork(ctx, i.ID, far))(t)
	attach(other.ID, far, cloudsim.Conflict, "fd20:0:0:9::9")
	for k := 1; k < cloudsim.MaxNetworkInterfaces; k++ {
		r := fmt.Sprintf("10.3%d.0.0/24", k)
		m := must(e.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: fmt.Sprint("m", k), IPv4: r}))(t)
		must(e.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: fmt.Sprint("m", k), Network: m.ID, IPv4: r}))(t)
		must(e.AttachNetwork(ctx, i.ID, cloudsim.AttachNetwork{Network: m.ID}))(t)
	}
	attach(i.ID, cloudsim.AttachNetwork{Network: n.ID}, cloudsim.Exhausted, "maximum")
	_, err := e.DetachNetwork(ctx, i.ID, cloudsim.DetachNetwork{Network: i.Network})
	expectError(t, err, cloudsim.Conflict, "first network")
	_, err = e.DetachNetwork(ctx, i.ID, cloudsim.DetachNetwork{})
	expectError(t, err, cloudsim.Invalid, "network", "required")
	if got := must(e.CreateInstance(ctx, in("c", s.ID)))(t); got.InternalIP() != "10.10.1.2" {
		t.Errorf("address after refused attachments: got %s, want 10.10.1.2", got.InternalIP())
	}
}

// TestRouteFollowsNetworkInterface proves that an instance can be the next hop of a route in an
// additional network. The route is a blackhole while the instance is not in this network.
func TestRouteFollowsNetworkInterface(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), instant, func(c *engine.Config) { c.Profile.Network = time.Second })
		defer down()
		settle := func() {
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		n := must(e.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "shop", IPv4: "10.10.0.0/16"}))(t)
		settle()
		must(e.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: "shop-a", Network: n.ID, IPv4: "10.10.1.0/24"}))(t)
		settle()
		i := must(e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"}))(t)
		req := cloudsim.CreateRoute{Name: "r", Network: n.ID, Destination: "192.168.7.0/24", NextHop: i.ID}
		_, err := e.CreateRoute(ctx, req)
		expectError(t, err, cloudsim.Invalid, "nextHop", string(n.ID))
		attach := func() {
			t.Helper()
			must(e.AttachNetwork(ctx, i.ID, cloudsim.AttachNetwork{Network: n.ID}))(t)
		}
		detach := func() {
			t.Helper()
			must(e.DetachNetwork(ctx, i.ID, cloudsim.DetachNetwork{Network: n.ID}))(t)
		}
		attach()
		r := must(e.CreateRoute(ctx, req))(t)
		state := func(want cloudsim.RouteState) {
			t.Helper()
			if got := must(e.GetRoute(ctx, r.ID))(t); got.State != want || got.Network != n.ID {
				t.Errorf("route: got %+v, want state %s", got, want)
			}
		}
		state(cloudsim.RouteCreating)
		detach()
		settle()
		state(cloudsim.RouteBlackhole)
		attach()
		state(cloudsim.RouteActive)
		detach()
		state(cloudsim.RouteBlackhole)
		must(e.StopInstance(ctx, i.ID))(t)
		attach()
		state(cloudsim.RouteBlackhole)
		must(e.StartInstance(ctx, i.ID))(t)
		state(cloudsim.RouteActive)
	})
}
