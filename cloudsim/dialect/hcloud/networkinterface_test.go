package hcloud_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func newServer(t *testing.T, w *world, name string, networks ...*sdk.Network) *sdk.Server {
	t.Helper()
	made, resp, err := w.Server.Create(context.Background(), sdk.ServerCreateOpts{
		Name: name, ServerType: &sdk.ServerType{Name: "small"}, Image: &sdk.Image{Name: "debian-13"}, Location: &sdk.Location{Name: "sim-1a"}, Networks: networks,
	})
	s := must(t, made, resp, err).Server
	w.wait(t, made.Action, nil, nil)
	return s
}

func newNetworkOf(t *testing.T, w *world, name, ipRange string, subnets ...string) *sdk.Network {
	t.Helper()
	opts := sdk.NetworkCreateOpts{Name: name, IPRange: cidr(ipRange)}
	for _, r := range subnets {
		opts.Subnets = append(opts.Subnets, sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr(r), NetworkZone: "sim-1"})
	}
	n, resp, err := w.Network.Create(context.Background(), opts)
	return must(t, n, resp, err)
}

func networkInterfaceCalls(t *testing.T, w *world) {
	ctx := context.Background()
	s, other := newServer(t, w, "node-1"), newServer(t, w, "node-2")
	n := newNetworkOf(t, w, "one", "10.60.0.0/16", "10.60.1.0/24", "10.60.2.0/24")
	empty := newNetworkOf(t, w, "empty", "10.61.0.0/16")
	attach := func(s *sdk.Server, opts sdk.ServerAttachToNetworkOpts, code sdk.ErrorCode) {
		t.Helper()
		a, resp, err := w.Server.AttachToNetwork(ctx, s, opts)
		if code != "" {
			expectError(t, err, code)
			return
		}
		if w.wait(t, a, resp, err); a.Command != "attach_to_network" || len(a.Resources) != 2 || a.Resources[0].ID != s.ID || a.Resources[1].ID != opts.Network.ID {
			t.Errorf("action: got %+v", a)
		}
	}
	addresses := func(s *sdk.Server, want string) {
		t.Helper()
		got := ""
		one, resp, err := w.Server.GetByID(ctx, s.ID)
		for _, p := range must(t, one, resp, err).PrivateNet {
			got += fmt.Sprintf("%d=%s ", p.Network.ID, p.IP)
		}
		if got != want {
			t.Errorf("private networks: got %q, want %q", got, want)
		}
	}
	addresses(s, "")
	attach(s, sdk.ServerAttachToNetworkOpts{Network: n}, "")
	addresses(s, fmt.Sprintf("%d=10.60.1.2 ", n.ID))
	attach(s, sdk.ServerAttachToNetworkOpts{Network: n}, sdk.ErrorCodeServerAlreadyAttached)
	attach(other, sdk.ServerAttachToNetworkOpts{Network: n, IP: net.ParseIP("10.60.1.2")}, sdk.ErrorCodeIPNotAvailable)
	attach(other, sdk.ServerAttachToNetworkOpts{Network: n, IP: net.ParseIP("10.99.1.2")}, sdk.ErrorCodeInvalidInput)
	for opts, field := range map[*sdk.ServerAttachToNetworkOpts]string{
		{Network: n, IP: net.ParseIP("10.60.1.1")}:                                "ip", // the gateway
		{Network: n, IP: net.ParseIP("10.60.2.2"), IPRange: cidr("10.60.1.0/24")}: "ip",
		{Network: n, IPRange: cidr("10.60.3.0/24")}:                               "ip_range",
		{Network: &sdk.Network{ID: 999}}:                                          "network",
	} {
		_, _, err := w.Server.AttachToNetwork(ctx, other, *opts)
		expectError(t, err, sdk.ErrorCodeInvalidInput)
		e, _ := errors.AsType[sdk.Error](err)
		if d, ok := e.Details.(sdk.ErrorDetailsInvalidInput); !ok || len(d.Fields) != 1 || d.Fields[0].Name != field {
			t.Errorf("invalid %s: got details %+v", field, e.Details)
		}
	}
	attach(other, sdk.ServerAttachToNetworkOpts{Network: empty}, sdk.ErrorCodeNoSubnetAvailable)
	attach(other, sdk.ServerAttachToNetworkOpts{Network: n, AliasIPs: []net.IP{net.ParseIP("10.60.1.9")}}, sdk.ErrorUnsupportedError)
	attach(other, sdk.ServerAttachToNetworkOpts{Network: n, IPRange: cidr("10.60.2.0/24")}, "")
	addresses(other, fmt.Sprintf("%d=10.60.2.2 ", n.ID))
	detach := func(s *sdk.Server, n *sdk.Network) error {
		a, resp, err := w.Server.DetachFromNetwork(ctx, s, sdk.ServerDetachFromNetworkOpts{Network: n})
		if err == nil {
			w.wait(t, a, resp, err)
		}
		return err
	}
	if err := detach(other, n); err != nil {
		t.Error(err)
	}
	expectError(t, detach(other, n), sdk.ErrorCodeNotFound)
	attach(other, sdk.ServerAttachToNetworkOpts{Network: n, IP: net.ParseIP("10.60.2.9")}, "")
	addresses(other, fmt.Sprintf("%d=10.60.2.9 ", n.ID))

	// A server in an additional network can be the gateway of a route. With its private address, it
	// can also be a target of a load balancer.
	a, resp, err := w.Network.AddRoute(ctx, n, sdk.NetworkAddRouteOpts{Route: sdk.NetworkRoute{Destination: cidr("10.244.1.0/24"), Gateway: net.ParseIP("10.60.1.2")}})
	w.wait(t, a, resp, err)
	if n, resp, err = w.Network.GetByID(ctx, n.ID); len(must(t, n, resp, err).Servers) != 2 || len(n.Routes) != 1 || n.Routes[0].Gateway.String() != "10.60.1.2" {
		t.Errorf("network: got %+v, want two servers and the route", n)
	}
	_, err = w.Network.Delete(ctx, n)
	expectError(t, err, sdk.ErrorCodeResourceInUse)
	lb, resp, err := w.LoadBalancer.Create(ctx, sdk.LoadBalancerCreateOpts{Name: "front", LoadBalancerType: &sdk.LoadBalancerType{Name: "lb11"}, NetworkZone: "sim-1", Network: n})
	l := must(t, lb, resp, err).LoadBalancer
	w.wait(t, lb.Action, nil, nil)
	a, resp, err = w.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: s, UsePrivateIP: sdk.Ptr(true)})
	w.wait(t, a, resp, err)
	third := newServer(t, w, "node-3")
	_, _, err = w.LoadBalancer.AddServerTarget(ctx, l, sdk.LoadBalancerAddServerTargetOpts{Server: third, UsePrivateIP: sdk.Ptr(true)})
	expectError(t, err, sdk.ErrorCodeServerNotAttachedToNetwork)

	// The dialect refuses to detach a server from its first network, unless this network is the
	// default network.
	first := newServer(t, w, "node-4", n)
	expectError(t, detach(first, n), sdk.ErrorUnsupportedError)
	standard, resp, err := w.Network.GetByName(ctx, "default")
	if got := must(t, standard, resp, err).Servers; len(got) != 0 {
		t.Errorf("servers of the default network: got %v, want none", got)
	}
	// A client can attach a server to the default network, but cannot choose the address.
	attach(third, sdk.ServerAttachToNetworkOpts{Network: standard, IP: net.ParseIP("127.64.0.99")}, sdk.ErrorUnsupportedError)
	attach(third, sdk.ServerAttachToNetworkOpts{Network: standard}, "")
	attach(third, sdk.ServerAttachToNetworkOpts{Network: standard}, sdk.ErrorCodeServerAlreadyAttached)
	addresses(third, fmt.Sprintf("%d=127.64.0.3 ", standard.ID))
	if err := detach(third, standard); err != nil {
		t.Error(err)
	}
	addresses(third, "")
	if got := w.unsupported.Load(); got != 3 {
		t.Errorf("got %d answers with the status %d, want 3", got, http.StatusNotImplemented)
	}
}

// TestAttachToNewSubnet proves these effects of a request to attach a server to a network:
//   - If the subnet is not available yet, the dialect returns an error with the code "locked".
//   - If all subnets are full, the dialect returns an error with the code "no_subnet_available".
//   - If all available subnets are full, and another subnet is not available yet, the code is
//     "locked".
//   - If only the first subnet is full, the server gets an address in the second subnet.
func TestAttachToNewSubnet(t *testing.T) {
	ctx := context.Background()
	w := start(t, cloudtest.WithConfig(func(c *engine.Config) { c.Profile = engine.Profile{Network: time.Hour} }), cloudtest.WithFrozenClock(time.Time{}))
	pass := func() {
		t.Helper()
		if _, err := w.cloud.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: 7200}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.cloud.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "n", IPv4: "10.60.0.0/16"}); err != nil {
		t.Fatal(err)
	}
	pass()
	n, resp, err := w.Network.GetByName(ctx, "n")
	must(t, n, resp, err)
	_, _, err = w.Network.AddSubnet(ctx, n, sdk.NetworkAddSubnetOpts{Subnet: sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr("10.60.1.0/30"), NetworkZone: "sim-1"}})
	must(t, 0, nil, err)
	s, other := newServer(t, w, "a"), newServer(t, w, "b")
	for _, opts := range []sdk.ServerAttachToNetworkOpts{{Network: n}, {Network: n, IP: net.ParseIP("10.60.1.2")}, {Network: n, IPRange: cidr("10.60.1.0/30")}} {
		_, _, err := w.Server.AttachToNetwork(ctx, s, opts)
		expectError(t, err, sdk.ErrorCodeLocked)
	}
	pass()
	a, resp, err := w.Server.AttachToNetwork(ctx, s, sdk.ServerAttachToNetworkOpts{Network: n})
	w.wait(t, a, resp, err)
	_, _, err = w.Server.AttachToNetwork(ctx, other, sdk.ServerAttachToNetworkOpts{Network: n})
	expectError(t, err, sdk.ErrorCodeNoSubnetAvailable)
	_, _, err = w.Network.AddSubnet(ctx, n, sdk.NetworkAddSubnetOpts{Subnet: sdk.NetworkSubnet{Type: sdk.NetworkSubnetTypeCloud, IPRange: cidr("10.60.2.0/30"), NetworkZone: "sim-1"}})
	must(t, 0, nil, err)
	_, _, err = w.Server.AttachToNetwork(ctx, other, sdk.ServerAttachToNetworkOpts{Network: n})
	expectError(t, err, sdk.ErrorCodeLocked)
	pass()
	a, resp, err = w.Server.AttachToNetwork(ctx, other, sdk.ServerAttachToNetworkOpts{Network: n})
	w.wait(t, a, resp, err)
}

// TestAttachConflict attaches a server to a network, and the cloud answers with Conflict. If
// another server has the requested address, the dialect's error must have the code
// "ip_not_available". Otherwise the error must have the code "locked".
func TestAttachConflict(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	n := newNetworkOf(t, w, "n", "10.60.0.0/16", "10.60.1.0/24")
	s, other := newServer(t, w, "a"), newServer(t, w, "b")
	attach := func(s *sdk.Server) error {
		_, _, err := w.Server.AttachToNetwork(ctx, s, sdk.ServerAttachToNetworkOpts{Network: n, IP: net.ParseIP("10.60.1.2")})
		return err
	}
	f, err := w.cloud.CreateFault(ctx, cloudsim.CreateFault{Name: "conflict", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "instances.attachNetwork"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError, Kind: "conflict"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	expectError(t, attach(s), sdk.ErrorCodeLocked)
	if err := errors.Join(w.cloud.DeleteFault(ctx, f.ID), attach(s)); err != nil {
		t.Fatal(err)
	}
	expectError(t, attach(other), sdk.ErrorCodeIPNotAvailable)
}

// TestAttachToNewNetwork proves that a client can use all subnets of a new network as soon as it
// gets the answer to the call that creates the network.
func TestAttachToNewNetwork(t *testing.T) {
	w := start(t, cloudtest.WithConfig(func(c *engine.Config) { c.Profile = engine.Profile{Network: 50 * time.Millisecond} }))
	s := newServer(t, w, "a")
	n := newNetworkOf(t, w, "n", "10.60.0.0/16", "10.60.1.0/24", "10.60.2.0/24")
	a, resp, err := w.Server.AttachToNetwork(context.Background(), s, sdk.ServerAttachToNetworkOpts{Network: n, IPRange: cidr("10.60.2.0/24")})
	w.wait(t, a, resp, err)
}

// TestRandomNetworkAttachments attaches servers to networks and detaches them, at random. After
// each call, it compares the error and the private networks of the server with a model.
func TestRandomNetworkAttachments(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	var servers []*sdk.Server
	for i := range 3 {
		servers = append(servers, newServer(t, w, fmt.Sprintf("node-%d", i)))
	}
	var networks []*sdk.Network
	for i := range 4 {
		networks = append(networks, newNetworkOf(t, w, fmt.Sprintf("net-%d", i), fmt.Sprintf("10.7%d.0.0/24", i), fmt.Sprintf("10.7%d.0.0/29", i)))
	}
	const maxNetworks = 3
	rng := rand.New(rand.NewPCG(5, 5)) //nolint:gosec // a repeatable test
	model := map[int64]map[int64]string{}
	for _, s := range servers {
		model[s.ID] = map[int64]string{}
	}
	taken := func(n int64, ip string) bool {
		for _, in := range model {
			if in[n] == ip {
				return true
			}
		}
		return false
	}
	for step := range 300 {
		s, k := servers[rng.IntN(len(servers))], rng.IntN(len(networks))
		n, in := networks[k], model[s.ID]
		ip := fmt.Sprintf("10.7%d.0.%d", k, 2+rng.IntN(3))
		var want sdk.ErrorCode
		var err error
		if rng.IntN(2) == 0 {
			switch {
			case in[n.ID] != "":
				want = sdk.ErrorCodeServerAlreadyAttached
			case len(in) == maxNetworks:
				want = sdk.ErrorCodeResourceLimitExceeded
			case taken(n.ID, ip):
				want = sdk.ErrorCodeIPNotAvailable
			default:
				in[n.ID] = ip
			}
			_, _, err = w.Server.AttachToNetwork(ctx, s, sdk.ServerAttachToNetworkOpts{Network: n, IP: net.ParseIP(ip)})
		} else {
			if in[n.ID] == "" {
				want = sdk.ErrorCodeNotFound
			}
			delete(in, n.ID)
			_, _, err = w.Server.DetachFromNetwork(ctx, s, sdk.ServerDetachFromNetworkOpts{Network: n})
		}
		if want == "" && err != nil || want != "" && !sdk.IsError(err, want) {
			t.Fatalf("step %d (server %d, network %d, %s): got error %v, want code %q", step, s.ID, n.ID, ip, err, want)
		}
		got, resp, err := w.Server.GetByID(ctx, s.ID)
		if must(t, got, resp, err); len(got.PrivateNet) != len(in) {
			t.Fatalf("step %d: got private networks %+v, want %v", step, got.PrivateNet, in)
		}
		for _, p := range got.PrivateNet {
			if in[p.Network.ID] != p.IP.String() {
				t.Fatalf("step %d: got private networks %+v, want %v", step, got.PrivateNet, in)
			}
		}
	}
}
