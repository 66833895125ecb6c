package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// expectError fails the test unless err has the given kind and the text of err
// contains all given words.
func expectError(t *testing.T, err error, kind cloudsim.Kind, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("got error %v, want kind %s", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got error %q, want it to contain %q", err, w)
		}
	}
}

// shop creates a network with IPv4, IPv6 and pod ranges. It also creates a
// subnet in this network.
func shop(t *testing.T, e *engine.Engine, ctx context.Context) (cloudsim.Network, cloudsim.Subnet) {
	t.Helper()
	n := must(e.CreateNetwork(ctx, cloudsim.CreateNetwork{
		Name: "shop", IPv4: "10.10.0.0/16", IPv6: "fd10::/48",
		NetworkSpec: cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: "10.11.0.0/23", IPv6: "fd11::/56"}},
	}))(t)
	s := must(e.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: "shop-a", Network: n.ID, Zone: "sim-1a", IPv4: "10.10.1.0/29", IPv6: "fd10:0:0:1::/64"}))(t)
	return n, s
}

func in(name string, s cloudsim.SubnetID) cloudsim.CreateInstance {
	return cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small", Subnet: s}
}

func ips(i cloudsim.Instance) (all []string) {
	for _, a := range i.Addresses {
		if a.Type == cloudsim.AddressInternal {
			all = append(all, a.Address)
		}
	}
	return all
}

// TestSubnetGivesAddresses proves that an instance gets the lowest free address of each family. The
// cloud never assigns the first address, the last address or the address of the gateway. It assigns
// released addresses again.
func TestSubnetGivesAddresses(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	n, s := shop(t, e, ctx)
	if s.Gateway != "10.10.1.1" || s.GatewayIPv6 != "fd10:0:0:1::1" || s.Region != "sim-1" {
		t.Errorf("new subnet: got %+v, want gateways 10.10.1.1 and fd10:0:0:1::1 and region sim-1", s)
	}
	var last cloudsim.Instance
	for k, want := range [][]string{{"10.10.1.2", "fd10:0:0:1::2"}, {"10.10.1.3", "fd10:0:0:1::3"}} {
		last = must(e.CreateInstance(ctx, in(fmt.Sprintf("i-%d", k), s.ID)))(t)
		if diff := cmp.Diff(want, ips(last)); diff != "" || last.Network != n.ID || last.Subnet != s.ID {
			t.Errorf("new instance: got %+v, want network %s, subnet %s and these addresses (-want +got):\n%s", last, n.ID, s.ID, diff)
		}
	}
	if diff := cmp.Diff([]string{"10.11.1.0/24", "fd11:0:0:1::/64"}, last.PodRanges); diff != "" {
		t.Errorf("pod ranges of the second instance (-want +got):\n%s", diff)
	}
	_, err := e.CreateInstance(ctx, in("third", s.ID))
	expectError(t, err, cloudsim.Exhausted, "pod ranges", string(n.ID), "10.11.0.0/23")
	first := must(e.ListInstances(ctx, cloudsim.ListOptions{Network: n.ID}))(t).Items[0]
	must(e.DeleteInstance(ctx, first.ID))(t)
	third := must(e.CreateInstance(ctx, in("third", s.ID)))(t)
	if diff := cmp.Diff(ips(first), ips(third)); diff != "" || !cmp.Equal(first.PodRanges, third.PodRanges) {
		t.Errorf("instance after the release: got pod ranges %v, want %v; addresses (-want +got):\n%s", third.PodRanges, first.PodRanges, diff)
	}
	if l := must(e.ListInstances(ctx, cloudsim.ListOptions{Network: "net-000001"}))(t); len(l.Items) != 0 {
		t.Errorf("instances in the default network: got %v", l.Items)
	}
}

// TestInstanceAsksForAnAddress proves that an instance gets the address that it
// requests, and that no other instance gets this address.
func TestInstanceAsksForAnAddress(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	_, s := shop(t, e, ctx)
	ask := func(name, address string) cloudsim.CreateInstance {
		r := in(name, s.ID)
		r.Address = address
		return r
	}
	mine := must(e.CreateInstance(ctx, ask("a", "10.10.1.3")))(t)
	if diff := cmp.Diff([]string{"10.10.1.3", "fd10:0:0:1::2"}, ips(mine)); diff != "" {
		t.Error(diff)
	}
	if repeated := must(e.CreateInstance(ctx, ask("a", "10.10.1.3")))(t); repeated.ID != mine.ID {
		t.Errorf("repeated request: got %s", repeated.ID)
	}
	_, err := e.CreateInstance(ctx, ask("a", "10.10.1.4"))
	expectError(t, err, cloudsim.Exists, "address 10.10.1.3")
	_, err = e.CreateInstance(ctx, ask("b", "10.10.1.3"))
	expectError(t, err, cloudsim.Conflict, "10.10.1.3")
	for address, why := range map[string]string{
		"10.10.2.3": "not in subnet " + string(s.ID), "10.10.1.0": "reserved by its subnet", "10.10.1.1": "reserved by its subnet", "10.10.1.7": "reserved by its subnet", "fd10:0:0:1::1": "reserved by its subnet", "x": "must be an IP address",
	} {
		_, err := e.CreateInstance(ctx, ask("b", address))
		expectError(t, err, cloudsim.Invalid, "address", why)
	}
	if next := must(e.CreateInstance(ctx, in("b", s.ID)))(t); next.InternalIP() != "10.10.1.2" {
		t.Errorf("a refused request reserved an address: the next instance has %s", next.InternalIP())
	}
	must(e.DeleteInstance(ctx, mine.ID))(t)
	if last := must(e.CreateInstance(ctx, in("c", s.ID)))(t); last.InternalIP() != "10.10.1.3" {
		t.Errorf("a released address is not used again: got %s", last.InternalIP())
	}
}

// TestAnyIPv6AddressCanBeAskedFor proves that an instance can request any
// address of an IPv6 range, except the reserved addresses. The range can have
// any size. A second instance cannot get the same address.
func TestAnyIPv6AddressCanBeAskedFor(t *testing.T) {
	for ipv6, tc := range map[string]struct{ free, kept []string }{
		"fd10:0:0:1::/64": {
			free: []string{"fd10:0:0:1:5054:ff:fe12:3456", "fd10:0:0:1:4000::", "fd10:0:0:1:ffff:ffff:ffff:fffe", "fd10:0:0:1::2"},
			kept: []string{"fd10:0:0:1::", "fd10:0:0:1::1", "fd10:0:0:1:ffff:ffff:ffff:ffff"},
		},
		"fd10::/56": {
			free: []string{"fd10::5", "fd10:0:0:1::5", "fd10:0:0:2::5", "fd10::ffff:ffff:ffff:ffff", "fd10:0:0:1::", "fd10:0:0:ff:ffff:ffff:ffff:fffe"},
			kept: []string{"fd10::", "fd10::1", "fd10:0:0:ff:ffff:ffff:ffff:ffff"},
		},
		"fd10::/126": {free: []string{"fd10::2"}, kept: []string{"fd10::", "fd10::1", "fd10::3"}},
	} {
		t.Run(ipv6, func(t *testing.T) {
			ctx := engine.AsCloud(t.Context())
			e, down := boot(t, file(t), instant)
			defer down()
			n := must(e.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "n", IPv4: "10.10.0.0/16", IPv6: ipv6}))(t)
			s := must(e.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: "s", Network: n.ID, IPv4: "10.10.0.0/16", IPv6: ipv6}))(t)
			requests := 0
			ask := func(address string) (cloudsim.Instance, error) {
				requests++
				r := in(fmt.Sprintf("i-%d", requests), s.ID)
				r.Address = address
				return e.CreateInstance(ctx, r)
			}
			for range 2 { // the second round requests the addresses that the first round has released
				var all []cloudsim.Instance
				for _, address := range tc.free {
					i, err := ask(address)
					if err != nil || ips(i)[1] != prefix(t, address+"/128").Addr().String() {
						t.Fatalf("requested address %s: got %v, %v", address, ips(i), err)
					}
					all = append(all, i)
				}
				for _, address := range tc.kept {
					_, err := ask(address)
					expectError(t, err, cloudsim.Invalid, "address is reserved")
				}
				for k, last := range slices.Backward(all) {
					for _, address := range tc.free[:k+1] {
						_, err := ask(address)
						expectError(t, err, cloudsim.Conflict, "another instance")
					}
					must(e.DeleteInstance(ctx, last.ID))(t)
				}
			}
			lowest := prefix(t, ipv6).Addr().Next().Next().String()
			if i, err := ask(""); err != nil || ips(i)[1] != lowest {
				t.Errorf("lowest free address: got %v, %v; want %s", ips(i), err, lowest)
			}
		})
	}
}

// TestSubnetIsExhausted proves that the error for a subnet without a free
// address names the subnet.
func TestSubnetIsExhausted(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	n := must(e.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "tiny", IPv4: "10.10.0.0/29"}))(t)
	s := must(e.CreateSubnet(ctx, cloudsim.CreateSubnet{Name: "tiny-a", Network: n.ID, IPv4: "10.10.0.0/30"}))(t)
	if i := must(e.CreateInstance(ctx, in("a", s.ID)))(t); i.InternalIP() != "10.10.0.2" {
		t.Errorf("address of an instance in a /30: got %s", i.InternalIP())
	}
	_, err := e.CreateInstance(ctx, in("b", s.ID))
	expectError(t, err, cloudsim.Exhausted, string(s.ID), "tiny-a", "10.10.0.0/30")
	_, err = e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "b", Zone: "sim-1a", Type: "small", Network: n.ID})
	expectError(t, err, cloudsim.Exhausted, "tiny-a")
}

// TestNetworkRefusals proves that the error for an invalid request names the
// invalid field, and that the request changes nothing.
func TestNetworkRefusals(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	n, s := shop(t, e, ctx)
	other := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: "other"}))(t)
	abroad := must(e.Authorize(t.Context(), engine.Request{Secret: "secret", Project: string(other.ID), Access: engine.Write}))(t)
	before := must(e.ListNetworks(ctx, cloudsim.ListOptions{}))(t).Revision
	network := func(req cloudsim.CreateNetwork) error { _, err := e.CreateNetwork(ctx, req); return err }
	subnet := func(ctx context.Context, req cloudsim.CreateSubnet) error {
		req.Name, req.Network = "new", n.ID
		_, err := e.CreateSubnet(ctx, req)
		return err
	}
	instance := func(ctx context.Context, req cloudsim.CreateInstance) error {
		req.Name, req.Type = "new", "small"
		_, err := e.CreateInstance(ctx, req)
		return err
	}
	for name, tc := range map[string]struct {
		err   error
		kind  cloudsim.Kind
		words []string
	}{
		"overlaps a network":                           {network(cloudsim.CreateNetwork{Name: "b", IPv4: "10.10.128.0/17"}), cloudsim.Conflict, []string{"10.10.0.0/16", "(shop)"}},
		"overlaps the pod ranges of a network":         {network(cloudsim.CreateNetwork{Name: "b", IPv4: "10.11.0.0/16"}), cloudsim.Conflict, []string{"10.11.0.0/23"}},
		"overlaps the load balancer range":             {network(cloudsim.CreateNetwork{Name: "b", IPv4: "127.65.1.0/24"}), cloudsim.Conflict, []string{"load balancers"}},
		"overlaps default networks":                    {network(cloudsim.CreateNetwork{Name: "b", IPv4: "127.64.1.0/24"}), cloudsim.Conflict, []string{"projects"}},
		"same name with other ranges":                  {network(cloudsim.CreateNetwork{Name: "shop", IPv4: "10.20.0.0/16"}), cloudsim.Exists, []string{string(n.ID)}},
		"outside the network":                          {subnet(ctx, cloudsim.CreateSubnet{IPv4: "10.20.1.0/24"}), cloudsim.Invalid, []string{"ipv4 must be inside 10.10.0.0/16"}},
		"wider than the network":                       {subnet(ctx, cloudsim.CreateSubnet{IPv4: "10.0.0.0/8"}), cloudsim.Invalid, []string{"ipv4"}},
		"overlaps a subnet":                            {subnet(ctx, cloudsim.CreateSubnet{IPv4: "10.10.1.0/24"}), cloudsim.Conflict, []string{string(s.ID)}},
		"unknown zone":                                 {subnet(ctx, cloudsim.CreateSubnet{IPv4: "10.10.2.0/24", Zone: "mars"}), cloudsim.Invalid, []string{"zone mars does not exist"}},
		"unknown region":                               {subnet(ctx, cloudsim.CreateSubnet{IPv4: "10.10.2.0/24", Region: "mars"}), cloudsim.Invalid, []string{"region mars does not exist"}},
		"another project's network":                    {subnet(abroad, cloudsim.CreateSubnet{IPv4: "10.10.2.0/24"}), cloudsim.Invalid, []string{"network " + string(n.ID)}},
		"another project's subnet":                     {instance(abroad, cloudsim.CreateInstance{Zone: "sim-1a", Subnet: s.ID}), cloudsim.Invalid, []string{"subnet " + string(s.ID)}},
		"zone that the subnet does not serve":          {instance(ctx, cloudsim.CreateInstance{Zone: "sim-1b", Subnet: s.ID}), cloudsim.Invalid, []string{"subnet " + string(s.ID), "sim-1b"}},
		"zone that no subnet of the network serves":    {instance(ctx, cloudsim.CreateInstance{Zone: "sim-1b", Network: n.ID}), cloudsim.Invalid, []string{"network " + string(n.ID), "sim-1b"}},
		"subnet of another network":                    {instance(ctx, cloudsim.CreateInstance{Zone: "sim-1a", Network: "net-000001", Subnet: s.ID}), cloudsim.Invalid, []string{"subnet " + string(s.ID)}},
		"network with subnets":                         {errorOf(e.DeleteNetwork(ctx, n.ID)), cloudsim.Conflict, []string{string(s.ID)}},
		"default network":                              {errorOf(e.DeleteNetwork(ctx, "net-000001")), cloudsim.Conflict, []string{"delete the project instead"}},
		"default subnet":                               {errorOf(e.DeleteSubnet(ctx, "subnet-000001")), cloudsim.Conflict, []string{"delete the project instead"}},
		"pod ranges that overlap the network's ranges": {errorOf(e.UpdateNetwork(ctx, n.ID, cloudsim.UpdateNetwork{NetworkSpec: cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: "10.10.4.0/22"}}}, 0)), cloudsim.Invalid, []string{"podRanges.ipv4"}},
	} {
		t.Run(name, func(t *testing.T) { expectError(t, tc.err, tc.kind, tc.words...) })
	}
	if l := must(e.ListNetworks(ctx, cloudsim.ListOptions{}))(t); l.Revision != before {
		t.Errorf("the refused requests changed the revision to %d from %d", l.Revision, before)
	}
}

func errorOf[T any](_ T, err error) error { return err }

// TestNetworkInUse proves that a client cannot delete a network or subnet that is in use. The error
// names a resource that uses the network or subnet. After the deletion of all these resources, the
// client can delete the network.
func TestNetworkInUse(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	p := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: "other"}))(t)
	mine := must(e.Authorize(t.Context(), engine.Request{Secret: "secret", Project: string(p.ID), Access: engine.Write}))(t)
	n, s := shop(t, e, mine)
	a := must(e.CreateInstance(mine, in("a", s.ID)))(t)
	b := must(e.CreateInstance(mine, in("b", s.ID)))(t)
	spec := cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: "10.12.0.0/16"}}
	_, err := e.UpdateNetwork(mine, n.ID, cloudsim.UpdateNetwork{NetworkSpec: spec}, 0)
	expectError(t, err, cloudsim.Conflict, string(a.ID), "10.11.0.0/24")
	_, err = e.DeleteSubnet(mine, s.ID)
	expectError(t, err, cloudsim.Conflict, string(a.ID), "1 more")
	for _, i := range []cloudsim.InstanceID{a.ID, b.ID} {
		must(e.DeleteInstance(mine, i))(t)
	}
	if got := must(e.UpdateNetwork(mine, n.ID, cloudsim.UpdateNetwork{NetworkSpec: spec}, 0))(t); got.PodRanges.IPv4Mask != 24 || got.MaxRoutes != cloudsim.DefaultMaxRoutes || got.State != cloudsim.NetworkAvailable {
		t.Errorf("network after the update: got %+v, want IPv4 mask 24, the default number of routes and state available", got)
	}
	_, err = e.UpdateNetwork(mine, n.ID, cloudsim.UpdateNetwork{}, n.Revision)
	expectError(t, err, cloudsim.Stale)
	expectError(t, e.DeleteProject(ctx, p.ID), cloudsim.Conflict, string(n.ID))
	must(e.DeleteSubnet(mine, s.ID))(t)
	must(e.DeleteNetwork(mine, n.ID))(t)
	if err := e.DeleteProject(ctx, p.ID); err != nil {
		t.Error(err)
	}
	if l := must(e.ListNetworks(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 1 {
		t.Errorf("the default network exists after the deletion of its project: %+v", l.Items)
	}
}

// TestDefaultNetworksShareOneRange proves that each project has its own default network. All
// default networks take addresses from one common range, so two instances in different default
// networks never have the same address.
func TestDefaultNetworksShareOneRange(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, func(c *engine.Config) { c.Pods.IPv4 = "10.244.0.0/16" })
	defer down()
	p := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: "other"}))(t)
	abroad := must(e.Authorize(t.Context(), engine.Request{Secret: "secret", Project: string(p.ID), Access: engine.Write}))(t)
	a, b := mustCreate(t, e, ctx, "a"), mustCreate(t, e, abroad, "a")
	if a.Network == b.Network || a.InternalIP() != "127.64.0.1" || b.InternalIP() != "127.64.0.2" {
		t.Errorf("instances in two default networks: got %+v and %+v, want different networks and addresses", a, b)
	}
	if a.PodRanges[0] != "10.244.0.0/24" || b.PodRanges[0] != "10.244.1.0/24" {
		t.Errorf("pod ranges: got %v and %v, want 10.244.0.0/24 and 10.244.1.0/24 first", a.PodRanges, b.PodRanges)
	}
}

// TestConfiguredPodRangesStay proves that UpdateNetwork cannot change the pod ranges of a default
// network if the configuration contains pod ranges. Without this rule, the next start would restore
// the configured pod ranges. If an instance used one of the new pod ranges, the start would fail
// instead.
func TestConfiguredPodRangesStay(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, func(c *engine.Config) { c.Pods.IPv4 = "10.244.0.0/16" })
	defer down()
	n := must(e.ListNetworks(ctx, cloudsim.ListOptions{Name: cloudsim.DefaultNetwork}))(t).Items[0]
	_, err := e.UpdateNetwork(ctx, n.ID, cloudsim.UpdateNetwork{NetworkSpec: cloudsim.NetworkSpec{PodRanges: cloudsim.PodRanges{IPv4: "10.99.0.0/16"}}}, 0)
	expectRefused(t, "change of configured pod ranges", err, cloudsim.Invalid, "podRanges")
	req := cloudsim.UpdateNetwork{Labels: map[string]string{"a": "b"}, NetworkSpec: n.NetworkSpec}
	if got := must(e.UpdateNetwork(ctx, n.ID, req, 0))(t); got.Labels["a"] != "b" {
		t.Errorf("labels after an update with the configured pod ranges: got %v, want a=b", got.Labels)
	}
}

// TestSubnetWithFewestZones creates instances in zones that several subnets serve. It proves that
// the cloud selects the subnet that serves the fewest zones. If several subnets serve this number
// of zones, the cloud selects the oldest of them.
func TestSubnetWithFewestZones(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	n := must(e.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "n", IPv4: "10.10.0.0/16"}))(t)
	for _, s := range []cloudsim.CreateSubnet{
		{Name: "all", IPv4: "10.10.0.0/24"},
		{Name: "region", IPv4: "10.10.1.0/24", Region: "sim-1"},
		{Name: "zone", IPv4: "10.10.2.0/24", Zone: "sim-1a"},
		{Name: "zone-2", IPv4: "10.10.3.0/24", Zone: "sim-1a"},
	} {
		s.Network = n.ID
		must(e.CreateSubnet(ctx, s))(t)
	}
	for zone, want := range map[string]string{"sim-1a": "10.10.2.2", "sim-1b": "10.10.1.2"} {
		i := must(e.CreateInstance(ctx, cloudsim.CreateInstance{Name: zone, Zone: zone, Type: "small", Network: n.ID}))(t)
		if i.InternalIP() != want {
			t.Errorf("address in %s: got %s, want %s", zone, i.InternalIP(), want)
		}
	}
	if _, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "sim-1a", Zone: "sim-1a", Type: "small", Network: "net-000001"}); !errors.Is(err, cloudsim.Exists) {
		t.Errorf("creation with the same name in another network: got error %v, want Exists", err)
	}
}

// TestNetworkLife proves that the creation and the deletion of a network or
// subnet take time. A restart of the engine does not end this work early.
// During this work, a caller cannot create resources in the network or subnet.
func TestNetworkLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, ctx := file(t), engine.AsCloud(t.Context())
		takes := func(c *engine.Config) { c.Profile.Network = time.Minute }
		e, down := boot(t, path, takes)
		n := must(e.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "n", IPv4: "10.10.0.0/16"}))(t)
		req := cloudsim.CreateSubnet{Name: "s", Network: n.ID, IPv4: "10.10.0.0/24"}
		_, err := e.CreateSubnet(ctx, req)
		expectError(t, err, cloudsim.Conflict, "creating")
		down()
		e, down = boot(t, path, takes)
		defer down()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		s := must(e.CreateSubnet(ctx, req))(t)
		_, err = e.CreateInstance(ctx, in("a", s.ID))
		expectError(t, err, cloudsim.Conflict, "creating")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if op := must(e.GetOperation(ctx, s.Operation))(t); op.State != cloudsim.OperationDone || op.Kind != cloudsim.KindSubnet {
			t.Errorf("operation of the subnet: got %+v, want state done and kind subnet", op)
		}
		must(e.DeleteSubnet(ctx, s.ID))(t)
		_, err = e.CreateInstance(ctx, in("a", s.ID))
		expectError(t, err, cloudsim.Conflict, "deleting")
		_, err = e.DeleteNetwork(ctx, n.ID)
		expectError(t, err, cloudsim.Conflict, string(s.ID))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		must(e.DeleteNetwork(ctx, n.ID))(t)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := e.GetNetwork(ctx, n.ID); !errors.Is(err, cloudsim.NotFound) {
			t.Errorf("network after its deletion: got error %v, want NotFound", err)
		}
	})
}

// TestConfiguredRangesAreChecked proves that the cloud refuses to start if the
// configured ranges are invalid or overlap existing networks.
func TestConfiguredRangesAreChecked(t *testing.T) {
	path, ctx := file(t), engine.AsCloud(t.Context())
	e, down := boot(t, path, instant)
	shop(t, e, ctx)
	must(e.CreateProject(ctx, cloudsim.CreateProject{Name: "other"}))(t)
	down()
	for name, change := range map[string]func(*engine.Config){
		"instances":                func(c *engine.Config) { c.Instances = prefix(t, "10.10.0.0/24") },
		"load balancers":           func(c *engine.Config) { c.LoadBalancers = prefix(t, "10.10.0.0/24") },
		"pods":                     func(c *engine.Config) { c.Pods.IPv4 = "10.10.0.0/24" },
		"equal ranges":             func(c *engine.Config) { c.LoadBalancers = c.Instances },
		"IPv6 range as IPv4 range": func(c *engine.Config) { c.Instances = prefix(t, "fd00::/64") },
	} {
		t.Run(name, func(t *testing.T) {
			if err := prepare(t, path, change); err == nil {
				t.Error("the engine started with an invalid configuration")
			}
		})
	}
	e, down = boot(t, path, instant, func(c *engine.Config) {
		c.Instances, c.Instances6, c.Pods.IPv4 = prefix(t, "127.70.0.0/17"), prefix(t, "fd70::/64"), "10.244.0.0/16"
	})
	defer down()
	if i := mustCreate(t, e, ctx, "a"); !cmp.Equal(ips(i), []string{"127.70.0.1", "fd70::2"}) || len(i.PodRanges) != 1 {
		t.Errorf("instance after a change of all default networks: got %+v", i)
	}
}

// prepare calls Engine.Prepare for the cloud's file at path, and returns the error. Before the
// call, changeConfig changes the default configuration.
func prepare(t *testing.T, path string, changeConfig func(*engine.Config)) error {
	t.Helper()
	st := must(store.Open(path))(t)
	defer st.Close()
	cfg := engine.Default()
	changeConfig(&cfg)
	return engine.New(slog.New(slog.DiscardHandler), st, cfg).Prepare()
}
