package ccm_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func ofClass(class string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.LoadBalancerClass = &class }
}

func (p plane) createService(t *testing.T, change ...func(*v1.Service)) {
	t.Helper()
	p.postService(t, newService(change...))
}

func TestClassIsServedFromCreateToDelete(t *testing.T) {
	p := newRig(t).start(t)
	p.createService(t, ofClass(ccm.DefaultLoadBalancerClass))
	eventually.True(t, "the Service has an address", func() bool { return len(p.getService(t).Status.LoadBalancer.Ingress) == 1 })
	s := p.getService(t)
	if s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass != ccm.DefaultLoadBalancerClass {
		t.Errorf("class of the Service: got %v, want the class of the CCM", s.Spec.LoadBalancerClass)
	}
	if !servicehelpers.HasLBFinalizer(s) {
		t.Error("the Service has no finalizer")
	}
	// The fake API server does not support finalizers. So the test sets the
	// deletion time in the same way as a real API server.
	p.update(t, func(s *v1.Service) { now := metav1.Now(); s.DeletionTimestamp = &now })
	eventually.True(t, "load balancer and finalizer are gone", func() bool {
		s, err := p.kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		return len(p.balancersInCloud(t)) == 0 && (apierrors.IsNotFound(err) || err == nil && !servicehelpers.HasLBFinalizer(s))
	})
}

func TestForeignClassIsIgnored(t *testing.T) {
	p := newRig(t).start(t)
	p.createService(t, ofClass("example.com/other"), func(s *v1.Service) {
		s.Finalizers = []string{servicehelpers.LoadBalancerCleanupFinalizer}
		now := metav1.Now()
		s.DeletionTimestamp = &now
	})
	second := newService(func(s *v1.Service) { s.Name, s.UID = "ours", "77777777-1111-2222-3333-444455556666" })
	if _, err := p.kube.CoreV1().Services("default").Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the second Service has a load balancer", func() bool { return len(p.balancersInCloud(t)) == 1 })
	if s := p.getService(t); !servicehelpers.HasLBFinalizer(s) || len(s.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("the CCM changed the Service of another class: %+v", s)
	}
}

func TestServiceWithoutClassIsIgnored(t *testing.T) {
	r := newRig(t)
	r.cfg = ccm.Config{LoadBalancerClass: "example.com/ours", OnlyLoadBalancerClass: true}
	r.provider = r.restarted()
	p := r.start(t)
	p.createService(t)
	classed := newService(ofClass("example.com/ours"), func(s *v1.Service) { s.Name, s.UID = "ours", "77777777-1111-2222-3333-444455556666" })
	if _, err := p.kube.CoreV1().Services("default").Create(t.Context(), classed, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the Service with the class has a load balancer", func() bool { return len(p.balancersInCloud(t)) == 1 })
	if lb := p.onlyLoadBalancer(t); lb.Labels[ccm.LabelServiceName] != "ours" {
		t.Errorf("labels of the load balancer: got %v", lb.Labels)
	}
	if s := p.getService(t); slices.Contains(s.Finalizers, servicehelpers.LoadBalancerCleanupFinalizer) {
		t.Error("the Service without a class has the finalizer of the CCM")
	}
}

// A Service of another controller loses its class when a user changes its type. The CCM still does
// not change this Service.
func TestRemovedForeignClassIsIgnored(t *testing.T) {
	for name, only := range map[string]bool{"of another class": false, "of none": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.cfg = ccm.Config{OnlyLoadBalancerClass: only}
			r.provider = r.restarted()
			p := r.start(t)
			p.createService(t, func(s *v1.Service) {
				if s.Finalizers = []string{servicehelpers.LoadBalancerCleanupFinalizer}; !only {
					ofClass("example.com/other")(s)
				}
				s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			})
			p.update(t, func(s *v1.Service) { s.Spec.Type, s.Spec.LoadBalancerClass = v1.ServiceTypeClusterIP, nil })
			second := newService(ofClass(ccm.DefaultLoadBalancerClass), func(s *v1.Service) { s.Name, s.UID = "ours", "77777777-1111-2222-3333-444455556666" })
			if _, err := p.kube.CoreV1().Services("default").Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually.True(t, "the second Service has a load balancer", func() bool { return len(p.balancersInCloud(t)) == 1 })
			if s := p.getService(t); !servicehelpers.HasLBFinalizer(s) || len(s.Status.LoadBalancer.Ingress) != 1 {
				t.Errorf("the CCM changed the Service of another controller: %+v", s)
			}
			if servicehelpers.HasLBFinalizer(r.provider.View(p.getService(t))) {
				t.Error("the Service that upstream's controller sees has the finalizer, so upstream's controller would act on the finalizer of another controller")
			}
		})
	}
}

// A Service loses its class when its type changes. A CCM that starts after this
// change removes the finalizer only if a proof shows that a CCM of this cloud
// added the finalizer. The test uses two proofs: a load balancer of the Service
// in the cloud, and an entry in managedFields with the name of this program.
func TestFinalizerOfUnknownOwner(t *testing.T) {
	r := newRig(t)
	gone := newService(func(s *v1.Service) {
		s.Spec.Type, s.Finalizers = v1.ServiceTypeClusterIP, []string{servicehelpers.LoadBalancerCleanupFinalizer}
	})
	get := func() (bool, error) {
		_, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, r.provider.View(gone))
		return exists, err
	}
	if exists, err := get(); exists || err == nil || !strings.Contains(err.Error(), servicehelpers.LoadBalancerCleanupFinalizer) {
		t.Errorf("finalizer of an unknown owner: got exists=%v, error %v; want an error that names the finalizer", exists, err)
	}
	r.ensure(t, newService())
	if exists, err := get(); !exists || err != nil {
		t.Errorf("existing load balancer: got exists=%v, error %v; want exists=true", exists, err)
	}
	if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, gone); err != nil {
		t.Fatal(err)
	}
	if exists, err := get(); exists || err != nil {
		t.Errorf("deleted load balancer: got exists=%v, error %v; want exists=false", exists, err)
	}
	r.provider = r.restarted() // as after a restart: the new provider does not know the owner of the finalizer
	me, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	fields := metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{".":{},"v:\"service.kubernetes.io/load-balancer-cleanup\"":{}}}}`)
	for _, by := range []string{"another", me} {
		gone.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: by, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: fields}}
		if exists, err := get(); exists || (err == nil) != (by == me) {
			t.Errorf("deleted load balancer, finalizer written by %s: got exists=%v, error %v; want exists=false, and an error only if the writer is %s", by, exists, err, me)
		}
	}
}
