package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	api "github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// TestThroughARealCloud runs the data plane with the engine and its API, not with a fake cloud. The
// test creates a load balancer through the API. Clients reach the targets of the load balancer, and
// the API returns the status that the data plane reports.
func TestThroughARealCloud(t *testing.T) {
	cloud := realCloud(t)
	ctx := t.Context()
	targets, targetPort := twoInstances(t, cloud)
	lb, err := cloud.CreateLoadBalancer(ctx, shop(targets, targetPort))
	if err != nil {
		t.Fatal(err)
	}
	status := func(want func(cloudsim.LoadBalancerStatus) string) cloudsim.LoadBalancerStatus {
		t.Helper()
		eventually.Empty(t, func() string {
			if lb, err = cloud.GetLoadBalancer(ctx, lb.ID); err != nil {
				return err.Error()
			}
			return satisfies(lb, want)
		})
		return lb.Status
	}
	s := status(unreadyReason)
	address := fmt.Sprintf("%s:%d", lb.IP, lb.Listeners[0].Port)
	if got := s.Listeners[0].Endpoint; got != address {
		t.Errorf("got endpoint %q, want %q", got, address)
	}
	seen := map[string]bool{}
	for range 6 {
		word, _ := ask(t, address)
		seen[word] = true
	}
	if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, seen); diff != "" {
		t.Errorf("answering targets differ (-want +got):\n%s", diff)
	}

	held := dial(t, address)
	for held.line() != "a" {
		held = dial(t, address)
	}
	if _, err := cloud.DeleteInstance(ctx, targets[0].Instance); err != nil {
		t.Fatal(err)
	}
	held.wasReset()
	status(func(s cloudsim.LoadBalancerStatus) string {
		return cmp.Diff([]cloudsim.TargetStatus{{Instance: targets[1].Instance, Health: cloudsim.TargetHealthy}}, s.Targets)
	})
	if word, refused := ask(t, address); word != "b" || refused {
		t.Errorf("got answer %q, refused %v; want b", word, refused)
	}
	if _, err := cloud.DeleteLoadBalancer(ctx, lb.ID); err != nil {
		t.Fatal(err)
	}
	eventually.Empty(t, func() string {
		if _, err := cloud.GetLoadBalancer(ctx, lb.ID); !errors.Is(err, cloudsim.NotFound) {
			return fmt.Sprintf("load balancer after its deletion: got error %v, want NotFound", err)
		}
		if listens(address) {
			return "the load balancer still listens"
		}
		return ""
	})
}

// During the outage of a zone, the data plane cuts the connections to machines in the zone. The
// status of the load balancer contains the reason. After the outage, the same machines, which have
// never stopped, take connections again.
func TestDarkZone(t *testing.T) {
	cloud := realCloud(t)
	ctx := t.Context()
	targets, targetPort := twoInstances(t, cloud)
	lb, err := cloud.CreateLoadBalancer(ctx, shop(targets, targetPort))
	if err != nil {
		t.Fatal(err)
	}
	health := func(want cloudsim.TargetHealth, reason string) {
		t.Helper()
		eventually.Empty(t, func() string {
			if lb, err = cloud.GetLoadBalancer(ctx, lb.ID); err != nil {
				return err.Error()
			}
			all := []cloudsim.TargetStatus{{Instance: targets[0].Instance, Health: want, Reason: reason}, {Instance: targets[1].Instance, Health: want, Reason: reason}}
			return cmp.Diff(all, lb.Status.Targets)
		})
	}
	health(cloudsim.TargetHealthy, "")
	address := fmt.Sprintf("%s:%d", lb.IP, lb.Listeners[0].Port)
	held := dial(t, address)
	if word := held.line(); word != "a" && word != "b" {
		t.Fatalf("got answer %q, want a or b", word)
	}
	dark, err := cloud.CreateFault(ctx, cloudsim.CreateFault{Name: "dark", FaultSpec: cloudsim.FaultSpec{
		Match:  cloudsim.FaultMatch{Operation: "*", Zone: "sim-1a"},
		Effect: cloudsim.FaultEffect{Type: cloudsim.FaultZoneOutage, Scope: cloudsim.OutageData},
	}})
	if err != nil {
		t.Fatal(err)
	}
	held.wasReset()
	health(cloudsim.TargetUnhealthy, "zone sim-1a does not answer")
	if i, err := cloud.GetInstance(ctx, targets[0].Instance); err != nil || i.State != cloudsim.InstanceRunning {
		t.Errorf("instance: got state %s, error %v; want running", i.State, err)
	}
	if err := cloud.DeleteFault(ctx, dark.ID); err != nil {
		t.Fatal(err)
	}
	health(cloudsim.TargetHealthy, "")
	if word, refused := ask(t, address); refused {
		t.Errorf("got answer %q, refused %v", word, refused)
	}
}

// realCloud runs a cloud with a data plane. Its addresses depend on the process id, so other test
// processes usually use other addresses.
func realCloud(t testing.TB) *api.Client {
	network := func(n int) netip.Prefix {
		return netip.MustParsePrefix(fmt.Sprintf("127.%d.%d.0/24", n, 1+os.Getpid()%99))
	}
	return cloudtest.Start(t,
		cloudtest.WithConfig(func(c *engine.Config) { c.Instances, c.LoadBalancers = network(64), network(65) }),
		cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
			return dataplane.Run(engine.AsCloud(ctx), slog.New(slog.DiscardHandler), dataplane.Config{Instances: []netip.Prefix{network(64)}}, e)
		}))
}

// twoInstances makes instances a and b. On each instance, a server sends the name of the
// instance to its clients. Both servers use the same port.
func twoInstances(t testing.TB, cloud *api.Client) (targets []cloudsim.Target, targetPort int) {
	for _, name := range []string{"a", "b"} {
		vm, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"})
		if err != nil {
			t.Fatal(err)
		}
		targetPort = serve(t, vm.InternalIP(), targetPort, sayWord(name)).port
		targets = append(targets, cloudsim.Target{Instance: vm.ID})
	}
	return targets, targetPort
}

// shop returns a request for a load balancer with frequent probes.
func shop(targets []cloudsim.Target, targetPort int) cloudsim.CreateLoadBalancer {
	return cloudsim.CreateLoadBalancer{
		Name: "shop", Region: "sim-1",
		LoadBalancerSpec: cloudsim.LoadBalancerSpec{
			Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: port, TargetPort: targetPort}},
			Targets:     targets,
			HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, IntervalMillis: 20},
		},
	}
}
