package ccm_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// In each run of the test, one call to the cloud fails, or its reply is lost. The provider
// nevertheless completes the creation, change or deletion of the load balancer in at most three
// more attempts. The test uses every kind of load balancer.
func TestAnyCallMayFail(t *testing.T) {
	for _, kind := range []struct {
		name string
		f    fault
	}{{"reply lost", fault{loseReply: true}}, {"cut", fault{cut: true}}, {"500", fault{status: 500, body: `{"status":500,"kind":"internal"}`}}} {
		for name, crash := range map[string]func(*testing.T, int, fault) bool{"own": ownCrash, "dual stack": dualCrash, "shared": sharedCrash, "pods": podCrash} {
			t.Run(name+" "+kind.name, func(t *testing.T) {
				if testing.Short() && kind.name != "reply lost" {
					t.Skip("quick run: the test of the worst fault is sufficient")
				}
				t.Parallel()
				for n := 0; ; n++ {
					if reached := crash(t, n, kind.f); !reached {
						if n < 6 {
							t.Errorf("got %d calls with a fault, want at least 6", n)
						}
						return
					}
				}
			})
		}
	}
}

// crashRig is a rig (a cloud and a provider) in which the call n to the cloud fails. The first call
// has the number 0. After every error, crashRig creates a new provider, as after a restart of the
// process.
type crashRig struct {
	*rig
	n       int
	reached atomic.Bool
}

func crashing(t *testing.T, n int, f fault, opts ...cloudtest.Option) *crashRig {
	t.Helper()
	c := &crashRig{rig: newRig(t, opts...), n: n}
	c.wire.spoil(func(at int, _ *http.Request) fault {
		if at != n {
			return fault{}
		}
		c.reached.Store(true)
		return f
	})
	return c
}

func (c *crashRig) until(t *testing.T, operation string, run func() error) {
	t.Helper()
	for try := 0; ; try++ {
		err := run()
		if err == nil {
			return
		}
		if try == 3 {
			t.Fatalf("fault at call %d: %s never succeeds: %v", c.n, operation, err)
		}
		c.provider = c.restarted()
	}
}

func (c *crashRig) ensured(t *testing.T, s *v1.Service, nodes []*v1.Node, addresses int) {
	t.Helper()
	c.until(t, "ensure", func() error {
		st, err := c.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nodes)
		if err == nil && len(st.Ingress) != addresses {
			t.Errorf("fault at call %d: got status %+v, want %d addresses", c.n, st, addresses)
		}
		return err
	})
}

// deleteBalancer deletes the load balancer of s in the same way as the
// framework. It calls EnsureLoadBalancerDeleted only if the load balancer
// exists.
func (c *crashRig) deleteBalancer(t *testing.T, s *v1.Service) {
	t.Helper()
	c.until(t, "delete", func() error {
		_, exists, err := c.balancers().GetLoadBalancer(t.Context(), cluster, s)
		if err != nil || !exists {
			return err
		}
		return c.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s)
	})
}

func (c *crashRig) nothingLeft(t *testing.T) {
	t.Helper()
	if l, err := c.cloud.ListAddresses(t.Context(), cloudsim.ListOptions{}); err != nil || len(l.Items)+len(c.balancersInCloud(t)) != 0 {
		t.Errorf("fault at call %d: got remaining load balancers %+v and addresses %+v, error %v; want none", c.n, c.balancersInCloud(t), l.Items, err)
	}
}

// ownCrash creates, changes and deletes a load balancer of one Service, with the fault f at call n.
// It repeats each step until the step succeeds. The result is false if the provider makes no call
// with the number n.
func ownCrash(t *testing.T, n int, f fault) (reached bool) {
	c := crashing(t, n, f)
	nodes := []*v1.Node{initializedNode(c.createMachine(t, "node-1"))}
	c.ensured(t, newService(), nodes, 1)
	first := c.onlyLoadBalancer(t)
	c.ensured(t, newService(func(s *v1.Service) { s.Spec.Ports[0].Port = 81 }), nodes, 1)
	nodes = append(nodes, initializedNode(c.createMachine(t, "node-2")))
	c.until(t, "update", func() error {
		return c.balancers().UpdateLoadBalancer(t.Context(), cluster, newService(), nodes)
	})
	if lb := c.onlyLoadBalancer(t); lb.ID != first.ID || lb.Listeners[0].Port != 81 || len(lb.Targets) != 2 {
		t.Errorf("fault at call %d: load balancer after the changes: got %+v, want id %s, port 81 and 2 targets", n, lb, first.ID)
	}
	c.deleteBalancer(t, newService())
	c.nothingLeft(t)
	return c.reached.Load()
}

func dualCrash(t *testing.T, n int, f fault) (reached bool) {
	c := crashing(t, n, f)
	nodes := []*v1.Node{initializedNode(c.createMachine(t, "node-1"))}
	of := func(fs ...v1.IPFamily) *v1.Service { return newService(func(s *v1.Service) { s.Spec.IPFamilies = fs }) }
	c.ensured(t, of(v1.IPv6Protocol, v1.IPv4Protocol), nodes, 2)
	first := c.onlyLoadBalancer(t)
	c.ensured(t, of(v1.IPv6Protocol), nodes, 1)
	c.ensured(t, of(v1.IPv6Protocol, v1.IPv4Protocol), nodes, 2)
	if lb := c.onlyLoadBalancer(t); lb.ID != first.ID || lb.Addresses[0] != first.Addresses[0] || len(lb.Addresses) != 2 {
		t.Errorf("fault at call %d: got load balancer %s with the addresses %+v, want %s with 2 addresses, the first of %+v", n, lb.ID, lb.Addresses, first.ID, first.Addresses)
	}
	c.deleteBalancer(t, of(v1.IPv4Protocol))
	c.nothingLeft(t)
	return c.reached.Load()
}

func sharedCrash(t *testing.T, n int, f fault) (reached bool) {
	c := crashing(t, n, f)
	nodes := []*v1.Node{initializedNode(c.createMachine(t, "node-1"))}
	one, two := sharingService("01", 80), sharingService("02", 81)
	c.ensured(t, one, nodes, 1)
	first := c.onlyLoadBalancer(t)
	c.ensured(t, two, nodes, 1)
	c.ensured(t, sharingService("01", 82), nodes, 1)
	nodes = append(nodes, initializedNode(c.createMachine(t, "node-2")))
	c.until(t, "update", func() error {
		return c.balancers().UpdateLoadBalancer(t.Context(), cluster, two, nodes)
	})
	if lb := c.onlyLoadBalancer(t); lb.ID != first.ID || len(lb.Listeners) != 2 || len(lb.Targets) != 2 {
		t.Errorf("fault at call %d: load balancer of both Services: got %+v, want id %s, 2 listeners and 2 targets", n, lb, first.ID)
	}
	c.deleteBalancer(t, one)
	if lb := c.onlyLoadBalancer(t); len(lb.Listeners) != 1 || lb.Listeners[0].Port != 81 {
		t.Errorf("fault at call %d: load balancer after the deletion of the first Service: got %+v, want only port 81", n, lb)
	}
	c.deleteBalancer(t, two)
	c.nothingLeft(t)
	return c.reached.Load()
}

func podCrash(t *testing.T, n int, f fault) (reached bool) {
	c := crashing(t, n, f, podRanges)
	i := c.createMachine(t, "node-1")
	nodes := []*v1.Node{initializedNode(i)}
	runs := func(all ...discoveryv1.Endpoint) {
		c.pods = []*discoveryv1.EndpointSlice{newSlice(v1.IPv4Protocol, 8080, all...)}
		c.provider.WithPods(c.pods...)
	}
	runs(runsOn(i, 7))
	c.ensured(t, withoutNodePorts(), nodes, 1)
	first := c.onlyLoadBalancer(t)
	runs(runsOn(i, 8), runsOn(i, 9))
	c.until(t, "update", func() error {
		return c.balancers().UpdateLoadBalancer(t.Context(), cluster, withoutNodePorts(), nodes)
	})
	if lb := c.onlyLoadBalancer(t); len(lb.Targets) != 2 || lb.Targets[0].IP != podIP(i, 8) {
		t.Errorf("fault at call %d: targets after the pods changed: got %+v, want the 2 new pods", n, lb.Targets)
	}
	c.ensured(t, newService(), nodes, 1)
	if lb := c.onlyLoadBalancer(t); lb.ID != first.ID || len(lb.Targets) != 1 || lb.Targets[0].IP != "" || lb.Listeners[0].TargetPort != 30080 {
		t.Errorf("fault at call %d: load balancer with node ports: got id %s and %+v, want id %s and one instance with target port 30080", n, lb.ID, lb.LoadBalancerSpec, first.ID)
	}
	c.ensured(t, withoutNodePorts(), nodes, 1)
	c.deleteBalancer(t, withoutNodePorts())
	c.nothingLeft(t)
	return c.reached.Load()
}
