package fake

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cloudsim-dev/allinone/conform"
)

// TestSharedPortsAfterFailedCalls proves that a shared load balancer gets the right ports if the
// cloud refuses a change, or if the reply of the cloud is lost. The CCM repeats each failed call.
func TestSharedPortsAfterFailedCalls(t *testing.T) {
	for _, kind := range []conform.FaultKind{conform.FaultError, conform.FaultLoseReply} {
		t.Run(string(kind), func(t *testing.T) {
			cloud, ctx := NewCloud(), t.Context()
			p := &provider{cloud: cloud, shared: map[types.UID][]conform.Port{}}
			service := func(name string) *v1.Service {
				return &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name), Annotations: map[string]string{annotationShared: "lb"}}}
			}
			a, b := service("a"), service("b")
			ensure := func(s *v1.Service, port int32) error {
				s.Spec.Ports = []v1.ServicePort{{Protocol: v1.ProtocolTCP, Port: port}}
				_, err := p.EnsureLoadBalancer(ctx, "", s, nil)
				return err
			}
			remove := func(s *v1.Service) error { return p.EnsureLoadBalancerDeleted(ctx, "", s) }
			fail := func(call string, try func() error) {
				t.Helper()
				if err := cloud.SetFault(ctx, conform.Fault{Kind: kind, Call: call}); err != nil {
					t.Fatal(err)
				}
				if err := try(); err == nil {
					t.Error("the call did not fail")
				}
				if err := cloud.ClearFault(ctx); err != nil {
					t.Fatal(err)
				}
			}
			succeed := func(try func() error, want ...int32) {
				t.Helper()
				if err := try(); err != nil {
					t.Error(err)
				}
				var got []int32
				lb, _, err := cloud.loadBalancer(ctx, "n/lb")
				for _, port := range lb.Ports {
					got = append(got, port.Port)
				}
				if slices.Sort(got); err != nil || !slices.Equal(got, want) {
					t.Errorf("ports: got %d, error %v; want %d", got, err, want)
				}
			}
			succeed(func() error { return ensure(b, 1000) }, 1000)
			fail("loadBalancers.put", func() error { return ensure(a, 1) })
			succeed(func() error { return ensure(a, 1) }, 1, 1000)
			fail("loadBalancers.put", func() error { return ensure(a, 2) })
			succeed(func() error { return ensure(a, 3) }, 3, 1000)
			fail("loadBalancers.put", func() error { return remove(a) })
			if _, found, err := p.GetLoadBalancer(ctx, "", a); !found || err != nil {
				t.Errorf("load balancer of a Service after a failed deletion: got %v, error %v, want true", found, err)
			}
			succeed(func() error { return remove(a) }, 1000)
			fail("loadBalancers.delete", func() error { return remove(b) })
			succeed(func() error { return remove(b) })
			if p.sharer(b) {
				t.Error("the CCM still records ports of a deleted Service")
			}
		})
	}
}
