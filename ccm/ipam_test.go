package ccm_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// allocating runs an allocator over these nodes.
func (r *rig) allocating(t *testing.T, clusterCIDR string, nodes ...*v1.Node) *fake.Clientset {
	t.Helper()
	kube := fake.NewClientset()
	for _, n := range nodes {
		if _, err := kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	shared := informers.NewSharedInformerFactory(kube, 0)
	run, err := r.provider.RunAllocator(ctx, kube, shared.Core().V1().Nodes(), clusterCIDR)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); run() }()
	shared.Start(ctx.Done())
	t.Cleanup(func() { cancel(); <-done; shared.Shutdown() })
	return kube
}

// podded is a cloud whose default network gives pod ranges of both families.
func podded(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, cloudtest.WithConfig(func(c *engine.Config) { c.Instances6 = netip.MustParsePrefix("fd64::/64") }))
	l, err := r.cloud.ListNetworks(t.Context(), cloudsim.ListOptions{Name: cloudsim.DefaultNetwork})
	if err != nil || len(l.Items) != 1 {
		t.Fatalf("the default network: %+v, %v", l.Items, err)
	}
	n := l.Items[0]
	spec := n.NetworkSpec
	spec.PodRanges = cloudsim.PodRanges{IPv4: "10.244.0.0/16", IPv6: "fd10:244::/56"}
	if _, err := r.cloud.UpdateNetwork(t.Context(), n.ID, cloudsim.UpdateNetwork{Labels: n.Labels, NetworkSpec: spec}, 0); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNodesGetTheRangesOfTheirInstances(t *testing.T) {
	r := podded(t)
	i := r.machine(t, "node-1")
	if len(i.PodRanges) != 2 {
		t.Fatalf("the instance has %v", i.PodRanges)
	}
	kube := r.allocating(t, "10.244.0.0/16,fd10:244::/56", node("node-1")) // not even initialised
	eventually(t, "the Node has its ranges", func() bool {
		n, err := kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		return err == nil && cmp.Equal(n.Spec.PodCIDRs, i.PodRanges) && n.Spec.PodCIDR == i.PodRanges[0]
	})
}

// What would not be routed, or is not there, is told to the Node.
func TestNodesWithoutARange(t *testing.T) {
	for name, tc := range map[string]struct {
		rig         func(*testing.T) *rig
		clusterCIDR string
		says        string
	}{
		"a network that gives none":   {func(t *testing.T) *rig { return newRig(t) }, "10.244.0.0/16", "CIDRNotAvailable"},
		"a range outside the cluster": {podded, "10.100.0.0/16", "CIDRAssignmentFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.rig(t)
			r.machine(t, "node-1")
			kube := r.allocating(t, tc.clusterCIDR, node("node-1"))
			eventually(t, "the Node is told", func() bool { return strings.Contains(r.said(), tc.says) })
			n, err := kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
			if err != nil || len(n.Spec.PodCIDRs) != 0 {
				t.Errorf("it has %v, %v", n.Spec.PodCIDRs, err)
			}
		})
	}
}
