package ccm_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func (r *rig) runAllocator(t *testing.T, clusterCIDR, clusterName string, nodes ...*v1.Node) *fake.Clientset {
	t.Helper()
	kube := fake.NewClientset()
	r.allocatingIn(t, kube, clusterCIDR, clusterName, nodes...)
	return kube
}

func (r *rig) allocatingIn(t *testing.T, kube *fake.Clientset, clusterCIDR, routes string, nodes ...*v1.Node) {
	t.Helper()
	for _, n := range nodes {
		if _, err := kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	shared := informers.NewSharedInformerFactory(kube, 0)
	run, err := r.provider.RunAllocator(ctx, kube, shared.Core().V1().Nodes(), clusterCIDR, routes)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); run() }()
	t.Cleanup(func() { cancel(); <-done; shared.Shutdown() })
	startInformers(t, kube, shared, ctx.Done())
}

// newPodRig starts a cloud with pod ranges of both families in its default
// network.
func newPodRig(t *testing.T, options ...cloudtest.Option) *rig {
	t.Helper()
	r := newRig(t, append(options, cloudtest.WithConfig(func(c *engine.Config) { c.Instances6 = netip.MustParsePrefix("fd64::/64") }))...)
	l, err := r.cloud.ListNetworks(t.Context(), cloudsim.ListOptions{Name: cloudsim.DefaultNetwork})
	if err != nil || len(l.Items) != 1 {
		t.Fatalf("default network: got %+v, %v", l.Items, err)
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
	r := newPodRig(t)
	i := r.createMachine(t, "node-1")
	if len(i.PodRanges) != 2 {
		t.Fatalf("pod ranges of the instance: got %v", i.PodRanges)
	}
	kube := r.runAllocator(t, "10.244.0.0/16,fd10:244::/56", "", newNode("node-1")) // this Node is not initialized
	eventually.True(t, "the Node has its ranges", func() bool {
		n, err := kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		return err == nil && cmp.Equal(n.Spec.PodCIDRs, i.PodRanges) && n.Spec.PodCIDR == i.PodRanges[0]
	})
}

// A Node without a provider id and without the taint of a new Node does not belong to the cloud.
// It gets no ranges, even if an instance has the name of the Node.
func TestNoRangesForForeignNodes(t *testing.T) {
	r := newPodRig(t)
	r.createMachine(t, "node-1")
	other := r.createMachine(t, "node-2")
	n := newNode("node-1")
	n.Spec.Taints = nil
	kube := r.runAllocator(t, "10.244.0.0/16,fd10:244::/56", "", n)
	if _, err := kube.CoreV1().Nodes().Create(t.Context(), newNode("node-2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "node-2 has its ranges", func() bool { return slices.Equal(podCIDRs(t, kube, "node-2"), other.PodRanges) })
	if got := podCIDRs(t, kube, "node-1"); len(got) > 0 {
		t.Errorf("pod ranges of the Node: got %v", got)
	}
}

func TestNodesWithoutARange(t *testing.T) {
	for name, tc := range map[string]struct {
		rig         func(*testing.T) *rig
		clusterCIDR string
		says        string
	}{
		"network without pod ranges":         {func(t *testing.T) *rig { return newRig(t) }, "10.244.0.0/16", "CIDRNotAvailable"},
		"pod range outside the cluster CIDR": {func(t *testing.T) *rig { return newPodRig(t) }, "10.100.0.0/16", "CIDRAssignmentFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.rig(t)
			r.createMachine(t, "node-1")
			kube := r.runAllocator(t, tc.clusterCIDR, "", newNode("node-1"))
			eventually.True(t, "the Node has an event "+tc.says, func() bool { return strings.Contains(r.takeEvents(), tc.says) })
			n, err := kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
			if err != nil || len(n.Spec.PodCIDRs) != 0 {
				t.Errorf("pod ranges of the Node: got %v, %v", n.Spec.PodCIDRs, err)
			}
		})
	}
}

func podCIDRs(t *testing.T, kube *fake.Clientset, name string) []string {
	t.Helper()
	n, err := kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Spec.PodCIDRs
}

// A Node with ranges can run pods. So the CCM first creates the routes and then writes the ranges.
// The framework deletes routes to ranges that no Node has. So until the CCM has written the ranges,
// ListRoutes does not return the new routes to the framework, and DeleteRoute does not delete them.
func TestRangesAreRoutedFirst(t *testing.T) {
	r := newPodRig(t, withSlowProfile(func(p *engine.Profile) { p.Network = time.Hour }))
	i := r.createMachine(t, "node-1")
	kube := r.runAllocator(t, "10.244.0.0/16,fd10:244::/56", cluster, newNode("node-1"))
	made := func() (destinations []string) {
		t.Helper()
		l, err := r.cloud.ListRoutes(t.Context(), cloudsim.ListOptions{Labels: map[string]string{ccm.LabelCluster: cluster}})
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range l.Items {
			destinations = append(destinations, route.Destination)
		}
		return destinations
	}
	eventually.True(t, "the cloud creates the first route", func() bool { return slices.Equal(made(), i.PodRanges[:1]) })
	l, err := r.cloud.ListRoutes(t.Context(), cloudsim.ListOptions{})
	if err != nil || len(l.Items) != 1 {
		t.Fatal(l.Items, err)
	}
	seen := &cloudprovider.Route{Name: string(l.Items[0].ID), DestinationCIDR: l.Items[0].Destination} // the framework may have this route from an earlier list
	if err := r.routes().DeleteRoute(t.Context(), cluster, seen); err != nil {
		t.Fatal(err)
	}
	if now, err := r.cloud.GetRoute(t.Context(), l.Items[0].ID); err != nil || now.State != cloudsim.RouteCreating {
		t.Errorf("the framework deleted the route: %+v, %v", now, err)
	}
	if got := podCIDRs(t, kube, "node-1"); len(got) != 0 {
		t.Errorf("pod ranges of the Node before its route exists: got %v, want none", got)
	}
	if got := r.listRoutes(t, cluster); len(got) != 0 {
		t.Errorf("routes that the framework sees: got %v, want none", got)
	}
	eventually.True(t, "the Node has its ranges", func() bool {
		r.hourLater(t)
		return slices.Equal(podCIDRs(t, kube, "node-1"), i.PodRanges)
	})
	if got := made(); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(i.PodRanges))) {
		t.Errorf("destinations of the routes: got %v, want %v", got, i.PodRanges)
	}
	eventually.True(t, "the framework sees the routes", func() bool { return len(r.listRoutes(t, cluster)) == 2 })
}

// If a Node is deleted while the cloud creates the first route to the Node, ListRoutes returns this
// route, so that the framework can delete the route.
func TestRouteOfNodeDeletedDuringCreation(t *testing.T) {
	r := newPodRig(t, withSlowProfile(func(p *engine.Profile) { p.Network = time.Hour }))
	r.createMachine(t, "node-1")
	kube := r.runAllocator(t, "10.244.0.0/16,fd10:244::/56", cluster, newNode("node-1"))
	eventually.True(t, "the cloud creates a route", func() bool {
		l, err := r.cloud.ListRoutes(t.Context(), cloudsim.ListOptions{})
		return err == nil && len(l.Items) == 1
	})
	if err := kube.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the framework sees the route", func() bool { return len(r.listRoutes(t, cluster)) == 1 })
}

// If a Node is deleted before the CCM writes its ranges, the patch with the ranges finds no Node.
// ListRoutes then returns the routes to these ranges, so that the framework can delete the routes.
func TestRoutesIfPatchFindsNoNode(t *testing.T) {
	r := newPodRig(t)
	i := r.createMachine(t, "node-1")
	kube := fake.NewClientset()
	kube.PrependReactor("patch", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(v1.Resource("nodes"), "node-1")
	})
	r.allocatingIn(t, kube, "10.244.0.0/16,fd10:244::/56", cluster, newNode("node-1"))
	eventually.True(t, "the framework sees the routes", func() bool { return len(r.listRoutes(t, cluster)) == len(i.PodRanges) })
}

// A Node gets its ranges even if the cloud refuses the route to these ranges. Upstream's controller
// then sets the condition NetworkUnavailable, so that Kubernetes schedules no pods on the Node.
func TestRangesWithoutARoute(t *testing.T) {
	r := newPodRig(t)
	i, other := r.createMachine(t, "node-1"), r.createMachine(t, "by-hand")
	if _, err := r.cloud.CreateRoute(t.Context(), cloudsim.CreateRoute{Name: "by-hand", Destination: i.PodRanges[0], NextHop: other.ID}); err != nil {
		t.Fatal(err)
	}
	kube := r.runAllocator(t, "10.244.0.0/16,fd10:244::/56", cluster, newNode("node-1"))
	eventually.True(t, "the Node has its ranges", func() bool { return slices.Equal(podCIDRs(t, kube, "node-1"), i.PodRanges) })
}

// For a route, the CCM finds the instance by the Node's name. So if a Node and its instance have
// different names, the CCM cannot create a route. The CCM still writes the pod ranges to the Node.
func TestRangesOfANodeOfAnotherName(t *testing.T) {
	r := newPodRig(t)
	i := r.createMachine(t, "node-1")
	n := initializedNode(i)
	n.Name = "other"
	kube := r.runAllocator(t, "10.244.0.0/16,fd10:244::/56", cluster, n)
	eventually.True(t, "the Node has its ranges", func() bool { return slices.Equal(podCIDRs(t, kube, "other"), i.PodRanges) })
}

// The patch with the ranges contains the UID of the Node. Without the UID, a new Node with the same
// name could get the ranges of the deleted Node. Kubernetes does not allow a later change of
// ranges, so the CCM could not correct this error.
func TestRangePatchContainsNodeUID(t *testing.T) {
	r := newPodRig(t)
	r.createMachine(t, "node-1")
	kube := fake.NewClientset()
	patches := make(chan string, 10)
	kube.PrependReactor("patch", "nodes", func(a kubetesting.Action) (bool, runtime.Object, error) {
		patches <- string(a.(kubetesting.PatchAction).GetPatch())
		return false, nil, nil
	})
	n := newNode("node-1")
	n.UID = "of-the-first"
	r.allocatingIn(t, kube, "10.244.0.0/16,fd10:244::/56", "", n)
	if patch := <-patches; !strings.Contains(patch, `"uid":"of-the-first"`) {
		t.Errorf("patch with the ranges: got %s, want the UID of-the-first", patch)
	}
}
