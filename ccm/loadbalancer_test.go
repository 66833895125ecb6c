package ccm_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/api"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func TestEnsureCreatesLoadBalancer(t *testing.T) {
	r := newRig(t)
	a, b := r.createMachine(t, "node-1"), r.createMachine(t, "node-2")
	s := newService(func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "https", Protocol: v1.ProtocolTCP, Port: 443, NodePort: 30443})
	})
	st := r.ensure(t, s, initializedNode(b), initializedNode(a))
	lb := r.onlyLoadBalancer(t)
	want := cloudsim.LoadBalancerSpec{
		Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 30080, Mode: cloudsim.ModeProxy}, {Protocol: cloudsim.TCP, Port: 443, TargetPort: 30443, Mode: cloudsim.ModeProxy}},
		Targets:     []cloudsim.Target{{Instance: a.ID}, {Instance: b.ID}},
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthHTTP, Port: 10256, Path: "/healthz", IntervalMillis: 2000, TimeoutMillis: 1000, HealthyThreshold: 1, UnhealthyThreshold: 2},
	}
	if d := cmp.Diff(want, lb.LoadBalancerSpec); d != "" {
		t.Errorf("load balancer (-want +got):\n%s", d)
	}
	if want := "k8s-" + string(s.UID); lb.Name != want || r.balancers().GetLoadBalancerName(t.Context(), cluster, s) != want {
		t.Errorf("name of the load balancer: got %q, want %q", lb.Name, want)
	}
	labels := map[string]string{
		"kubernetes.io/cluster-name": cluster, "kubernetes.io/service-uid": string(s.UID),
		"kubernetes.io/service-namespace": "default", "kubernetes.io/service-name": "web",
	}
	if d := cmp.Diff(labels, lb.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	proxy := v1.LoadBalancerIPModeProxy
	if d := cmp.Diff(&v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: lb.IP, IPMode: &proxy}}}, st); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
}

// A second call of EnsureLoadBalancer changes nothing, even in another process.
// A different order of ports and nodes also changes nothing.
func TestEnsureAgainChangesNothing(t *testing.T) {
	r := newRig(t)
	a, b := initializedNode(r.createMachine(t, "node-1")), initializedNode(r.createMachine(t, "node-2"))
	two := func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "https", Protocol: v1.ProtocolTCP, Port: 443, NodePort: 30443})
	}
	first := r.ensure(t, newService(two), a, b)
	before := r.onlyLoadBalancer(t)
	r.wire.spoil(nil)
	r.provider = r.restarted()
	swapped := newService(two)
	swapped.Spec.Ports[0], swapped.Spec.Ports[1] = swapped.Spec.Ports[1], swapped.Spec.Ports[0]
	swapped.Spec.Ports[0].Name = "renamed"
	for _, s := range []*v1.Service{newService(two), swapped} {
		if d := cmp.Diff(first, r.ensure(t, s, b, a, a)); d != "" {
			t.Errorf("status (-first +second):\n%s", d)
		}
	}
	if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, swapped, []*v1.Node{b, a}); err != nil {
		t.Error(err)
	}
	if calls := r.wire.takeCalls(true); len(calls) > 0 {
		t.Errorf("unexpected calls that change the cloud: %q", calls)
	}
	if d := cmp.Diff(before, r.onlyLoadBalancer(t)); d != "" {
		t.Errorf("load balancer (-before +after):\n%s", d)
	}
}

// After every change of a Service, its load balancer still has the id and the address from before
// the change. It also still has the labels that users added.
func TestChangesInPlace(t *testing.T) {
	local := func(s *v1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 31000
	}
	for name, tc := range map[string]struct {
		change func(*v1.Service)
		check  func(cloudsim.LoadBalancer) bool
	}{
		"policy becomes Local": {local, func(lb cloudsim.LoadBalancer) bool {
			return lb.HealthCheck.Port == 31000 && lb.HealthCheck.Path == "/healthz" && lb.HealthCheck.Protocol == cloudsim.HealthHTTP
		}},
		"health check port changes": {func(s *v1.Service) { local(s); s.Spec.HealthCheckNodePort = 31001 }, func(lb cloudsim.LoadBalancer) bool { return lb.HealthCheck.Port == 31001 }},
		"policy back to Cluster":    {func(*v1.Service) {}, func(lb cloudsim.LoadBalancer) bool { return lb.HealthCheck.Port == 10256 }},
		"node port changes":         {func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30081 }, func(lb cloudsim.LoadBalancer) bool { return lb.Listeners[0].TargetPort == 30081 }},
		"ip mode becomes VIP":       {annotate("ip-mode", "VIP"), func(lb cloudsim.LoadBalancer) bool { return lb.Listeners[0].Mode == cloudsim.ModeVIP }},
		"PROXY protocol":            {annotate("proxy-protocol", "v2"), func(lb cloudsim.LoadBalancer) bool { return lb.Listeners[0].ProxyProtocol == cloudsim.ProxyV2 }},
		"port changes":              {func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 }, func(lb cloudsim.LoadBalancer) bool { return len(lb.Listeners) == 1 && lb.Listeners[0].Port == 8080 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			start := newService()
			if strings.Contains(name, "check port") || strings.Contains(name, "back") {
				local(start)
			}
			r.ensure(t, start)
			before := r.onlyLoadBalancer(t)
			labels := map[string]string{"owner": "ann"}
			for k, v := range before.Labels {
				labels[k] = v
			}
			if _, err := r.cloud.UpdateLoadBalancer(t.Context(), before.ID, cloudsim.UpdateLoadBalancer{Labels: labels, LoadBalancerSpec: before.LoadBalancerSpec}, 0); err != nil {
				t.Fatal(err)
			}
			r.ensure(t, newService(tc.change))
			after := r.onlyLoadBalancer(t)
			if !tc.check(after) {
				t.Errorf("spec of the load balancer: got %+v, want a spec that matches the changed Service", after.LoadBalancerSpec)
			}
			if after.ID != before.ID || after.IP != before.IP || after.Labels["owner"] != "ann" {
				t.Errorf("id, address and labels: got %s, %s, %v; want %s, %s and the label owner=ann", after.ID, after.IP, after.Labels, before.ID, before.IP)
			}
		})
	}
}

// While the cloud is deleting the load balancer, GetLoadBalancer reports that
// it exists, and EnsureLoadBalancerDeleted returns an error. The Service
// therefore keeps its finalizer. After the deletion GetLoadBalancer reports
// that the load balancer does not exist, and EnsureLoadBalancerDeleted returns
// nil.
func TestDeletionEndsWhenLoadBalancerIsGone(t *testing.T) {
	r := newRig(t, withSlowProfile(func(p *engine.Profile) { p.LoadBalancer = time.Hour }))
	s := newService()
	eventually.True(t, "the load balancer is created", func() bool {
		defer r.hourLater(t)
		_, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil)
		return err == nil
	})
	// EnsureLoadBalancerDeleted may get an incomplete Service from the cache of a controller. So
	// this Service has only its namespace, its name, its UID, and changed annotations.
	bare := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Annotations: map[string]string{ccm.AnnotationLoadBalancerIP: "1.2.3.4"}}}
	err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, bare)
	if _, ok := errors.AsType[*api.RetryError](err); !ok {
		t.Fatalf("load balancer in deletion: got error %v, want a RetryError", err)
	}
	if _, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, bare); !exists || err != nil {
		t.Fatalf("load balancer in deletion: got exists=%v, error %v", exists, err)
	}
	r.wire.spoil(nil)
	r.hourLater(t)
	eventually.True(t, "the load balancer is deleted", func() bool {
		return r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, bare) == nil
	})
	if calls := r.wire.takeCalls(true); len(calls) > 0 {
		t.Errorf("the CCM deleted a load balancer in deletion again: %q", calls)
	}
	for range 2 {
		if st, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, bare); exists || err != nil {
			t.Errorf("deleted load balancer: got %v, %v, %v; want exists=false without an error", st, exists, err)
		}
		if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, bare); err != nil {
			t.Errorf("deletion of a deleted load balancer: %v", err)
		}
	}
}

// If a person and the CCM delete the load balancer at the same time, EnsureLoadBalancerDeleted
// returns nil.
func TestDeletedByAnotherCaller(t *testing.T) {
	r := newRig(t)
	r.ensure(t, newService())
	id := r.onlyLoadBalancer(t).ID
	r.wire.spoil(func(_ int, req *http.Request) fault {
		if req.Method == http.MethodDelete {
			if _, err := r.cloud.DeleteLoadBalancer(req.Context(), id); err != nil {
				t.Error(err)
			}
		}
		return fault{}
	})
	if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, newService()); err != nil {
		t.Errorf("EnsureLoadBalancerDeleted = %v", err)
	}
	if calls := r.wire.takeCalls(true); len(calls) != 1 {
		t.Errorf("the CCM made the calls %q; want it to stop at the first call", calls)
	}
}

// If the cloud never answers, each method of the provider returns an error within 30 seconds. The
// test sets no deadline for the call and no timeout in the client.
func TestCallsEndIfCloudHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cloudtest.InBubble())
		r.api.HTTP.Timeout = 0
		n, s, ctx := initializedNode(r.createMachine(t, "node-1")), newService(), context.Background()
		r.ensure(t, s)
		r.wire.spoil(func(int, *http.Request) fault { return fault{hang: true} })
		for operation, call := range map[string]func() error{
			"Ensure":   func() error { _, err := r.balancers().EnsureLoadBalancer(ctx, cluster, s, nil); return err },
			"Update":   func() error { return r.balancers().UpdateLoadBalancer(ctx, cluster, s, []*v1.Node{n}) },
			"Get":      func() error { _, _, err := r.balancers().GetLoadBalancer(ctx, cluster, s); return err },
			"Delete":   func() error { return r.balancers().EnsureLoadBalancerDeleted(ctx, cluster, s) },
			"Exists":   func() error { _, err := r.instances().InstanceExists(ctx, n); return err },
			"Shutdown": func() error { _, err := r.instances().InstanceShutdown(ctx, n); return err },
			"Metadata": func() error { _, err := r.instances().InstanceMetadata(ctx, n); return err },
			"Routes":   func() error { _, err := r.routes().ListRoutes(ctx, cluster); return err },
			"Route":    func() error { return r.routes().CreateRoute(ctx, cluster, "", routeTo("node-1", "10.244.0.0/24")) },
		} {
			began := time.Now()
			if err := call(); err == nil {
				t.Errorf("%s: no error", operation)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("%s took %s, want at most 30s", operation, took)
			}
		}
	})
}

// The CCM can delete a load balancer before the load balancer becomes active.
// The CCM creates the next load balancer of the Service only after this
// deletion.
func TestDeleteWhileProvisioningAndMakeAgain(t *testing.T) {
	r := newRig(t, withSlowProfile(func(p *engine.Profile) { p.LoadBalancer = time.Hour }))
	s := newService()
	st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil)
	if retry, ok := errors.AsType[*api.RetryError](err); !ok || st != nil || retry.RetryAfter() > 2*time.Second || !strings.Contains(err.Error(), "provisioning") {
		t.Fatalf("load balancer in creation: got %v, %v; want a RetryError with the reason", st, err)
	}
	if st, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, s); !exists || err != nil || len(st.Ingress) != 0 {
		t.Errorf("load balancer in creation: got %v, %v, %v; want exists=true without an address", st, exists, err)
	}
	first := r.onlyLoadBalancer(t)
	_ = r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s)
	// The Service has the same UID and another port, and the cloud is still deleting the first load
	// balancer. This happens if a user changes the type to ClusterIP, and then back to LoadBalancer
	// with another port.
	s.Spec.Ports[0].Port = 81
	r.wire.spoil(nil)
	if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil); err == nil {
		t.Error("the CCM took over a load balancer in deletion")
	} else if _, ok := errors.AsType[*api.RetryError](err); !ok {
		t.Errorf("first load balancer in deletion: got error %v, want a RetryError", err)
	}
	if calls := r.wire.takeCalls(false); len(calls) > 4 {
		t.Errorf("first load balancer in deletion: the CCM made the calls %q, want at most 4", calls)
	}
	// A new Service with the same name has another UID. So its load balancer
	// has another name. The CCM creates this load balancer before the deletion
	// of the first load balancer ends.
	other := newService(func(s *v1.Service) { s.UID = "ffffffff-1111-2222-3333-444455556666" })
	eventually.True(t, "the new Service with the same name has a load balancer", func() bool {
		defer r.hourLater(t)
		_, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, other, nil)
		return err == nil
	})
	eventually.True(t, "the first Service has a load balancer again", func() bool {
		defer r.hourLater(t)
		_, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil)
		return err == nil
	})
	for _, lb := range r.balancersInCloud(t) {
		if lb.ID == first.ID {
			t.Error("the first load balancer still exists")
		}
	}
}

// The CCM tries to create a load balancer, but the cloud always reports that it is still deleting
// an earlier load balancer with the same name. After some attempts the CCM returns an error.
func TestCreateStopsAfterSomeAttempts(t *testing.T) {
	r := newRig(t, withSlowProfile(func(p *engine.Profile) { p.LoadBalancer = time.Hour }))
	_, _ = r.balancers().EnsureLoadBalancer(t.Context(), cluster, newService(), nil)
	_ = r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, newService())
	deleting, err := r.cloud.ListLoadBalancers(t.Context(), cloudsim.ListOptions{})
	if err != nil || len(deleting.Items) != 1 || deleting.Items[0].State != cloudsim.LoadBalancerDeleting {
		t.Fatalf("load balancers: got %+v, error %v; want one in the state deleting", deleting.Items, err)
	}
	body, err := json.Marshal(deleting)
	if err != nil {
		t.Fatal(err)
	}
	r.wire.spoil(func(_ int, req *http.Request) fault {
		switch {
		case strings.HasSuffix(req.URL.Path, "/load-balancers"):
			return fault{status: http.StatusOK, body: string(body)}
		case strings.Contains(req.URL.Path, "/load-balancers/"):
			return fault{status: http.StatusNotFound, body: `{"status":404,"kind":"not_found","detail":"gone"}`}
		}
		return fault{}
	})
	if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, newService(), nil); err == nil || !strings.Contains(err.Error(), "changed during every attempt") {
		t.Errorf("EnsureLoadBalancer = %v; want an error that says the load balancer changed during every attempt", err)
	}
}

// EnsureLoadBalancer and EnsureLoadBalancerDeleted wait for a short time until the cloud has
// created or deleted the load balancer. If the cloud finishes in this time, they return no error.
// So Services get no Warning events.
func TestEnsureWaitsForCloud(t *testing.T) {
	r := newRig(t, withSlowProfile(func(p *engine.Profile) { p.LoadBalancer = 200 * time.Millisecond }))
	p := ccm.New(slog.New(slog.DiscardHandler), r.api, ccm.NewSettings(ccm.Config{}), r.events)
	b, _ := p.LoadBalancer()
	for range 2 { // in the second pass, the cloud is still deleting the first load balancer
		if st, err := b.EnsureLoadBalancer(t.Context(), cluster, newService(), nil); err != nil || len(st.Ingress) != 1 {
			t.Fatalf("EnsureLoadBalancer = %v, %v", st, err)
		}
		if _, err := r.cloud.DeleteLoadBalancer(t.Context(), r.onlyLoadBalancer(t).ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.EnsureLoadBalancerDeleted(t.Context(), cluster, newService()); err != nil {
		t.Errorf("EnsureLoadBalancerDeleted = %v", err)
	}
}

// If a Service has a deletion timestamp, the CCM creates no load balancer for
// it, even if the finalizer of another controller delays the deletion.
func TestNoLoadBalancerForDeletedService(t *testing.T) {
	r := newRig(t)
	now := metav1.Now()
	s := newService(func(s *v1.Service) { s.DeletionTimestamp, s.Finalizers = &now, []string{"example.com/foreign"} })
	if st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil); err != nil || st == nil || len(st.Ingress) != 0 {
		t.Errorf("got %v, %v; want an empty status", st, err)
	}
	if all := r.balancersInCloud(t); len(all) != 0 {
		t.Errorf("unexpected load balancers: %+v", all)
	}
}

func TestForeignLoadBalancerIsNotChanged(t *testing.T) {
	for _, key := range []string{ccm.LabelCluster, ccm.LabelServiceUID} {
		t.Run(key, func(t *testing.T) {
			withAndWithoutMirror(t, func(t *testing.T, r *rig) { checkForeignLoadBalancer(t, r, key) })
		})
	}
}

func checkForeignLoadBalancer(t *testing.T, r *rig, key string) {
	s := newService()
	r.ensure(t, s)
	lb := r.onlyLoadBalancer(t)
	lb.Labels[key] = "somebody-else"
	if _, err := r.cloud.UpdateLoadBalancer(t.Context(), lb.ID, cloudsim.UpdateLoadBalancer{Labels: lb.Labels, LoadBalancerSpec: lb.LoadBalancerSpec}, 0); err != nil {
		t.Fatal(err)
	}
	before := r.onlyLoadBalancer(t)
	r.awaitMirror(t, before)
	joined := initializedNode(r.createMachine(t, "node-1"))
	r.wire.spoil(nil)
	_, ensure := r.balancers().EnsureLoadBalancer(t.Context(), cluster, newService(func(s *v1.Service) { s.Spec.Ports[0].Port = 81 }), nil)
	_, _, get := r.balancers().GetLoadBalancer(t.Context(), cluster, s)
	for operation, err := range map[string]error{
		"Ensure": ensure, "Get": get,
		"Update": r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, []*v1.Node{joined}),
		"Delete": r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s),
	} {
		if err == nil || !strings.Contains(err.Error(), "somebody-else") {
			t.Errorf("%s = %v; want an error that names the owner", operation, err)
		}
	}
	if calls := r.wire.takeCalls(true); len(calls) > 0 {
		t.Errorf("unexpected calls that change the cloud: %q", calls)
	}
	if d := cmp.Diff(before, r.onlyLoadBalancer(t)); d != "" {
		t.Errorf("load balancer (-before +after):\n%s", d)
	}
}

// Two clusters can have the same name. Their Services get different load
// balancers, because the name of a load balancer depends on the UID of the
// Service.
func TestTwoClustersOfOneName(t *testing.T) {
	r := newRig(t)
	r.ensure(t, newService())
	r.ensure(t, newService(func(s *v1.Service) { s.UID = "ffffffff-1111-2222-3333-444455556666" }))
	if all := r.balancersInCloud(t); len(all) != 2 {
		t.Errorf("%d load balancers, want 2", len(all))
	}
	odd := newService(func(s *v1.Service) { s.UID = "Not_a UUID, and much too long for the name of anything in this cloud" })
	r.ensure(t, odd)
	r.ensure(t, odd)
	if all := r.balancersInCloud(t); len(all) != 3 {
		t.Errorf("%d load balancers, want 3", len(all))
	}
}

// The CCM replaces the targets of a load balancer in one call. It omits the
// nodes that cannot be targets.
func TestTargets(t *testing.T) { withAndWithoutMirror(t, testTargets) }

func testTargets(t *testing.T, r *rig) {
	a, b, gone := r.createMachine(t, "node-1"), r.createMachine(t, "node-2"), r.createMachine(t, "node-3")
	if _, err := r.cloud.DeleteInstance(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	s := newService()
	if st := r.ensure(t, s); len(st.Ingress) != 1 {
		t.Errorf("status without nodes: got %v, want an address", st)
	}
	r.awaitMirror(t, r.onlyLoadBalancer(t))
	foreign, damaged := initializedNode(a), initializedNode(a)
	foreign.Name, foreign.Spec.ProviderID = "far-away", "aws:///us-east-1a/i-0abc"
	damaged.Name, damaged.Spec.ProviderID = "broken", "cloudsim://sim-1"
	nodes := []*v1.Node{newNode("not-yet"), foreign, damaged, initializedNode(gone), initializedNode(b), initializedNode(a)}
	for operation, set := range map[string]func() error{
		"Update": func() error { return r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, nodes) },
		"Ensure": func() error {
			_, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nodes)
			return err
		},
	} {
		r.takeEvents()
		if err := set(); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
		if d := cmp.Diff([]cloudsim.Target{{Instance: a.ID}, {Instance: b.ID}}, r.onlyLoadBalancer(t).Targets); d != "" {
			t.Errorf("%s: targets (-want +got):\n%s", operation, d)
		}
		events := r.takeEvents()
		if !strings.Contains(events, "far-away") || !strings.Contains(events, "broken") || strings.Contains(events, "not-yet") {
			t.Errorf("%s: events: want \"far-away\" and \"broken\", not \"not-yet\"; got:\n%s", operation, events)
		}
	}
	r.awaitMirror(t, r.onlyLoadBalancer(t))
	r.wire.spoil(nil)
	if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, nodes[5:]); err != nil {
		t.Fatal(err)
	}
	if calls := r.wire.takeCalls(true); len(calls) != 1 {
		t.Errorf("removal of one Node made the calls %q, want one call", calls)
	}
	if got := r.onlyLoadBalancer(t).Targets; len(got) != 1 || got[0].Instance != a.ID {
		t.Errorf("targets %v, want %s", got, a.ID)
	}
}

// If the Service has no load balancer, UpdateLoadBalancer returns an error. The framework
// ignores this error, because GetLoadBalancer reports that the load balancer does not exist.
// While the cloud is deleting the load balancer, UpdateLoadBalancer returns nil.
func TestUpdateWithoutLoadBalancer(t *testing.T) {
	withAndWithoutMirror(t, updateWithoutLoadBalancer, withSlowProfile(func(p *engine.Profile) { p.LoadBalancer = time.Hour }))
}

func updateWithoutLoadBalancer(t *testing.T, r *rig) {
	s := newService()
	if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, nil); err == nil {
		t.Error("update without a load balancer returned no error")
	}
	if _, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, s); exists || err != nil {
		t.Errorf("GetLoadBalancer = %v, %v; want exists=false, so that the framework drops the error", exists, err)
	}
	_, _ = r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil)
	_ = r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s)
	n := initializedNode(r.createMachine(t, "node-1"))
	if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, []*v1.Node{n}); err != nil {
		t.Errorf("update of a load balancer in deletion: got error %v, want none", err)
	}
}

// Concurrent calls for one Service create only one load balancer. Two
// processes make concurrent calls if both processes lead for a short time.
// The calls change neither the Service nor the Nodes.
func TestTwoLeaders(t *testing.T) {
	r := newRig(t)
	s := newService()
	nodes := []*v1.Node{initializedNode(r.createMachine(t, "node-2")), initializedNode(r.createMachine(t, "node-1"))}
	asGiven, nodesAsGiven := s.DeepCopy(), []*v1.Node{nodes[0].DeepCopy(), nodes[1].DeepCopy()}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			b, _ := r.restarted().LoadBalancer()
			var err error
			if n%2 == 0 {
				_, err = b.EnsureLoadBalancer(t.Context(), cluster, s, nodes)
			} else if err = b.UpdateLoadBalancer(t.Context(), cluster, s, nodes); err != nil && strings.Contains(err.Error(), "yet") {
				err = nil
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if lb := r.onlyLoadBalancer(t); len(lb.Targets) != 2 {
		t.Errorf("targets: got %v, want 2", lb.Targets)
	}
	if d := cmp.Diff(asGiven, s) + cmp.Diff(nodesAsGiven, nodes); d != "" {
		t.Errorf("the CCM changed its input:\n%s", d)
	}
}

// The CCM never changes the Service and the Nodes that the framework passes to
// the provider, because these objects belong to the framework's cache. The test
// makes concurrent calls, so that the race detector can find a change of these
// objects.
func TestServiceAndNodesAreOnlyRead(t *testing.T) {
	r := newRig(t, podRanges)
	i := r.createMachine(t, "node-1")
	r.pods = []*discoveryv1.EndpointSlice{newSlice(v1.IPv4Protocol, 8080, runsOn(i, 7))}
	r.provider = r.restarted()
	r.startMirror(t)
	nodes := []*v1.Node{initializedNode(i)}
	all := []*v1.Service{sharingService("01", 80), sharingService("02", 81), withoutNodePorts(func(s *v1.Service) { s.UID = "00000000-1111-2222-3333-000000000003" }), newService(
		annotate("node-selector", "!nothing"), annotate("proxy-protocol", "v2"), annotate("idle-timeout", "1m"), annotate("drain-timeout", "0s"),
		func(s *v1.Service) {
			s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol, v1.IPv4Protocol}
			s.Spec.LoadBalancerSourceRanges = []string{" ::/0", "10.0.0.0/8"}
			s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
		})}
	var asGiven []*v1.Service
	for _, s := range all {
		asGiven = append(asGiven, s.DeepCopy())
	}
	node := nodes[0].DeepCopy()
	var wg sync.WaitGroup
	for n := range 4 * len(all) {
		s := all[n%len(all)]
		wg.Go(func() {
			if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nodes); err != nil {
				t.Error(err)
			}
			if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, nodes); err != nil {
				t.Error(err)
			}
			if _, err := r.provider.Drift(t.Context(), cluster, s, nodes...); err != nil {
				t.Error(err)
			}
			if _, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, s); !exists || err != nil {
				t.Error(exists, err)
			}
		})
	}
	wg.Wait()
	for _, s := range all {
		if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff(asGiven, all) + cmp.Diff(node, nodes[0]); d != "" {
		t.Errorf("the CCM changed its input:\n%s", d)
	}
}

// A person may change the load balancer between the CCM's read and the CCM's
// change. The CCM then reads the load balancer again and repeats its change.
func TestConcurrentChange(t *testing.T) {
	r := newRig(t)
	r.ensure(t, newService())
	lb := r.onlyLoadBalancer(t)
	var once sync.Once
	r.wire.spoil(func(_ int, req *http.Request) fault {
		if req.Method == http.MethodPut {
			once.Do(func() {
				lb.Labels["owner"] = "ann"
				if _, err := r.cloud.UpdateLoadBalancer(t.Context(), lb.ID, cloudsim.UpdateLoadBalancer{Labels: lb.Labels, LoadBalancerSpec: lb.LoadBalancerSpec}, 0); err != nil {
					t.Error(err)
				}
			})
		}
		return fault{}
	})
	r.ensure(t, newService(func(s *v1.Service) { s.Spec.Ports[0].Port = 81 }))
	if now := r.onlyLoadBalancer(t); now.Listeners[0].Port != 81 || now.Labels["owner"] != "ann" {
		t.Errorf("listeners %+v, labels %v; want the CCM's port 81 and the other caller's label", now.Listeners, now.Labels)
	}
}
