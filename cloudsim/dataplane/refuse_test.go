package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// hostIPs returns 127.0.0.1. If this machine has an IPv4 address that is not a loopback address,
// hostIPs also returns this address.
func hostIPs(t *testing.T) []string {
	t.Helper()
	all := []string{"127.0.0.1"}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip := netip.MustParsePrefix(a.String()).Addr(); ip.Is4() && !ip.IsLoopback() {
			return append(all, ip.String())
		}
	}
	return all
}

// A target with an address of the cloud's own machine gets no connection, no datagram and no probe.
// This also holds if Config.Networks contains every IPv4 address.
func TestTargetsAreNotTheHost(t *testing.T) {
	t.Parallel()
	anywhere := dataplane.Config{Instances: []netip.Prefix{netip.MustParsePrefix("127.64.0.0/16")}, Networks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}
	for _, ip := range hostIPs(t) {
		for _, probe := range []cloudsim.HealthProtocol{cloudsim.HealthTCP, cloudsim.HealthHTTP, cloudsim.HealthNone} {
			t.Run(fmt.Sprint(ip, " ", probe), func(t *testing.T) {
				t.Parallel()
				var reached atomic.Int32
				victim := serve(t, ip, 0, func(*net.TCPConn) { reached.Add(1) })
				datagrams, err := net.ListenPacket("udp", fmt.Sprintf("%s:%d", ip, victim.port))
				if err != nil {
					t.Fatal(err)
				}
				defer datagrams.Close()
				f := &fleet{cloud: newMemory()}
				f.cloud.putInstance(instance(1), ip, cloudsim.InstanceRunning)
				f.lb = cloudsim.LoadBalancer{ID: lbID, IP: lbIP(), LoadBalancerSpec: cloudsim.LoadBalancerSpec{
					Targets:     []cloudsim.Target{{Instance: instance(1)}},
					Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: port, TargetPort: victim.port}, {Protocol: cloudsim.UDP, Port: port, TargetPort: victim.port}},
					HealthCheck: cloudsim.HealthCheck{Protocol: probe, IntervalMillis: 10},
				}}
				f.cloud.putLB(f.lb)
				runDataplane(t, f.cloud, anywhere)
				f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
					switch {
					case len(s.Listeners) != 2 || s.Listeners[0].Endpoint == "" || s.Listeners[1].Endpoint == "":
						return "a listener is missing"
					case probe == cloudsim.HealthNone && s.Targets[0].Health != cloudsim.TargetHealthy:
						return "the target is not taken as healthy"
					case probe != cloudsim.HealthNone && !strings.Contains(s.Targets[0].Reason, "are not allowed"):
						return "the probe was not refused"
					}
					return ""
				})
				if word, refused := ask(t, f.address()); !refused {
					t.Errorf("target %s: got answer %q, want a reset", ip, word)
				}
				c := dialUDP(t, f.address())
				for range 3 {
					if answer := c.tryAsk("where"); answer != "" {
						t.Errorf("datagram: got answer %q, want none", answer)
					}
				}
				_ = datagrams.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				if n, from, err := datagrams.ReadFrom(make([]byte, 10)); err == nil {
					t.Errorf("host received %d bytes from %s, want none", n, from)
				}
				if n := reached.Load(); n != 0 {
					t.Errorf("host accepted %d connections, want 0", n)
				}
			})
		}
	}
}

// A caller with the role writer in one project cannot use a network to reach the cloud's own
// machine, this machine's local network or link-local addresses. The caller cannot create a route
// that receives the traffic of other projects. A quota limits the number of private addresses in
// the networks of the project.
func TestWriterCannotLeaveItsNetworks(t *testing.T) {
	t.Parallel()
	own := netip.MustParsePrefix(fmt.Sprintf("127.64.%d.0/24", 200))
	admin := cloudtest.Start(t,
		cloudtest.WithConfig(func(c *engine.Config) {
			c.Instances, c.Pods.IPv4 = own, "172.31.0.0/16"
			c.HostRoutes = func() ([]netip.Prefix, error) {
				return []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24"), netip.MustParsePrefix("fd00::/64")}, nil
			}
		}),
		cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
			return dataplane.Run(engine.AsCloud(ctx), slog.New(slog.DiscardHandler), dataplane.Config{Instances: []netip.Prefix{own}}, e)
		}))
	ctx := t.Context()
	evil := cloudtest.As(t, admin, "evil", cloudsim.RoleWriter)
	if _, err := admin.CreateProject(ctx, cloudsim.CreateProject{Name: "victim"}); err != nil {
		t.Fatal(err)
	}
	victim := *admin
	victim.Project = "victim"
	shop, err := victim.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "shop", IPv4: "10.50.0.0/16"})
	if err != nil {
		t.Fatal(err)
	}
	neighbor, err := victim.CreateInstance(ctx, cloudsim.CreateInstance{Name: "n", Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := evil.CreateInstance(ctx, cloudsim.CreateInstance{Name: "mine", Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	network := func(ipv4, ipv6 string, pods cloudsim.PodRanges) error {
		_, err := evil.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: "evil", IPv4: ipv4, IPv6: ipv6, NetworkSpec: cloudsim.NetworkSpec{PodRanges: pods}})
		return err
	}
	route := func(to string) error {
		_, err := evil.CreateRoute(ctx, cloudsim.CreateRoute{Name: "evil", Destination: to, NextHop: mine.ID})
		return err
	}
	pods := func(r cloudsim.PodRanges) error {
		_, err := evil.UpdateNetwork(ctx, mine.Network, cloudsim.UpdateNetwork{NetworkSpec: cloudsim.NetworkSpec{PodRanges: r}}, 0)
		return err
	}
	for name, tc := range map[string]struct {
		err  error
		kind cloudsim.Kind
	}{
		"ssrf: loopback":                           {network("127.0.0.0/24", "", cloudsim.PodRanges{}), cloudsim.Invalid},
		"ssrf2: loopback where hollow nodes are":   {network("127.100.0.0/16", "", cloudsim.PodRanges{}), cloudsim.Invalid},
		"ssrf4: pods over link-local":              {network("10.60.0.0/16", "", cloudsim.PodRanges{IPv4: "169.0.0.0/8", IPv4Mask: 9}), cloudsim.Invalid},
		"ssrf4: pods over loopback, later":         {pods(cloudsim.PodRanges{IPv4: "127.0.0.0/8", IPv4Mask: 9}), cloudsim.Invalid},
		"ssrf5: network over link-local":           {network("169.0.0.0/8", "", cloudsim.PodRanges{}), cloudsim.Invalid},
		"network over 0.0.0.0/8":                   {network("0.0.0.0/8", "", cloudsim.PodRanges{}), cloudsim.Invalid},
		"multicast":                                {network("240.0.0.0/8", "", cloudsim.PodRanges{}), cloudsim.Invalid},
		"public":                                   {network("8.8.0.0/16", "", cloudsim.PodRanges{}), cloudsim.Invalid},
		"::1":                                      {network("10.60.0.0/16", "::/64", cloudsim.PodRanges{}), cloudsim.Invalid},
		"network over IPv6 link-local":             {network("10.60.0.0/16", "fe80::/64", cloudsim.PodRanges{}), cloudsim.Invalid},
		"network over a network of the host":       {network("192.168.0.0/16", "", cloudsim.PodRanges{}), cloudsim.Conflict},
		"network over an IPv6 network of the host": {network("10.60.0.0/16", "fd00::/48", cloudsim.PodRanges{}), cloudsim.Conflict},
		"pods in the host's network":               {network("10.60.0.0/16", "", cloudsim.PodRanges{IPv4: "192.168.1.0/24"}), cloudsim.Conflict},
		"reservation: 10.0.0.0/8":                  {network("10.128.0.0/9", "", cloudsim.PodRanges{}), cloudsim.Exhausted},
		"reservation: by pods":                     {network("10.60.0.0/16", "", cloudsim.PodRanges{IPv4: "10.128.0.0/9"}), cloudsim.Exhausted},
		"reservation: by pods, later":              {pods(cloudsim.PodRanges{IPv4: "10.128.0.0/9"}), cloudsim.Invalid}, // the configuration sets the pod ranges
		"reservation: fd00::/8":                    {network("10.60.0.0/16", "fd00::/8", cloudsim.PodRanges{}), cloudsim.Invalid},
		"routes: to everything":                    {route("0.0.0.0/0"), cloudsim.Invalid},
		"routes: to a half of everything":          {route("128.0.0.0/1"), cloudsim.Invalid},
		"routes: public":                           {route("8.8.8.0/24"), cloudsim.Invalid},
		"routes: loopback":                         {route("127.0.0.1/32"), cloudsim.Invalid},
		"routes: another network's range":          {route("10.50.7.0/24"), cloudsim.Conflict},
		"routes: around another network's range":   {route("10.48.0.0/12"), cloudsim.Conflict},
		"routes: pods of another instance":         {route(neighbor.PodRanges[0]), cloudsim.Conflict},
		"routes: a pod of another instance":        {route(strings.Replace(neighbor.PodRanges[0], "/24", "/25", 1)), cloudsim.Conflict},
		"routes: all pods":                         {route("172.31.0.0/16"), cloudsim.Conflict},
		"routes: the host's network":               {route("192.168.1.0/24"), cloudsim.Conflict},
		"routes: load balancers":                   {route("127.65.0.0/16"), cloudsim.Conflict},
		"range of another network":                 {network(shop.IPv4, "", cloudsim.PodRanges{}), cloudsim.Conflict},
		"load balancer target outside the cloud":   {balance(ctx, evil, cloudsim.Target{Instance: mine.ID, IP: "169.254.169.254"}), cloudsim.Invalid},
	} {
		if !errors.Is(tc.err, tc.kind) {
			t.Errorf("%s: got error %v, want %s", name, tc.err, tc.kind)
		}
	}
	if err := route(mine.PodRanges[0]); err != nil {
		t.Errorf("route to the pod range of its own next hop: got error %v", err)
	}
	took := 0
	for i := range 256 {
		if _, err := evil.CreateNetwork(ctx, cloudsim.CreateNetwork{Name: fmt.Sprint("n-", i), IPv4: fmt.Sprintf("10.%d.0.0/16", i)}); err == nil {
			took++
		} else if !errors.Is(err, cloudsim.Exhausted) && !errors.Is(err, cloudsim.Conflict) {
			t.Fatal(err)
		}
	}
	if took != 16 {
		t.Errorf("one project has %d networks of size /16, want 16", took)
	}
}

func balance(ctx context.Context, c interface {
	CreateLoadBalancer(context.Context, cloudsim.CreateLoadBalancer) (cloudsim.LoadBalancer, error)
}, t cloudsim.Target) error {
	_, err := c.CreateLoadBalancer(ctx, cloudsim.CreateLoadBalancer{Name: "evil", Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{
		Listeners: []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 80}}, Targets: []cloudsim.Target{t},
	}})
	return err
}
