package ccm_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	routecontroller "k8s.io/cloud-provider/controllers/route"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/features"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

const watchedRoutes = features.CloudControllerManagerWatchBasedRoutesReconciliation

// If the feature gate of KEP-5237 is enabled, the informers have a shorter resync period than
// upstream's default. A period that the user has chosen has priority.
func TestResyncForRoutes(t *testing.T) {
	const upstreams = 12 * time.Hour
	for _, tc := range []struct {
		gate, chosen bool
		want         time.Duration
	}{{false, false, upstreams}, {true, true, upstreams}, {true, false, time.Minute}} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, watchedRoutes, tc.gate)
		if got, err := ccm.Resync(tc.chosen); err != nil || got != tc.want {
			t.Errorf("feature gate %t, period of the user %t: resync period: got %s, error %v; want %s", tc.gate, tc.chosen, got, err, tc.want)
		}
	}
}

// With the feature gate of KEP-5237, the CCM creates a route again if the first
// creation failed, or if a person deleted the route. The CCM does this even if
// no Node changes.
func TestRouteRepairWithFeatureGate(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, watchedRoutes, true)
	every, err := ccm.Resync(false)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cloudtest.InBubble())
		n := initializedNode(r.createMachine(t, "node-1"))
		n.Spec.PodCIDRs = []string{"10.244.0.0/24"}
		r.startMirror(t)
		r.wire.spoil(func(_ int, req *http.Request) fault {
			return fault{cut: req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/routes")}
		})
		r.runRouteController(t, every, "10.244.0.0/16", n)
		time.Sleep(40 * time.Second) // wait until upstream has handled the changes of the Node
		r.wire.spoil(nil)
		routeExists := func() bool { return len(r.listRoutes(t, cluster)) == 1 }
		awaitEverySecond(t, 3*time.Minute, "the route exists", routeExists)
		l, err := r.cloud.ListRoutes(t.Context(), cloudsim.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.cloud.DeleteRoute(t.Context(), l.Items[0].ID); err != nil {
			t.Fatal(err)
		}
		awaitEverySecond(t, time.Minute, "the route is deleted", func() bool { return !routeExists() })
		awaitEverySecond(t, 3*time.Minute, "the route exists again", routeExists)
	})
}

// runRouteController runs upstream's route controller for the given nodes until the test ends. The
// test must run in a bubble of synctest.
func (r *rig) runRouteController(t *testing.T, resync time.Duration, clusterCIDR string, nodes ...*v1.Node) *fake.Clientset {
	t.Helper()
	kube := fake.NewClientset()
	for _, n := range nodes {
		if _, err := kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	shared := informers.NewSharedInformerFactory(kube, resync)
	var all []*net.IPNet
	for s := range strings.SplitSeq(clusterCIDR, ",") {
		_, cidr, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, cidr)
	}
	rc, err := routecontroller.New(r.routes(), kube, shared.Core().V1().Nodes(), cluster, all)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { rc.Run(ctx, 10*time.Second, controllersmetrics.NewControllerManagerMetrics("test")) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		shared.Shutdown()
		time.Sleep(time.Minute) // upstream's Run does not wait for a goroutine that creates a route
	})
	startInformers(t, kube, shared, ctx.Done())
	return kube
}

func networkUnavailable(t *testing.T, kube *fake.Clientset, name string) v1.ConditionStatus {
	t.Helper()
	n, err := kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeNetworkUnavailable {
			return c.Status
		}
	}
	return ""
}

// A Node has the condition NetworkUnavailable until its IPv4 pod range and its
// IPv6 pod range each have a route.
func TestNodeWaitsForAllRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cloudtest.InBubble(), cloudtest.WithConfig(func(c *engine.Config) { c.Instances6 = netip.MustParsePrefix("fd64::/64") }))
		n := initializedNode(r.createMachine(t, "node-1"))
		n.Spec.PodCIDRs = []string{"10.244.0.0/24", "fd10:244::/64"}
		r.startMirror(t)
		var posts atomic.Int32
		r.wire.spoil(func(_ int, req *http.Request) fault {
			return fault{cut: req.Method == http.MethodPost && posts.Add(1) > 1}
		})
		kube := r.runRouteController(t, 0, "10.244.0.0/16,fd10:244::/48", n)
		time.Sleep(time.Minute)
		if got := r.listRoutes(t, cluster); len(got) != 1 || networkUnavailable(t, kube, "node-1") != v1.ConditionTrue {
			t.Errorf("got routes %v and NetworkUnavailable %s, want one route and True", got, networkUnavailable(t, kube, "node-1"))
		}
		r.wire.spoil(nil)
		awaitEverySecond(t, time.Minute, "both routes exist", func() bool { return len(r.listRoutes(t, cluster)) == 2 })
		awaitEverySecond(t, time.Minute, "the network is available", func() bool { return networkUnavailable(t, kube, "node-1") == v1.ConditionFalse })
	})
}

// singleWriter is a transport that allows only one call at a time to create a
// route. While such a call runs, singleWriter answers further calls with a
// conflict, like the route tables of some clouds.
type singleWriter struct {
	next    http.RoundTripper
	busy    atomic.Bool
	refused atomic.Int32
}

func (w *singleWriter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost {
		return w.next.RoundTrip(r)
	}
	if !w.busy.CompareAndSwap(false, true) {
		w.refused.Add(1)
		return &http.Response{StatusCode: http.StatusConflict, Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"status":409,"kind":"conflict","detail":"the table is locked"}`))}, nil
	}
	defer w.busy.Store(false)
	return w.next.RoundTrip(r)
}

// Every Node gets exactly one route, even if upstream creates many routes
// concurrently and the route table accepts only one change at a time.
func TestRoutesOfManyNodes(t *testing.T) {
	const many = 250
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cloudtest.InBubble())
		var nodes []*v1.Node
		for i := range many {
			n := initializedNode(r.createMachine(t, fmt.Sprintf("node-%d", i)))
			n.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", i)}
			nodes = append(nodes, n)
		}
		r.startMirror(t)
		r.wire.takes = 5 * time.Millisecond
		table := &singleWriter{next: r.wire.next}
		r.wire.next = table
		r.runRouteController(t, 0, "10.244.0.0/16", nodes...)
		awaitEverySecond(t, 30*time.Minute, "each Node has a route", func() bool { return len(r.listRoutes(t, cluster)) == many })
		if table.refused.Load() == 0 {
			t.Error("the route table was never locked")
		}
	})
}
