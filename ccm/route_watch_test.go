package ccm_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
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
)

const watchedRoutes = features.CloudControllerManagerWatchBasedRoutesReconciliation

// Only behind the gate do informers repeat themselves more often, and only if
// nobody chose how often.
func TestResyncForRoutes(t *testing.T) {
	const upstreams = 12 * time.Hour
	for _, tc := range []struct {
		gate, chosen bool
		want         time.Duration
	}{{false, false, upstreams}, {true, true, upstreams}, {true, false, time.Minute}} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, watchedRoutes, tc.gate)
		if got, err := ccm.Resync(tc.chosen); err != nil || got != tc.want {
			t.Errorf("gate %v, chosen %v: %s, %v; want %s", tc.gate, tc.chosen, got, err, tc.want)
		}
	}
}

// Behind the gate of KEP-5237 a route that could not be made is made, and one that
// a person deleted comes back, though no node changes.
func TestRoutesAreRepairedBehindTheGate(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, watchedRoutes, true)
	every, err := ccm.Resync(false)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cloudtest.InBubble())
		n := initialised(r.machine(t, "node-1"))
		n.Spec.PodCIDRs = []string{"10.244.0.0/24"}
		r.mirrored(t)
		r.wire.spoil(func(_ int, req *http.Request) fault {
			return fault{cut: req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/routes")}
		})
		r.routing(t, n, every)
		time.Sleep(40 * time.Second) // whatever the node's own changes bring is over
		r.wire.spoil(nil)
		there := func() bool { return len(r.listed(t, cluster)) == 1 }
		within(t, 3*time.Minute, "the route is made", there)
		l, err := r.cloud.ListRoutes(t.Context(), cloudsim.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.cloud.DeleteRoute(t.Context(), l.Items[0].ID); err != nil {
			t.Fatal(err)
		}
		within(t, time.Minute, "it is gone", func() bool { return !there() })
		within(t, 3*time.Minute, "it is back", there)
	})
}

// routing runs upstream's controller of routes for one node until the test ends.
func (r *rig) routing(t *testing.T, n *v1.Node, resync time.Duration) {
	t.Helper()
	kube := fake.NewClientset()
	if _, err := kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shared := informers.NewSharedInformerFactory(kube, resync)
	_, all, err := net.ParseCIDR("10.244.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	rc, err := routecontroller.New(r.routes(), kube, shared.Core().V1().Nodes(), cluster, []*net.IPNet{all})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	shared.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { rc.Run(ctx, 10*time.Second, controllersmetrics.NewControllerManagerMetrics("test")) })
	t.Cleanup(func() { cancel(); running.Wait(); shared.Shutdown() })
}
