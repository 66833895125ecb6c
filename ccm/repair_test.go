package ccm_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// startWithBalancer starts the controllers, creates a Service, and returns its
// load balancer. It creates no nodes, because upstream's service controller has
// a data race if a Service and a Node change at the same time.
func (r *rig) startWithBalancer(t *testing.T) (plane, cloudsim.LoadBalancer) {
	t.Helper()
	r.startMirror(t)
	p := r.start(t)
	if _, err := p.kube.CoreV1().Services("default").Create(t.Context(), newService(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the Service has its address", func() bool { return len(p.getService(t).Status.LoadBalancer.Ingress) == 1 })
	return p, p.onlyLoadBalancer(t)
}

func TestRepairOfADeletedLoadBalancer(t *testing.T) {
	p, lb := newRig(t).startWithBalancer(t)
	if _, err := p.cloud.DeleteLoadBalancer(t.Context(), lb.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "a new load balancer exists, and the Service has its address", func() bool {
		all := p.balancersInCloud(t)
		ingress := p.getService(t).Status.LoadBalancer.Ingress
		return len(all) == 1 && all[0].ID != lb.ID && len(ingress) == 1 && ingress[0].IP == all[0].IP
	})
}

// If a user deletes a Service after the repairer's informer has read it, the repairer creates no
// load balancer for this Service.
func TestNoRepairOfADeletedService(t *testing.T) {
	p, lb := newRig(t).startWithBalancer(t)
	var reads atomic.Int32
	p.kube.Lock() // PrependReactor does not take the lock, and the controllers already run
	p.kube.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		reads.Add(1)
		return true, nil, apierrors.NewNotFound(v1.Resource("services"), "web")
	})
	p.kube.Unlock()
	if _, err := p.cloud.DeleteLoadBalancer(t.Context(), lb.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the repairer reads the Service", func() bool { return reads.Load() > 0 })
	time.Sleep(200 * time.Millisecond)
	if all := p.balancersInCloud(t); len(all) != 0 {
		t.Errorf("load balancers of a deleted Service: got %+v, want none", all)
	}
}

func TestRepairOfAChangedLoadBalancer(t *testing.T) {
	r := newRig(t)
	p, lb := r.startWithBalancer(t)
	spec := lb.LoadBalancerSpec
	spec.Listeners = []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 9999, TargetPort: 9999}}
	spec.Targets = []cloudsim.Target{{Instance: r.createMachine(t, "not-a-node").ID}}
	if _, err := p.cloud.UpdateLoadBalancer(t.Context(), lb.ID, cloudsim.UpdateLoadBalancer{Labels: lb.Labels, LoadBalancerSpec: spec}, lb.Revision); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the listener is repaired, and the target that is no Node is removed", func() bool {
		now := p.onlyLoadBalancer(t)
		return now.ID == lb.ID && now.Listeners[0].Port == 80 && len(now.Targets) == 0
	})
}

func TestRepairOfAWipedStatus(t *testing.T) {
	p, lb := newRig(t).startWithBalancer(t)
	s := p.getService(t)
	s.Status.LoadBalancer = v1.LoadBalancerStatus{}
	if _, err := p.kube.CoreV1().Services("default").UpdateStatus(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the Service shows its address again", func() bool {
		ingress := p.getService(t).Status.LoadBalancer.Ingress
		return len(ingress) == 1 && ingress[0].IP == lb.IP
	})
}

// If the cloud has deleted the instance of a Node, this Node cannot be a target of the load
// balancer. The repairer does not report the missing target as a difference. It also reports no
// difference before the first creation of the load balancer.
func TestNoDrift(t *testing.T) {
	r := newRig(t)
	existing, gone := initializedNode(r.createMachine(t, "node-1")), r.createMachine(t, "node-2")
	if _, err := r.cloud.DeleteInstance(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the instance is gone", func() bool {
		_, err := r.cloud.GetInstance(t.Context(), gone.ID)
		return errors.Is(err, cloudsim.NotFound)
	})
	r.startMirror(t)
	s := newService()
	for _, step := range []func(){
		func() {}, // the load balancer does not exist yet
		func() { s.Status.LoadBalancer = *r.ensure(t, s, existing) },
	} {
		step()
		eventually.True(t, "the repairer finds no difference", func() bool { // the mirror may get the change later
			why, err := r.provider.Drift(t.Context(), cluster, s, existing, initializedNode(gone))
			return err == nil && why == ""
		})
	}
	eventually.True(t, "the repairer finds a difference without the Node", func() bool {
		why, err := r.provider.Drift(t.Context(), cluster, s)
		return err == nil && why != ""
	})
}

// When a Service changes, upstream's controller acts before the repairer. The
// repairer acts only when the Service has not changed for the settle time. If a
// change of another object triggers a check earlier, the repairer still waits.
func TestRepairerWaitsForController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := normalPeriodsAt(t, 4*time.Second)
		p.postService(t, newService())
		awaitEverySecond(t, time.Minute, "the Service has its address", func() bool { return addressed(p.getService(t)) })
		time.Sleep(10 * time.Second)
		lb := p.onlyLoadBalancer(t)
		spec := lb.LoadBalancerSpec
		spec.Listeners = []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 9999, TargetPort: 9999}}
		if _, err := p.cloud.UpdateLoadBalancer(t.Context(), lb.ID, cloudsim.UpdateLoadBalancer{Labels: lb.Labels, LoadBalancerSpec: spec}, lb.Revision); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		p.wire.spoil(func(_ int, req *http.Request) fault {
			if req.Method != http.MethodPut {
				return fault{}
			}
			return fault{status: http.StatusForbidden, body: `{"status":403,"kind":"denied"}`} // the CCM does not retry this error
		})
		p.update(t, func(s *v1.Service) { s.Spec.Ports[0].Port = 81 })
		time.Sleep(3 * time.Second) // a second before the end of this wait, the change of the load balancer triggers the repairer
		if calls := p.wire.takeCalls(true); len(calls) != 1 {
			t.Errorf("calls 3 s after the Service changed: got %v, want only one of upstream's controller", calls)
		}
		time.Sleep(1500 * time.Millisecond) // upstream retries only after 5 s, so the next call comes from the repairer
		if calls := p.wire.takeCalls(true); len(calls) != 2 {
			t.Errorf("calls 4.5 s after the Service changed: got %v, want one of upstream's controller and one of the repairer", calls)
		}
		p.wire.spoil(nil)
		awaitEverySecond(t, time.Minute, "the load balancer matches the Service", func() bool { return p.onlyLoadBalancer(t).Listeners[0].Port == 81 })
	})
}
