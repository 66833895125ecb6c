package conform

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestCleanupContinuesAfterRefusedService proves that Cleanup deletes the other Services of a run
// although the API server refuses to delete one Service.
func TestCleanupContinuesAfterRefusedService(t *testing.T) {
	service := func(name string) runtime.Object {
		return &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{LabelRun: "one"}}}
	}
	kube := fake.NewClientset(service("a"), service("b"))
	kube.PrependReactor("delete", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d, ok := a.(clienttesting.DeleteAction)
		return ok && d.GetName() == "a", nil, apierrors.NewForbidden(v1.Resource("services"), "a", errors.New("a webhook refuses the deletion"))
	})
	err := CleanupConfig{Run: "one", Timeout: time.Second}.deleteServices(t.Context(), kube)
	if !apierrors.IsForbidden(err) {
		t.Errorf("got the error %v, want the refusal", err)
	}
	left, err := kube.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "a" {
		t.Errorf("Services after the cleanup: %+v, %v; want only a", left.Items, err)
	}
}

// TestServiceOfLostReply proves that the cleanup of a check also deletes a Service if the check got
// no reply to the request that created the Service. For example, a check gets no reply if a user
// interrupts the run.
func TestServiceOfLostReply(t *testing.T) {
	kube := fake.NewClientset()
	kube.PrependReactor("create", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if c, ok := a.(clienttesting.CreateAction); ok {
			if err := kube.Tracker().Add(c.GetObject()); err != nil {
				t.Error(err)
			}
		}
		return true, nil, context.Canceled
	})
	seen := newObserver()
	e := &env{kube: kube, seen: seen, run: "run", prefix: "run-test", timeout: time.Second}
	if _, err := e.service(t.Context(), "web"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got the error %v, want the lost reply", err)
	}
	seen.recordVersion(&v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "run-test-web", Namespace: metav1.NamespaceDefault}}, true)
	if err := e.cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	left, err := kube.CoreV1().Services(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("the cleanup left %d Services, %v", len(left.Items), err)
	}
}
