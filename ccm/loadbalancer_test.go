package ccm_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/api"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func TestEnsureMakesWhatTheServiceSays(t *testing.T) {
	r := newRig(t)
	a, b := r.machine(t, "node-1"), r.machine(t, "node-2")
	s := service(func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "https", Protocol: v1.ProtocolTCP, Port: 443, NodePort: 30443})
	})
	st := r.ensure(t, s, initialised(b), initialised(a))
	lb := r.only(t)
	want := cloudsim.LoadBalancerSpec{
		Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 30080}, {Protocol: cloudsim.TCP, Port: 443, TargetPort: 30443}},
		Targets:     []cloudsim.Target{{Instance: a.ID}, {Instance: b.ID}},
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthHTTP, Port: 10256, Path: "/healthz", IntervalMillis: 2000, TimeoutMillis: 1000, HealthyThreshold: 1, UnhealthyThreshold: 2},
	}
	if d := cmp.Diff(want, lb.LoadBalancerSpec); d != "" {
		t.Errorf("load balancer (-want +got):\n%s", d)
	}
	if want := "k8s-" + string(s.UID); lb.Name != want || r.balancers().GetLoadBalancerName(t.Context(), cluster, s) != want {
		t.Errorf("its name is %q, want %q", lb.Name, want)
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

// A second run, of this process or of another, finds everything in place and
// changes nothing; so does one whose ports and nodes come in another order.
func TestEnsureAgainChangesNothing(t *testing.T) {
	r := newRig(t)
	a, b := initialised(r.machine(t, "node-1")), initialised(r.machine(t, "node-2"))
	two := func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "https", Protocol: v1.ProtocolTCP, Port: 443, NodePort: 30443})
	}
	first := r.ensure(t, service(two), a, b)
	before := r.only(t)
	r.wire.spoil(nil)
	r.provider = r.again()
	swapped := service(two)
	swapped.Spec.Ports[0], swapped.Spec.Ports[1] = swapped.Spec.Ports[1], swapped.Spec.Ports[0]
	swapped.Spec.Ports[0].Name = "renamed"
	for _, s := range []*v1.Service{service(two), swapped} {
		if d := cmp.Diff(first, r.ensure(t, s, b, a, a)); d != "" {
			t.Errorf("status (-first +second):\n%s", d)
		}
	}
	if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, swapped, []*v1.Node{b, a}); err != nil {
		t.Error(err)
	}
	if calls := r.wire.made(true); len(calls) > 0 {
		t.Errorf("it changed the cloud: %q", calls)
	}
	if d := cmp.Diff(before, r.only(t)); d != "" {
		t.Errorf("load balancer (-before +after):\n%s", d)
	}
}

// Every change is made in place: the load balancer and its address stay, and so
// do labels that somebody else put there.
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
		"port changes":              {func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 }, func(lb cloudsim.LoadBalancer) bool { return len(lb.Listeners) == 1 && lb.Listeners[0].Port == 8080 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			start := service()
			if strings.Contains(name, "check port") || strings.Contains(name, "back") {
				local(start)
			}
			r.ensure(t, start)
			before := r.only(t)
			labels := map[string]string{"owner": "ann"}
			for k, v := range before.Labels {
				labels[k] = v
			}
			if _, err := r.cloud.UpdateLoadBalancer(t.Context(), before.ID, cloudsim.UpdateLoadBalancer{Labels: labels, LoadBalancerSpec: before.LoadBalancerSpec}, 0); err != nil {
				t.Fatal(err)
			}
			r.ensure(t, service(tc.change))
			after := r.only(t)
			if !tc.check(after) {
				t.Errorf("got %+v", after.LoadBalancerSpec)
			}
			if after.ID != before.ID || after.IP != before.IP || after.Labels["owner"] != "ann" {
				t.Errorf("was %s %s, is %s %s %v", before.ID, before.IP, after.ID, after.IP, after.Labels)
			}
		})
	}
}

// After any one call whose answer is lost, or that never arrives, the next run
// finishes the work: one load balancer with one address, or none.
func TestAnyCallMayFail(t *testing.T) {
	for _, kind := range []struct {
		name string
		f    fault
	}{{"reply lost", fault{loseReply: true}}, {"cut", fault{cut: true}}, {"500", fault{status: 500, body: `{"status":500,"kind":"internal"}`}}} {
		t.Run(kind.name, func(t *testing.T) {
			for n := 0; ; n++ {
				if reached := crashAt(t, n, kind.f); !reached {
					if n < 6 {
						t.Errorf("only %d calls were made to fail", n)
					}
					return
				}
			}
		})
	}
}

// crashAt makes, changes and deletes a load balancer, with a fault at the nth
// call, and a new process after every error. It reports whether there was an
// nth call.
func crashAt(t *testing.T, n int, f fault) (reached bool) {
	t.Helper()
	r := newRig(t)
	nodes := []*v1.Node{initialised(r.machine(t, "node-1"))}
	var mu sync.Mutex
	r.wire.spoil(func(at int, _ *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		if at == n {
			reached = true
			return f
		}
		return fault{}
	})
	until := func(what string, run func() error) {
		for try := 0; ; try++ {
			err := run()
			if err == nil {
				return
			}
			if try == 3 {
				t.Fatalf("fault at call %d: %s never works: %v", n, what, err)
			}
			r.provider = r.again()
		}
	}
	ensure := func(s *v1.Service) func() error {
		return func() error {
			st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nodes)
			if err == nil && len(st.Ingress) != 1 {
				t.Errorf("fault at call %d: status %+v", n, st)
			}
			return err
		}
	}
	until("create", ensure(service()))
	first := r.only(t)
	until("change", ensure(service(func(s *v1.Service) { s.Spec.Ports[0].Port = 81 })))
	if lb := r.only(t); lb.ID != first.ID || lb.Listeners[0].Port != 81 {
		t.Errorf("fault at call %d: after the change it is %+v", n, lb)
	}
	nodes = append(nodes, initialised(r.machine(t, "node-2")))
	until("update", func() error {
		return r.balancers().UpdateLoadBalancer(t.Context(), cluster, service(), nodes)
	})
	if lb := r.only(t); len(lb.Targets) != 2 {
		t.Errorf("fault at call %d: targets %v", n, lb.Targets)
	}
	until("delete", func() error {
		// As the framework does: nothing is deleted that does not exist.
		_, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, service())
		if err != nil || !exists {
			return err
		}
		return r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, service())
	})
	if all := r.balancersInCloud(t); len(all) != 0 {
		t.Errorf("fault at call %d: left behind %+v", n, all)
	}
	if l, err := r.cloud.ListAddresses(t.Context(), cloudsim.ListOptions{}); err != nil || len(l.Items) != 0 {
		t.Errorf("fault at call %d: addresses left behind: %+v, %v", n, l.Items, err)
	}
	return reached
}

// While the cloud deletes, the load balancer exists and the deletion is an
// error, so the Service stays; when it is gone, both say so, again and again.
func TestDeletedMeansGone(t *testing.T) {
	r := newRig(t, slow(func(p *engine.Profile) { p.LoadBalancer = 300 * time.Millisecond }))
	s := service()
	eventually(t, "it is made", func() bool {
		_, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil)
		return err == nil
	})
	// From the cache of a controller: nothing but names and the UID, and
	// annotations that changed meanwhile.
	bare := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Annotations: map[string]string{ccm.AnnotationLoadBalancerIP: "1.2.3.4"}}}
	err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, bare)
	if _, ok := errors.AsType[*api.RetryError](err); !ok {
		t.Fatalf("while it is being deleted: %v; want a RetryError", err)
	}
	if _, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, bare); !exists || err != nil {
		t.Fatalf("while it is being deleted it exists: %v, %v", exists, err)
	}
	r.wire.spoil(nil)
	eventually(t, "it is gone", func() bool {
		return r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, bare) == nil
	})
	if calls := r.wire.made(true); len(calls) > 0 {
		t.Errorf("what is being deleted was deleted again: %q", calls)
	}
	for range 2 {
		if st, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, bare); exists || err != nil {
			t.Errorf("when it is gone: %v, %v, %v; want absence without an error", st, exists, err)
		}
		if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, bare); err != nil {
			t.Errorf("deleting what is gone: %v", err)
		}
	}
}

// One that was never ready can be deleted, and its successor waits for it.
func TestDeleteWhileProvisioningAndMakeAgain(t *testing.T) {
	r := newRig(t, slow(func(p *engine.Profile) { p.LoadBalancer = 300 * time.Millisecond }))
	s := service()
	st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil)
	if retry, ok := errors.AsType[*api.RetryError](err); !ok || st != nil || retry.RetryAfter() > 2*time.Second || !strings.Contains(err.Error(), "provisioning") {
		t.Fatalf("while it is being made: %v, %v; want a RetryError soon, with the reason", st, err)
	}
	if st, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, s); !exists || err != nil || len(st.Ingress) != 0 {
		t.Errorf("while it is being made: %v, %v, %v; want one without an address", st, exists, err)
	}
	first := r.only(t)
	_ = r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s)
	// The type went to ClusterIP and back: the same UID, and the old one is
	// still on its way out.
	if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil); err == nil {
		t.Error("it was taken while it is being deleted")
	} else if _, ok := errors.AsType[*api.RetryError](err); !ok {
		t.Errorf("while the first is being deleted: %v; want a RetryError", err)
	}
	// Deleted and made again under the same name: another UID, so nobody waits.
	other := service(func(s *v1.Service) { s.UID = "ffffffff-1111-2222-3333-444455556666" })
	eventually(t, "the Service of the same name has its own", func() bool {
		_, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, other, nil)
		return err == nil
	})
	eventually(t, "the successor is made", func() bool {
		_, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil)
		return err == nil
	})
	for _, lb := range r.balancersInCloud(t) {
		if lb.ID == first.ID {
			t.Error("the first is still there")
		}
	}
}

// A Service that is being deleted gets nothing new, whoever still holds it.
func TestNothingForAServiceThatGoes(t *testing.T) {
	r := newRig(t)
	now := metav1.Now()
	s := service(func(s *v1.Service) { s.DeletionTimestamp, s.Finalizers = &now, []string{"example.com/foreign"} })
	if st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil); err != nil || st == nil || len(st.Ingress) != 0 {
		t.Errorf("got %v, %v; want an empty status", st, err)
	}
	if all := r.balancersInCloud(t); len(all) != 0 {
		t.Errorf("it made %+v", all)
	}
}

// What has our name but is of another cluster or Service is left alone.
func TestNotOurs(t *testing.T) {
	for _, key := range []string{ccm.LabelCluster, ccm.LabelServiceUID} {
		t.Run(key, func(t *testing.T) {
			r := newRig(t)
			s := service()
			r.ensure(t, s)
			lb := r.only(t)
			lb.Labels[key] = "somebody-else"
			if _, err := r.cloud.UpdateLoadBalancer(t.Context(), lb.ID, cloudsim.UpdateLoadBalancer{Labels: lb.Labels, LoadBalancerSpec: lb.LoadBalancerSpec}, 0); err != nil {
				t.Fatal(err)
			}
			before := r.only(t)
			r.wire.spoil(nil)
			_, ensure := r.balancers().EnsureLoadBalancer(t.Context(), cluster, service(func(s *v1.Service) { s.Spec.Ports[0].Port = 81 }), nil)
			_, _, get := r.balancers().GetLoadBalancer(t.Context(), cluster, s)
			for what, err := range map[string]error{
				"Ensure": ensure, "Get": get,
				"Update": r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, []*v1.Node{initialised(r.machine(t, "node-1"))}),
				"Delete": r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s),
			} {
				if err == nil || !strings.Contains(err.Error(), "somebody-else") {
					t.Errorf("%s = %v; want an error that says whose it is", what, err)
				}
			}
			if calls := r.wire.made(true); len(calls) > 0 {
				t.Errorf("it changed the cloud: %q", calls)
			}
			if d := cmp.Diff(before, r.only(t)); d != "" {
				t.Errorf("load balancer (-before +after):\n%s", d)
			}
		})
	}
}

// Two clusters of one name do not meet: the name is the Service's UID.
func TestTwoClustersOfOneName(t *testing.T) {
	r := newRig(t)
	r.ensure(t, service())
	r.ensure(t, service(func(s *v1.Service) { s.UID = "ffffffff-1111-2222-3333-444455556666" }))
	if all := r.balancersInCloud(t); len(all) != 2 {
		t.Errorf("%d load balancers, want 2", len(all))
	}
	odd := service(func(s *v1.Service) { s.UID = "Not_a UUID, and much too long for the name of anything in this cloud" })
	r.ensure(t, odd)
	r.ensure(t, odd)
	if all := r.balancersInCloud(t); len(all) != 3 {
		t.Errorf("%d load balancers, want 3", len(all))
	}
}

// The set of targets is replaced in one call; nodes that cannot be targets are
// left out, and the rest is served.
func TestTargets(t *testing.T) {
	r := newRig(t)
	a, b, gone := r.machine(t, "node-1"), r.machine(t, "node-2"), r.machine(t, "node-3")
	if _, err := r.cloud.DeleteInstance(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	s := service()
	if st := r.ensure(t, s); len(st.Ingress) != 1 {
		t.Errorf("no nodes: %v; want an address all the same", st)
	}
	foreign, damaged := initialised(a), initialised(a)
	foreign.Name, foreign.Spec.ProviderID = "far-away", "aws:///us-east-1a/i-0abc"
	damaged.Name, damaged.Spec.ProviderID = "broken", "cloudsim://sim-1"
	nodes := []*v1.Node{node("not-yet"), foreign, damaged, initialised(gone), initialised(b), initialised(a)}
	for what, set := range map[string]func() error{
		"Update": func() error { return r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, nodes) },
		"Ensure": func() error {
			_, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nodes)
			return err
		},
	} {
		r.said()
		if err := set(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if d := cmp.Diff([]cloudsim.Target{{Instance: a.ID}, {Instance: b.ID}}, r.only(t).Targets); d != "" {
			t.Errorf("%s: targets (-want +got):\n%s", what, d)
		}
		said := r.said()
		if !strings.Contains(said, "far-away") || !strings.Contains(said, "broken") || strings.Contains(said, "not-yet") {
			t.Errorf("%s: events:\n%s", what, said)
		}
	}
	r.wire.spoil(nil)
	if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, nodes[5:]); err != nil {
		t.Fatal(err)
	}
	if calls := r.wire.made(true); len(calls) != 1 {
		t.Errorf("one node left with the calls %q, want one", calls)
	}
	if got := r.only(t).Targets; len(got) != 1 || got[0].Instance != a.ID {
		t.Errorf("targets %v, want %s", got, a.ID)
	}
}

// Update may come before the first Ensure, and after the last.
func TestUpdateOfNothing(t *testing.T) {
	r := newRig(t, slow(func(p *engine.Profile) { p.LoadBalancer = time.Hour }))
	s := service()
	if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, nil); err == nil {
		t.Error("there is none yet, and Update succeeded")
	}
	if _, exists, err := r.balancers().GetLoadBalancer(t.Context(), cluster, s); exists || err != nil {
		t.Errorf("GetLoadBalancer = %v, %v; want the truth, so that the framework drops the error", exists, err)
	}
	_, _ = r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nil)
	_ = r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s)
	n := initialised(r.machine(t, "node-1"))
	if err := r.balancers().UpdateLoadBalancer(t.Context(), cluster, s, []*v1.Node{n}); err != nil {
		t.Errorf("while it is being deleted: %v", err)
	}
}

// Calls for one Service from many goroutines, as two leaders would make them,
// end in one load balancer; Service and Nodes are only read.
func TestTwoLeaders(t *testing.T) {
	r := newRig(t)
	s := service()
	nodes := []*v1.Node{initialised(r.machine(t, "node-2")), initialised(r.machine(t, "node-1"))}
	asGiven, nodesAsGiven := s.DeepCopy(), []*v1.Node{nodes[0].DeepCopy(), nodes[1].DeepCopy()}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			b, _ := r.again().LoadBalancer()
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
	if lb := r.only(t); len(lb.Targets) != 2 {
		t.Errorf("targets %v", lb.Targets)
	}
	if d := cmp.Diff(asGiven, s) + cmp.Diff(nodesAsGiven, nodes); d != "" {
		t.Errorf("it changed what it was given:\n%s", d)
	}
}

// A person changes the load balancer between our reading and our writing.
func TestSomebodyIsQuicker(t *testing.T) {
	r := newRig(t)
	r.ensure(t, service())
	lb := r.only(t)
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
	r.ensure(t, service(func(s *v1.Service) { s.Spec.Ports[0].Port = 81 }))
	if now := r.only(t); now.Listeners[0].Port != 81 || now.Labels["owner"] != "ann" {
		t.Errorf("got %+v %v; want our port and her label", now.Listeners, now.Labels)
	}
}

func TestStaticAddress(t *testing.T) {
	for name, ask := range map[string]func(*v1.Service, string){
		"field":      func(s *v1.Service, ip string) { s.Spec.LoadBalancerIP = ip },
		"annotation": func(s *v1.Service, ip string) { s.Annotations = map[string]string{ccm.AnnotationLoadBalancerIP: ip} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			addr, err := r.cloud.CreateAddress(t.Context(), cloudsim.CreateAddress{Name: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			s := service(func(s *v1.Service) { ask(s, addr.IP) })
			if st := r.ensure(t, s); st.Ingress[0].IP != addr.IP {
				t.Errorf("it stands on %s, want %s", st.Ingress[0].IP, addr.IP)
			}
			before := r.only(t)

			other := service(func(s *v1.Service) { s.UID = "ffffffff-1111-2222-3333-444455556666"; ask(s, addr.IP) })
			if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, other, nil); err == nil || !strings.Contains(err.Error(), string(before.ID)) {
				t.Errorf("an address in use: %v; want an error that says by what", err)
			}
			if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, service(func(s *v1.Service) { ask(s, "127.65.200.200") }), nil); err == nil || !strings.Contains(err.Error(), addr.IP) {
				t.Errorf("another address: %v; want an error", err)
			}
			if d := cmp.Diff(before, r.only(t)); d != "" {
				t.Errorf("load balancer (-before +after):\n%s", d)
			}
			s.Spec.Ports[0].Port = 81
			if st := r.ensure(t, s); st.Ingress[0].IP != addr.IP {
				t.Errorf("after a change it stands on %s, want %s", st.Ingress[0].IP, addr.IP)
			}
			if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, s); err != nil {
				t.Fatal(err)
			}
			if a, err := r.cloud.GetAddress(t.Context(), addr.ID); err != nil || a.UsedBy != "" {
				t.Errorf("the person's address afterwards: %+v, %v; want it kept and free", a, err)
			}
		})
	}
}

// What the cloud does not have is refused whole, by a reason that names it, and
// what is there already keeps working.
func TestRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.Service)
		says   []string
	}{
		"UDP beside TCP": {func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "dns", Protocol: v1.ProtocolUDP, Port: 80, NodePort: 30053})
		}, []string{"spec.ports[1]", "80", "UDP"}},
		"SCTP":          {func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }, []string{"spec.ports[0]", "80", "SCTP"}},
		"no node port":  {func(s *v1.Service) { s.Spec.Ports[0].NodePort = 0 }, []string{"allocateLoadBalancerNodePorts", "80"}},
		"source ranges": {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} }, []string{"loadBalancerSourceRanges"}},
		"source ranges, annotation": {func(s *v1.Service) {
			s.Annotations = map[string]string{v1.AnnotationLoadBalancerSourceRangesKey: "10.0.0.0/8"}
		}, []string{"loadBalancerSourceRanges"}},
		"damaged source ranges": {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"everybody"} }, []string{"loadBalancerSourceRanges", "everybody"}},
		"session affinity":      {func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }, []string{"sessionAffinity"}},
		"IPv6 only":             {func(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol} }, []string{"ipFamilies"}},
		"no ports":              {func(s *v1.Service) { s.Spec.Ports = nil }, []string{"spec.ports"}},
		"two addresses": {func(s *v1.Service) {
			s.Spec.LoadBalancerIP, s.Annotations = "1.1.1.1", map[string]string{ccm.AnnotationLoadBalancerIP: "2.2.2.2"}
		}, []string{"1.1.1.1", "2.2.2.2"}},
		"two things": {func(s *v1.Service) {
			s.Spec.SessionAffinity, s.Spec.Ports[0].Protocol = v1.ServiceAffinityClientIP, v1.ProtocolUDP
		}, []string{"sessionAffinity", "UDP"}},
		"an address nobody reserved": {func(s *v1.Service) { s.Spec.LoadBalancerIP = "127.65.200.200" }, []string{"127.65.200.200"}},
		"no address at all":          {func(s *v1.Service) { s.Spec.LoadBalancerIP = "lb.example.com" }, []string{"lb.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, when := range []string{"first", "later"} {
				st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, service(tc.change), nil)
				if err == nil {
					t.Fatalf("%s: accepted as %v", when, st)
				}
				for _, word := range tc.says {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%s: %q does not say %q", when, err, word)
					}
				}
				if when == "first" {
					if all := r.balancersInCloud(t); len(all) > 0 {
						t.Errorf("it made %+v", all)
					}
					r.ensure(t, service()) // and now the Service changes
				} else if lb := r.only(t); len(lb.Listeners) != 1 || lb.Listeners[0].TargetPort != 30080 {
					t.Errorf("it changed what works: %+v", lb.LoadBalancerSpec)
				}
			}
		})
	}
}

// A range that lets everybody in restricts nothing, and dual stack has IPv4.
func TestAcceptsWhatChangesNothing(t *testing.T) {
	r := newRig(t)
	r.ensure(t, service(func(s *v1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{" 0.0.0.0/0 "}
		s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol, v1.IPv4Protocol}
	}))
	r.only(t)
}

// With one region there is nothing to configure; with two there is.
func TestRegion(t *testing.T) {
	r := newRig(t)
	r.wire.spoil(func(_ int, req *http.Request) fault {
		if req.URL.Path == "/v1/regions" {
			return fault{status: 200, body: `{"items":[{"name":"east"},{"name":"west"}]}`}
		}
		return fault{}
	})
	if _, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, service(), nil); err == nil || !strings.Contains(err.Error(), "region") {
		t.Errorf("two regions: %v; want an error that speaks of the region", err)
	}
	r.wire.spoil(nil)
	r.ensure(t, service())
	if lb := r.only(t); lb.Region != "sim-1" {
		t.Errorf("region %q", lb.Region)
	}
}
