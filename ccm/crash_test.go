package ccm_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// After any one call whose answer is lost, or that never arrives, the next run
// finishes the work: one load balancer with one address, or none.
func TestAnyCallMayFail(t *testing.T) {
	for _, kind := range []struct {
		name string
		f    fault
	}{{"reply lost", fault{loseReply: true}}, {"cut", fault{cut: true}}, {"500", fault{status: 500, body: `{"status":500,"kind":"internal"}`}}} {
		t.Run(kind.name, func(t *testing.T) {
			for n := 0; ; n++ {
				if reached := crashAt(t, n, kind.f); !reached {
					if n < 6 {
						t.Errorf("only %d calls were made to fail", n)
					}
					return
				}
			}
		})
	}
}

// crashAt makes, changes and deletes a load balancer, with a fault at the nth
// call, and a new process after every error. It reports whether there was an
// nth call.
func crashAt(t *testing.T, n int, f fault) bool {
	t.Helper()
	r := newRig(t)
	nodes := []*v1.Node{initialised(r.machine(t, "node-1"))}
	var reached atomic.Bool
	r.wire.spoil(func(at int, _ *http.Request) fault {
		if at != n {
			return fault{}
		}
		reached.Store(true)
		return f
	})
	until := func(what string, run func() error) {
		for try := 0; ; try++ {
			err := run()
			if err == nil {
				return
			}
			if try == 3 {
				t.Fatalf("fault at call %d: %s never works: %v", n, what, err)
			}
			r.provider = r.again()
		}
	}
	ensure := func(s *v1.Service) func() error {
		return func() error {
			st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nodes)
			if err == nil && len(st.Ingress) != 1 {
				t.Errorf("fault at call %d: status %+v", n, st)
			}
			return err
		}
	}
	until("create", ensure(service()))
	first := r.only(t)
	until("change", ensure(service(func(s *v1.Service) { s.Spec.Ports[0].Port = 81 })))
	nodes = append(nodes, initialised(r.machine(t, "node-2")))
	until("update", func() error {
		return r.balancers().UpdateLoadBalancer(t.Context(), cluster, service(), nodes)
	})
	if lb := r.only(t); lb.ID != first.ID || lb.Listeners[0].Port != 81 || len(lb.Targets) != 2 {
		t.Errorf("fault at call %d: after the changes it is %+v", n, lb)
	}
	until("delete", func() error {
		// As the framework does: nothing is deleted that does not exist.
		_, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, service())
		if err != nil || !exists {
			return err
		}
		return r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, service())
	})
	if l, err := r.cloud.ListAddresses(t.Context(), cloudsim.ListOptions{}); err != nil || len(l.Items)+len(r.balancersInCloud(t)) != 0 {
		t.Errorf("fault at call %d: left behind %+v and %+v, %v", n, r.balancersInCloud(t), l.Items, err)
	}
	return reached.Load()
}
