package ccm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// startWithOrphan starts a cloud with load balancers of an existing Service,
// of a deleted Service, and of other owners. The load balancer of the deleted
// Service is the orphan. startWithOrphan returns this load balancer.
func startWithOrphan(t *testing.T, cfg ccm.Config) (*rig, *fake.Clientset, cloudsim.LoadBalancer) {
	t.Helper()
	r := newRig(t)
	r.cfg = cfg
	r.provider = r.restarted()
	existing, gone := newService(), newService(func(s *v1.Service) { s.Name, s.UID = "gone", "99999999-1111-2222-3333-444455556666" })
	r.ensure(t, existing)
	r.ensure(t, gone)
	_, err := r.balancers().EnsureLoadBalancer(t.Context(), "another-cluster", newService(func(s *v1.Service) { s.UID = "88888888-1111-2222-3333-444455556666" }), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.cloud.CreateLoadBalancer(t.Context(), cloudsim.CreateLoadBalancer{Name: "by-hand", Region: "sim-1", LoadBalancerSpec: r.balancersInCloud(t)[0].LoadBalancerSpec}); err != nil {
		t.Fatal(err)
	}
	r.startMirror(t)
	for _, lb := range r.balancersInCloud(t) {
		if lb.Labels[ccm.LabelServiceUID] == string(gone.UID) {
			return r, fake.NewClientset(existing), lb
		}
	}
	t.Fatal("there is no orphaned load balancer")
	return nil, nil, cloudsim.LoadBalancer{}
}

func TestOrphanIsReportedOnce(t *testing.T) {
	r, kube, orphan := startWithOrphan(t, ccm.Config{})
	sweep := r.provider.Sweeper(kube, cluster)
	for range 3 {
		if err := sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	events := r.takeEvents()
	if strings.Count(events, "OrphanedLoadBalancer") != 1 || !strings.Contains(events, string(orphan.ID)) || !strings.Contains(events, "--delete-orphans") {
		t.Errorf("events: got %q, want one event OrphanedLoadBalancer with the id %s and --delete-orphans", events, orphan.ID)
	}
	if n := len(r.balancersInCloud(t)); n != 4 {
		t.Errorf("load balancers after the sweeps: got %d, want 4", n)
	}
}

func TestOrphanIsDeletedAfterTheGrace(t *testing.T) {
	r, kube, orphan := startWithOrphan(t, ccm.Config{DeleteOrphans: true, OrphanGrace: metav1.Duration{Duration: 30 * time.Millisecond}})
	sweep := r.provider.Sweeper(kube, cluster)
	if err := sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.balancersInCloud(t)); n != 4 {
		t.Errorf("got %d of 4 load balancers within the grace period", n)
	}
	eventually.True(t, "the orphan is gone", func() bool {
		if err := sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(r.balancersInCloud(t)) == 3
	})
	for _, lb := range r.balancersInCloud(t) {
		if lb.ID == orphan.ID {
			t.Error("the CCM deleted another load balancer")
		}
	}
}

func TestNoOrphansWithoutTheAPIServer(t *testing.T) {
	r, kube, _ := startWithOrphan(t, ccm.Config{DeleteOrphans: true, OrphanGrace: metav1.Duration{Duration: 1}})
	kube.PrependReactor("list", "services", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errCut
	})
	sweep := r.provider.Sweeper(kube, cluster)
	for range 3 {
		if err := sweep(t.Context()); err == nil {
			t.Fatal("the sweep returned no error")
		}
	}
	if n := len(r.balancersInCloud(t)); n != 4 {
		t.Errorf("load balancers after the failed sweeps: got %d, want 4", n)
	}
}

// A deleted Service can leave two things in the cloud: its own load balancer, and its ports in a
// load balancer that it shared with other Services. The sweeper deletes both.
func TestOrphansOfOneService(t *testing.T) {
	r, kube, orphan := startWithOrphan(t, ccm.Config{DeleteOrphans: true, OrphanGrace: metav1.Duration{Duration: 1}})
	second, err := r.cloud.CreateLoadBalancer(t.Context(), cloudsim.CreateLoadBalancer{
		Name: "k8s-shared-one", Region: "sim-1", LoadBalancerSpec: orphan.LoadBalancerSpec,
		Labels: map[string]string{
			ccm.LabelCluster: cluster, ccm.LabelShared: "default/front",
			"service.kubernetes.io/" + orphan.Labels[ccm.LabelServiceUID]: "default/gone",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sweep := r.provider.Sweeper(kube, cluster)
	eventually.True(t, "both orphans are deleted", func() bool {
		if err := sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(r.balancersInCloud(t)) == 3
	})
	events := r.takeEvents()
	for _, id := range []cloudsim.LoadBalancerID{orphan.ID, second.ID} {
		if !strings.Contains(events, "DeletedOrphan Deleted the load balancer "+string(id)) {
			t.Errorf("events: got %q, want an event DeletedOrphan with the id %s", events, id)
		}
	}
}

// The load balancer of an existing Service can also become an orphan. In the first case of this
// test, the Service no longer has the type LoadBalancer, and a person has removed its finalizer. In
// the second case, the Service has the class of another controller, and its status does not contain
// the address of this load balancer. While the status contains this address, the load balancer is
// not an orphan, because the other controller can still use it.
func TestOrphanOfExistingService(t *testing.T) {
	for name, tc := range map[string]struct {
		keeps, leaves func(*v1.Service, cloudsim.LoadBalancer)
	}{
		"Service of another type": {
			func(s *v1.Service, _ cloudsim.LoadBalancer) { s.Spec.Type = v1.ServiceTypeClusterIP },
			func(s *v1.Service, _ cloudsim.LoadBalancer) { s.Finalizers = nil },
		},
		"Service of another class": {
			func(s *v1.Service, lb cloudsim.LoadBalancer) {
				ofClass("example.com/other")(s)
				s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: lb.IP}}
			},
			func(s *v1.Service, _ cloudsim.LoadBalancer) { s.Status.LoadBalancer.Ingress[0].IP = "192.0.2.1" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, orphan := startWithOrphan(t, ccm.Config{DeleteOrphans: true, OrphanGrace: metav1.Duration{Duration: 1}})
			gone := newService(func(s *v1.Service) {
				s.Name, s.UID = "gone", types.UID(orphan.Labels[ccm.LabelServiceUID])
				s.Finalizers = []string{servicehelpers.LoadBalancerCleanupFinalizer}
				tc.keeps(s, orphan)
			})
			kube := fake.NewClientset(newService(), gone)
			sweep := r.provider.Sweeper(kube, cluster)
			for range 3 {
				if err := sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n, events := len(r.balancersInCloud(t)), r.takeEvents(); n != 4 || events != "" {
				t.Fatalf("got %d of 4 load balancers and the events %q; want all load balancers and no events", n, events)
			}
			tc.leaves(gone, orphan)
			if _, err := kube.CoreV1().Services(gone.Namespace).Update(t.Context(), gone, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually.True(t, "the orphan is gone", func() bool {
				if err := sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				return len(r.balancersInCloud(t)) == 3
			})
		})
	}
}

// Before the sweeper deletes an orphan, it gets the Service by name from the API server. The reason
// is that a list of the API server can be incomplete, for example while an administrator restores a
// backup.
func TestOrphanIsConfirmed(t *testing.T) {
	r, kube, _ := startWithOrphan(t, ccm.Config{DeleteOrphans: true, OrphanGrace: metav1.Duration{Duration: 1}})
	kube.PrependReactor("list", "services", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &v1.ServiceList{}, nil // an incomplete list
	})
	sweep := r.provider.Sweeper(kube, cluster)
	for range 3 {
		if err := sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	left := r.balancersInCloud(t)
	if len(left) != 3 || !slices.ContainsFunc(left, func(lb cloudsim.LoadBalancer) bool { return lb.Labels[ccm.LabelServiceUID] == string(newService().UID) }) {
		t.Errorf("remaining load balancers: got %+v, want all but the orphan", left)
	}
	kube.PrependReactor("get", "services", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errCut })
	if err := sweep(t.Context()); err == nil {
		t.Error("the CCM treated a Service as deleted although the API server did not answer")
	}
}
