package ccm_test

import (
	"testing"
	"testing/synctest"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/cloudsim-dev/allinone/ccm"
)

// If the first read of the Lease fails, the process reads the Lease again. When the process stops,
// it releases the Lease.
func TestLeaseIsReleasedAfterFailedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "main"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("me")},
		})
		reads := 0
		kube.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			reads++
			return reads == 1, nil, apierrors.NewServiceUnavailable("the test")
		})
		api := kube.CoordinationV1().Leases("kube-system")
		if err := ccm.AcquireAndRelease(t.Context(), api, "main"); err != nil {
			t.Fatal(err)
		}
		l, err := api.Get(t.Context(), "main", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if holder := *l.Spec.HolderIdentity; holder != "" {
			t.Errorf("Lease: got holder %q, want no holder", holder)
		}
	})
}
