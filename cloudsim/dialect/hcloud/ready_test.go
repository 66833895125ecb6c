package hcloud_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/sync/errgroup"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestParallelChanges proves that a client can change a load balancer with several calls at the
// same time, as Terraform does. The client has the default settings of Hetzner's library.
func TestParallelChanges(t *testing.T) {
	ctx := context.Background()
	w := start(t, cloudtest.WithConfig(func(c *engine.Config) { c.Profile = engine.Profile{LoadBalancer: 100 * time.Millisecond} }))
	secret, err := w.cloud.Token()
	c := sdk.NewClient(sdk.WithEndpoint(w.url+"/v1"), sdk.WithToken(must(t, secret, nil, err)))
	lb, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{Name: "l", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, Location: &sdk.Location{Name: "sim-1a"}})
	l := must(t, lb, resp, err).LoadBalancer
	w.wait(t, lb.Action, nil, nil)
	var calls errgroup.Group
	change := func(fn func() (*sdk.Action, *sdk.Response, error)) {
		calls.Go(func() error {
			a, _, err := fn()
			if err != nil {
				return err
			}
			return c.Action.WaitFor(ctx, a)
		})
	}
	change(func() (*sdk.Action, *sdk.Response, error) {
		return c.LoadBalancer.AddService(ctx, l, sdk.LoadBalancerAddServiceOpts{Protocol: sdk.LoadBalancerServiceProtocolTCP, ListenPort: sdk.Ptr(80), DestinationPort: sdk.Ptr(8080)})
	})
	s := newServer(t, w, "s")
	change(func() (*sdk.Action, *sdk.Response, error) {
		return c.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: s})
	})
	calls.Go(func() error {
		_, _, err := c.LoadBalancer.Update(ctx, l, sdk.LoadBalancerUpdateOpts{Labels: map[string]string{"a": "b"}})
		return err
	})
	if err := calls.Wait(); err != nil {
		t.Fatal(err)
	}
	l, resp, err = w.LoadBalancer.GetByID(ctx, l.ID)
	if must(t, l, resp, err); len(l.Services) != 1 || len(l.Targets) != 1 || l.Labels["a"] != "b" {
		t.Errorf("got %d services, %d targets, labels %v; want one service, one target and the label", len(l.Services), len(l.Targets), l.Labels)
	}
}

// TestReadyAfterTheAnswer makes calls for which Hetzner's client returns no action. It proves that
// the cloud has ended the work of each call before the dialect answers. Otherwise, the next call of
// the client could fail.
func TestReadyAfterTheAnswer(t *testing.T) {
	ctx := context.Background()
	w := start(t, cloudtest.WithProfile(engine.Realistic))
	for range 2 { // the second time with the same names
		n := newNetworkOf(t, w, "n", "10.60.0.0/16")
		a, resp, err := w.Network.ChangeProtection(ctx, n, sdk.NetworkChangeProtectionOpts{Delete: sdk.Ptr(false)})
		w.wait(t, a, resp, err)
		v, resp, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "v", Size: 10, Location: &sdk.Location{Name: "sim-1a"}})
		w.wait(t, must(t, v, resp, err).Action, nil, nil)
		lb, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{Name: "l", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, Location: &sdk.Location{Name: "sim-1a"}})
		l := must(t, lb, resp, err).LoadBalancer
		w.wait(t, lb.Action, nil, nil)
		l, resp, err = w.LoadBalancer.Update(ctx, l, sdk.LoadBalancerUpdateOpts{Labels: map[string]string{"a": "b"}})
		must(t, l, resp, err)
		a, resp, err = w.LoadBalancer.ChangeAlgorithm(ctx, l, sdk.LoadBalancerChangeAlgorithmOpts{Type: sdk.LoadBalancerAlgorithmTypeLeastConnections})
		w.wait(t, a, resp, err)
		for _, remove := range []func() (*sdk.Response, error){
			func() (*sdk.Response, error) { return w.LoadBalancer.Delete(ctx, l) },
			func() (*sdk.Response, error) { return w.Volume.Delete(ctx, v.Volume) },
			func() (*sdk.Response, error) { return w.Network.Delete(ctx, n) },
		} {
			resp, err := remove()
			must(t, 0, resp, err)
		}
	}
}

// TestTooManyVolumes tries to attach a volume to a server that already has the maximum number of
// volumes. It proves that the error has the code that Hetzner's CSI driver expects. Then it tries
// to create a volume for this server, and proves that no volume remains.
func TestTooManyVolumes(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	s := newServer(t, w, "s")
	var v *sdk.Volume
	for n := range 9 {
		made, resp, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: fmt.Sprintf("v-%d", n), Size: 10, Location: &sdk.Location{Name: "sim-1a"}})
		v = must(t, made, resp, err).Volume
		a, resp, err := w.Volume.Attach(ctx, v, s)
		if n == 8 { // the type small has at most 8 disks
			expectError(t, err, "limit_exceeded_error")
			break
		}
		w.wait(t, a, resp, err)
	}
	_, _, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "more", Size: 10, Server: s})
	expectError(t, err, "limit_exceeded_error")
	all, _, err := cloudsim.All(ctx, w.cloud.ListDisks, cloudsim.ListOptions{})
	for _, d := range must(t, all, nil, err) {
		if d.Name == "more" && d.State != cloudsim.DiskDeleting {
			t.Errorf("volume after a failed creation: got %+v, want none", d)
		}
	}
}

// TestFailedNetworkCreation proves that no network remains after its creation has failed. The first
// creation has an invalid subnet. In the second creation, the cloud creates the subnet, but a fault
// makes the cloud answer with an error.
func TestFailedNetworkCreation(t *testing.T) {
	ctx := context.Background()
	w := start(t, cloudtest.WithProfile(engine.Realistic))
	create := func(subnets ...string) error {
		o := sdk.NetworkCreateOpts{Name: "n", IPRange: cidr("10.60.0.0/16")}
		for _, s := range subnets {
			o.Subnets = append(o.Subnets, sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, NetworkZone: "sim-1", IPRange: cidr(s)})
		}
		_, _, err := w.Network.Create(ctx, o)
		networks, listErr := w.Network.All(ctx)
		for _, n := range must(t, networks, nil, listErr) {
			if n.Name == "n" {
				t.Errorf("network after a failed creation: got %+v, want none", n)
			}
		}
		return err
	}
	expectError(t, create("10.60.1.0/24", "10.61.0.0/24"), "invalid_input")
	if _, err := w.cloud.CreateFault(ctx, cloudsim.CreateFault{Name: "late", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "subnets.create"}, When: cloudsim.FaultWhen{Max: 1}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultErrorAfterCommit},
	}}); err != nil {
		t.Fatal(err)
	}
	if err := create("10.60.1.0/24"); err == nil {
		t.Error("creation of a network with a fault: got no error")
	}
}

// TestFailedVolumeCreation proves that no volume remains after its creation has failed. This is
// true even if the cloud attached the volume before it answered with an error.
func TestFailedVolumeCreation(t *testing.T) {
	ctx := context.Background()
	w := start(t, cloudtest.WithProfile(engine.Realistic))
	s := w.server(t, w.instance(t, "node-1"))
	if _, err := w.cloud.CreateFault(ctx, cloudsim.CreateFault{Name: "late", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "disks.attach"}, When: cloudsim.FaultWhen{Max: 1}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultErrorAfterCommit},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "data", Size: 10, Server: s}); err == nil {
		t.Error("creation of a volume with a fault: got no error")
	}
	if all, err := w.Volume.All(ctx); err != nil || len(all) != 0 {
		t.Errorf("volumes after a failed creation: got %v, error %v; want none", all, err)
	}
}
