package ccm_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// With the default rate limits, the cloud refuses no call when the provider
// starts in a cluster of 1,000 nodes. The provider reads the instance of each
// node, creates a route for each node, and creates and updates load balancers.
// In this test the calls take no time, so the rate limits must accept all calls
// as one burst.
func TestThousandNodesAreNotThrottled(t *testing.T) {
	if testing.Short() {
		t.Skip("long test: it creates a thousand routes")
	}
	const many, services = 1000, 20
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cloudtest.InBubble())
		var nodes []*v1.Node
		for i := range many {
			n := initializedNode(r.createMachine(t, fmt.Sprintf("node-%d", i)))
			n.Spec.PodCIDRs = []string{fmt.Sprintf("10.%d.%d.0/24", 128+i/256, i%256)}
			nodes = append(nodes, n)
		}
		r.startMirror(t)
		for _, n := range nodes {
			if _, err := r.instances().InstanceMetadata(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			if exists, err := r.instances().InstanceExists(t.Context(), n); err != nil || !exists {
				t.Fatal(exists, err)
			}
		}
		for i := range services {
			s := newService(func(s *v1.Service) {
				s.Name, s.UID = fmt.Sprint("web-", i), types.UID(fmt.Sprintf("0a0b0c0d-1111-2222-3333-%012d", i))
			})
			if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nodes[:many-1]); err != nil {
				t.Fatal(err)
			}
			if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, nodes); err != nil {
				t.Fatal(err)
			}
		}
		r.runRouteController(t, 0, "10.128.0.0/9", nodes...)
		awaitEverySecond(t, 30*time.Minute, "each Node has a route", func() bool { return len(r.listRoutes(t, cluster)) == many })
		bill, err := r.cloud.Bill(t.Context(), cloudsim.AuditOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var calls uint64
		for _, row := range bill.Rows {
			if row.Caller != "ccm" {
				continue
			}
			calls += row.Calls
			if row.Throttled > 0 {
				t.Errorf("%d of %d calls of %s were throttled", row.Throttled, row.Calls, row.Operation)
			}
		}
		t.Logf("%d calls of the provider", calls)
		if calls < many {
			t.Errorf("calls in the bill: got %d, want at least %d, one for each route", calls, many)
		}
	})
}
