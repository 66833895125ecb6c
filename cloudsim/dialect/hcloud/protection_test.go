package hcloud_test

import (
	"context"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// protectionCalls makes the calls that protect resources against deletion. It proves that a
// caller cannot delete a protected resource, and that a resource stays protected after a change
// of its labels.
func protectionCalls(t *testing.T, w *world) {
	ctx := context.Background()
	at := &sdk.Location{Name: "sim-1a"}
	s := w.server(t, w.instance(t, "node-1"))
	disk, resp, err := w.Volume.Create(ctx, sdk.VolumeCreateOpts{Name: "data", Size: 10, Location: at})
	v := must(t, disk, resp, err).Volume
	n, resp, err := w.Network.Create(ctx, sdk.NetworkCreateOpts{Name: "net", IPRange: cidr("10.20.0.0/16")})
	must(t, n, resp, err)
	made, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{Name: "front", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, Location: at})
	l := must(t, made, resp, err).LoadBalancer
	labels := map[string]string{"a": "b"}

	for kind, of := range map[string]struct {
		change func(on *bool) (*sdk.Action, *sdk.Response, error)
		update func() error
		shown  func() (bool, error)
		remove func() error
	}{
		"server": {
			func(on *bool) (*sdk.Action, *sdk.Response, error) {
				return w.Server.ChangeProtection(ctx, s, sdk.ServerChangeProtectionOpts{Delete: on, Rebuild: on})
			},
			func() error { _, _, err := w.Server.Update(ctx, s, sdk.ServerUpdateOpts{Labels: labels}); return err },
			func() (bool, error) {
				got, _, err := w.Server.GetByID(ctx, s.ID)
				return err == nil && got != nil && got.Protection.Delete && got.Protection.Rebuild, err
			},
			func() error { _, _, err := w.Server.DeleteWithResult(ctx, s); return err },
		},
		"volume": {
			func(on *bool) (*sdk.Action, *sdk.Response, error) {
				return w.Volume.ChangeProtection(ctx, v, sdk.VolumeChangeProtectionOpts{Delete: on})
			},
			func() error { _, _, err := w.Volume.Update(ctx, v, sdk.VolumeUpdateOpts{Labels: labels}); return err },
			func() (bool, error) {
				got, _, err := w.Volume.GetByID(ctx, v.ID)
				return err == nil && got != nil && got.Protection.Delete, err
			},
			func() error { _, err := w.Volume.Delete(ctx, v); return err },
		},
		"network": {
			func(on *bool) (*sdk.Action, *sdk.Response, error) {
				return w.Network.ChangeProtection(ctx, n, sdk.NetworkChangeProtectionOpts{Delete: on})
			},
			func() error { _, _, err := w.Network.Update(ctx, n, sdk.NetworkUpdateOpts{Labels: labels}); return err },
			func() (bool, error) {
				got, _, err := w.Network.GetByID(ctx, n.ID)
				return err == nil && got != nil && got.Protection.Delete, err
			},
			func() error { _, err := w.Network.Delete(ctx, n); return err },
		},
		"load balancer": {
			func(on *bool) (*sdk.Action, *sdk.Response, error) {
				return w.LoadBalancer.ChangeProtection(ctx, l, sdk.LoadBalancerChangeProtectionOpts{Delete: on})
			},
			func() error {
				_, _, err := w.LoadBalancer.Update(ctx, l, sdk.LoadBalancerUpdateOpts{Labels: labels})
				return err
			},
			func() (bool, error) {
				got, _, err := w.LoadBalancer.GetByID(ctx, l.ID)
				return err == nil && got != nil && got.Protection.Delete, err
			},
			func() error { _, err := w.LoadBalancer.Delete(ctx, l); return err },
		},
	} {
		check := func(want bool) {
			t.Helper()
			if got, err := of.shown(); err != nil || got != want {
				t.Errorf("%s: got protection %t, error %v; want %t", kind, got, err, want)
			}
		}
		set := func(on *bool) {
			t.Helper()
			a, resp, err := of.change(on)
			w.wait(t, a, resp, err)
		}
		check(false)
		set(sdk.Ptr(true))
		check(true)
		must(t, 0, nil, of.update())
		check(true)
		set(nil) // changes nothing
		check(true)
		expectError(t, of.remove(), sdk.ErrorCodeProtected)
		if kind == "server" {
			_, _, err := w.Server.ChangeProtection(ctx, s, sdk.ServerChangeProtectionOpts{Delete: sdk.Ptr(false)})
			expectError(t, err, sdk.ErrorCodeInvalidInput)
			check(true)
		}
		set(sdk.Ptr(false))
		check(false)
		must(t, 0, nil, of.remove())
	}
}
