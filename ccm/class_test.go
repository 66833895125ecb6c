package ccm_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/cloudsim-dev/allinone/ccm"
)

func ofClass(class string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.LoadBalancerClass = &class }
}

// create makes the Service that p.service reads.
func (p plane) create(t *testing.T, change ...func(*v1.Service)) {
	t.Helper()
	p.post(t, service(change...))
}

func TestClassIsServedFromCreateToDelete(t *testing.T) {
	p := newRig(t).start(t)
	p.create(t, ofClass(ccm.DefaultLoadBalancerClass))
	eventually(t, "it has an address", func() bool { return len(p.service(t).Status.LoadBalancer.Ingress) == 1 })
	s := p.service(t)
	if s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass != ccm.DefaultLoadBalancerClass {
		t.Errorf("its class became %v", s.Spec.LoadBalancerClass)
	}
	if !servicehelpers.HasLBFinalizer(s) {
		t.Error("it has no finalizer")
	}
	// The fake API server knows no finalizers: mark it as the real one would.
	p.update(t, func(s *v1.Service) { now := metav1.Now(); s.DeletionTimestamp = &now })
	eventually(t, "load balancer and finalizer are gone", func() bool {
		s, err := p.kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		return len(p.balancersInCloud(t)) == 0 && (apierrors.IsNotFound(err) || err == nil && !servicehelpers.HasLBFinalizer(s))
	})
}

// A Service of somebody else's class is left to him, with what he wrote on it.
func TestForeignClassIsLeftAlone(t *testing.T) {
	p := newRig(t).start(t)
	p.create(t, ofClass("example.com/other"), func(s *v1.Service) {
		s.Finalizers = []string{servicehelpers.LoadBalancerCleanupFinalizer}
		now := metav1.Now()
		s.DeletionTimestamp = &now
	})
	ours := service(func(s *v1.Service) { s.Name, s.UID = "ours", "77777777-1111-2222-3333-444455556666" })
	if _, err := p.kube.CoreV1().Services("default").Create(t.Context(), ours, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ours, which came later, is served", func() bool { return len(p.balancersInCloud(t)) == 1 })
	if s := p.service(t); !servicehelpers.HasLBFinalizer(s) || len(s.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("the foreign one became %+v", s)
	}
}

func TestOnlyTheClass(t *testing.T) {
	r := newRig(t)
	r.cfg = ccm.Config{LoadBalancerClass: "example.com/ours", OnlyLoadBalancerClass: true}
	r.provider = r.again()
	p := r.start(t)
	p.create(t)
	classed := service(ofClass("example.com/ours"), func(s *v1.Service) { s.Name, s.UID = "ours", "77777777-1111-2222-3333-444455556666" })
	if _, err := p.kube.CoreV1().Services("default").Create(t.Context(), classed, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the classed one, which came later, is served", func() bool { return len(p.balancersInCloud(t)) == 1 })
	if lb := p.only(t); lb.Labels[ccm.LabelServiceName] != "ours" {
		t.Errorf("served was %v", lb.Labels)
	}
	if s := p.service(t); slices.Contains(s.Finalizers, servicehelpers.LoadBalancerCleanupFinalizer) {
		t.Error("the one without a class has our finalizer")
	}
}
