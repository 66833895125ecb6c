package ccm_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

var podRanges = cloudtest.WithConfig(func(c *engine.Config) {
	c.Pods = cloudsim.PodRanges{IPv4: "10.244.0.0/16", IPv6: "fd44::/48"}
})

// podIP returns the nth address in the first pod range of the instance i. The
// first pod range is an IPv4 range.
func podIP(i cloudsim.Instance, n int) string { return nth(i.PodRanges[0], n) }

func nth(rng string, n int) string {
	a := netip.MustParsePrefix(rng).Addr()
	for range n {
		a = a.Next()
	}
	return a.String()
}

// runsOn returns the endpoint of the nth pod on the instance i. The pod is
// ready.
func runsOn(i cloudsim.Instance, n int) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{podIP(i, n)}, NodeName: &i.Name,
		TargetRef: &v1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("pod-%d", n), UID: types.UID(fmt.Sprintf("%s-%d", i.ID, n))},
	}
}

func newSlice(family v1.IPFamily, number int32, all ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	port := "http"
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("web-%s-%d", strings.ToLower(string(family)), number),
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressType(family), Endpoints: all,
		Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
	}
}

func withoutNodePorts(change ...func(*v1.Service)) *v1.Service {
	return newService(append([]func(*v1.Service){func(s *v1.Service) {
		s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports[0].NodePort = new(bool), 0
		s.Spec.Ports[0].TargetPort = intstr.FromString("http")
	}}, change...)...)
}

type podCase struct {
	pods   []*discoveryv1.EndpointSlice
	svc    *v1.Service
	want   []string // expected addresses of targets
	number int
	says   string
}

func podCases(one, two cloudsim.Instance) map[string]podCase {
	yes, no := true, false
	with := func(e discoveryv1.Endpoint, c discoveryv1.EndpointConditions) discoveryv1.Endpoint {
		e.Conditions = c
		return e
	}
	ending := func(e discoveryv1.Endpoint) discoveryv1.Endpoint {
		return with(e, discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes})
	}
	six := func(e discoveryv1.Endpoint, i cloudsim.Instance, n int) discoveryv1.Endpoint {
		e.Addresses = []string{nth(i.PodRanges[1], n)}
		return e
	}
	stranger := runsOn(one, 9)
	stranger.Addresses = []string{"192.0.2.1"}
	lost := runsOn(cloudsim.Instance{Meta: cloudsim.Meta{Name: "node-3"}, PodRanges: one.PodRanges}, 9)
	both := func(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol, v1.IPv4Protocol} }
	four := func(number int32, all ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return newSlice(v1.IPv4Protocol, number, all...)
	}
	more := withoutNodePorts(func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "metrics", Protocol: v1.ProtocolTCP, Port: 9100, TargetPort: intstr.FromString("metrics")})
	})
	hasMetrics := four(8080, runsOn(two, 7))
	hasMetrics.Name = "web-ipv4-newest"
	hasMetrics.Ports = append(hasMetrics.Ports, discoveryv1.EndpointPort{Name: new("metrics"), Port: new(int32(9100))})
	return map[string]podCase{
		"port that no pod has":              {svc: more, pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(one, 7))}, want: []string{podIP(one, 7)}, number: 8080},
		"port that only the newest pod has": {svc: more, pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(one, 7)), hasMetrics}, want: []string{podIP(one, 7), podIP(two, 7)}, number: 8080},
		"two pods on two nodes":             {pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(two, 7), runsOn(one, 7))}, want: []string{podIP(one, 7), podIP(two, 7)}, number: 8080},
		"one pod is not ready":              {pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(one, 7), with(runsOn(one, 8), discoveryv1.EndpointConditions{Ready: &no, Serving: &no}))}, want: []string{podIP(one, 7)}, number: 8080},
		"one pod is terminating":            {pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(one, 7), ending(runsOn(one, 8)))}, want: []string{podIP(one, 7)}, number: 8080},
		"all pods are terminating":          {pods: []*discoveryv1.EndpointSlice{four(8080, ending(runsOn(one, 7)), with(runsOn(one, 8), discoveryv1.EndpointConditions{Ready: &no}))}, want: []string{podIP(one, 7)}, number: 8080},
		"no pods":                           {want: nil, number: 80},
		"rollout with another port number": {
			pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(one, 7), runsOn(one, 8)), four(9090, runsOn(two, 7))},
			want: []string{podIP(one, 7), podIP(one, 8)}, number: 8080, says: "PodLeftOut",
		},
		"address outside the instance's pod ranges": {pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(one, 7), stranger)}, want: []string{podIP(one, 7)}, number: 8080, says: "192.0.2.1"},
		"node that the load balancer excludes":      {pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(one, 7), lost)}, want: []string{podIP(one, 7)}, number: 8080},
		"two families of one pod": {
			svc:  withoutNodePorts(both),
			pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(one, 7), runsOn(two, 8)), newSlice(v1.IPv6Protocol, 8080, six(runsOn(one, 7), one, 7))},
			want: []string{nth(one.PodRanges[1], 7), podIP(two, 8)}, number: 8080,
		},
		"pods of the other family only": {svc: withoutNodePorts(func(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol} }), pods: []*discoveryv1.EndpointSlice{four(8080, runsOn(one, 7))}, number: 80},
	}
}

// If a Service has no node ports, its targets are the pods that Kubernetes
// reports as ready. The load balancer has exactly one target for each pod, and
// the target port is the port of the pod.
func TestPodsAreTargets(t *testing.T) {
	r := newRig(t, podRanges)
	one, two := r.createMachine(t, "node-1"), r.createMachine(t, "node-2")
	for name, tc := range podCases(one, two) {
		for _, mirrored := range []bool{false, true} { // the result must be the same with and without a mirror
			t.Run(fmt.Sprintf("%s, mirrored %v", name, mirrored), func(t *testing.T) {
				r := &rig{cloud: r.cloud, api: r.api, wire: r.wire, events: r.events, pods: tc.pods}
				r.provider = r.restarted()
				if mirrored {
					r.startMirror(t)
				}
				r.takeEvents()
				svc := tc.svc
				if svc == nil {
					svc = withoutNodePorts()
				}
				svc.UID = types.UID(fmt.Sprintf("%036d", len(name)*10+len(r.balancersInCloud(t))))
				r.ensure(t, svc, initializedNode(one), initializedNode(two))
				l, err := r.cloud.ListLoadBalancers(t.Context(), cloudsim.ListOptions{Name: r.balancers().GetLoadBalancerName(t.Context(), cluster, svc)})
				if err != nil || len(l.Items) != 1 {
					t.Fatalf("load balancers of the Service: got %+v, error %v; want 1", l.Items, err)
				}
				var got []string
				for _, target := range l.Items[0].Targets {
					got = append(got, target.IP)
				}
				if d := cmp.Diff(tc.want, got); d != "" {
					t.Errorf("addresses of the targets (-want +got):\n%s", d)
				}
				if n := l.Items[0].Listeners[0].TargetPort; n != tc.number || l.Items[0].HealthCheck.Protocol != cloudsim.HealthTCP || l.Items[0].HealthCheck.Port != 0 {
					t.Errorf("load balancer: got target port %d and health check %+v, want target port %d and a TCP check of that port", n, l.Items[0].HealthCheck, tc.number)
				}
				if events := r.takeEvents(); mirrored && !strings.Contains(events, tc.says) || tc.says == "" && strings.Contains(events, "LeftOut") {
					t.Errorf("events: got %q, want %q, or no event LeftOut if the wanted text is empty", events, tc.says)
				}
				if err := r.balancers().EnsureLoadBalancerDeleted(t.Context(), cluster, svc); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// With the annotation for HTTP health checks, the health checks of pods and of nodes have the same
// path.
func TestPodHealthCheckHasPath(t *testing.T) {
	r := newRig(t, podRanges)
	r.ensure(t, withoutNodePorts(annotate("health-check-protocol", "http")), initializedNode(r.createMachine(t, "node-1")))
	if c := r.onlyLoadBalancer(t).HealthCheck; c.Protocol != cloudsim.HealthHTTP || c.Path != "/healthz" {
		t.Errorf("health check: got %+v, want the protocol http and the path /healthz", c)
	}
}

func TestUDPPodsHaveNoHealthCheck(t *testing.T) {
	r := newRig(t, podRanges)
	r.ensure(t, withoutNodePorts(func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP }), initializedNode(r.createMachine(t, "node-1")))
	if h := r.onlyLoadBalancer(t).HealthCheck; h.Protocol != cloudsim.HealthNone {
		t.Errorf("health check: got %+v, want the protocol none", h)
	}
}

// When many pods of a Service change, the CCM updates the targets with few calls. When the Service
// gets node ports, the CCM updates the load balancer. When a person changes the load balancer in
// the cloud, the CCM repairs the load balancer. Changes of pods cause no repair event.
func TestTargetsFollowPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := normalPeriods(t, podRanges)
		i := p.createMachine(t, "node-1")
		p.join(t, setReady(initializedNode(i)))
		time.Sleep(10 * time.Second) // upstream's service controller has a data race if a Service and a Node change at the same time
		ctx := t.Context()
		slicesAPI := p.kube.DiscoveryV1().EndpointSlices("default")
		s := newSlice(v1.IPv4Protocol, 8080)
		if _, err := slicesAPI.Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p.postService(t, withoutNodePorts())
		awaitEverySecond(t, time.Minute, "the Service has its address", func() bool { return addressed(p.getService(t)) })
		lb := p.onlyLoadBalancer(t)
		p.wire.spoil(nil)
		for n := range 20 {
			s.Endpoints = append(s.Endpoints, runsOn(i, n+1))
			s.ResourceVersion = strconv.Itoa(n + 1) // the fake API server does not set it
			if _, err := slicesAPI.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		awaitEverySecond(t, 5*time.Second, "the 20 pods are targets", func() bool { return len(p.onlyLoadBalancer(t).Targets) == 20 })
		if calls := p.wire.takeCalls(true); len(calls) > 3 {
			t.Errorf("calls for 20 pods in 0.4 s: got %d, want at most 3: %v", len(calls), calls)
		}
		time.Sleep(20 * time.Minute) // longer than several periods of the repairer
		if _, err := p.cloud.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{}); err != nil {
			t.Fatal(err)
		}
		awaitEverySecond(t, time.Minute, "the targets are repaired", func() bool { return len(p.onlyLoadBalancer(t).Targets) == 20 })
		if n := p.repairCount(t); n != 1 {
			t.Errorf("got %d repairs, want 1", n)
		}
		if err := slicesAPI.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitEverySecond(t, 5*time.Second, "the load balancer has no targets", func() bool { return len(p.onlyLoadBalancer(t).Targets) == 0 })
		p.update(t, func(s *v1.Service) { s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports[0].NodePort = nil, 30080 })
		awaitEverySecond(t, time.Minute, "the node is a target through its node port", func() bool {
			now := p.onlyLoadBalancer(t)
			return now.ID == lb.ID && now.IP == lb.IP && len(now.Targets) == 1 && now.Targets[0].IP == "" && now.Listeners[0].TargetPort == 30080 && now.HealthCheck.Port == 10256
		})
	})
}

// repairCount returns the number of repair events since the last call of takeEvents or repairCount.
func (p plane) repairCount(t *testing.T) int {
	t.Helper()
	return strings.Count(p.takeEvents(), "RepairedLoadBalancer")
}

func TestTargetsStayUntilPodsAreListed(t *testing.T) {
	r := newRig(t, podRanges)
	i := r.createMachine(t, "node-1")
	r.pods = []*discoveryv1.EndpointSlice{newSlice(v1.IPv4Protocol, 8080, runsOn(i, 7))}
	r.provider = r.restarted()
	r.ensure(t, withoutNodePorts(), initializedNode(i))
	r.provider.Unread()
	_, ensured := r.balancers().EnsureLoadBalancer(t.Context(), cluster, withoutNodePorts(), []*v1.Node{initializedNode(i)})
	updated := r.balancers().UpdateLoadBalancer(t.Context(), cluster, withoutNodePorts(), []*v1.Node{initializedNode(i)})
	for call, err := range map[string]error{"EnsureLoadBalancer": ensured, "UpdateLoadBalancer": updated} {
		if err == nil || !strings.Contains(err.Error(), "endpointslices") {
			t.Errorf("%s before the list of pods: got error %v, want an error that names endpointslices", call, err)
		}
	}
	if got := r.onlyLoadBalancer(t).Targets; !slices.Equal(got, []cloudsim.Target{{Instance: i.ID, IP: podIP(i, 7)}}) {
		t.Errorf("targets: got %+v", got)
	}
}

// runWithoutUpstream starts the pod follower and the repairer, but no controller of upstream. The
// informers have the given resync period.
func (r *rig) runWithoutUpstream(t *testing.T, kube *fake.Clientset, resync time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	shared := informers.NewSharedInformerFactory(kube, resync)
	r.provider.SetInformers(shared)
	core := shared.Core().V1()
	pods, err := r.provider.RunPodFollower(ctx, shared, cluster)
	if err != nil {
		t.Fatal(err)
	}
	repair, err := r.provider.RunRepairer(ctx, kube, core.Services(), core.Nodes(), cluster, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(pods)
	all.Go(repair)
	t.Cleanup(func() { cancel(); all.Wait(); shared.Shutdown() })
	shared.Start(ctx.Done())
}

func newPodInBubble(t *testing.T) (r *rig, i cloudsim.Instance, s *discoveryv1.EndpointSlice) {
	t.Helper()
	r = newRig(t, podRanges, cloudtest.InBubble())
	i = r.createMachine(t, "node-1")
	s = newSlice(v1.IPv4Protocol, 8080, runsOn(i, 7))
	r.pods = []*discoveryv1.EndpointSlice{s}
	r.provider = r.restarted()
	return r, i, s
}

func TestTargetsStayUntilNodesAreListed(t *testing.T) {
	for name, svc := range map[string]*v1.Service{"targets are pods": withoutNodePorts(), "targets are nodes": newService()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, i, s := newPodInBubble(t)
				svc.Finalizers = []string{servicehelpers.LoadBalancerCleanupFinalizer}
				svc.Status.LoadBalancer = *r.ensure(t, svc, initializedNode(i))
				r.startMirror(t)
				kube := fake.NewClientset(svc, s, initializedNode(i))
				var answers atomic.Bool
				kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					return !answers.Load(), nil, apierrors.NewServiceUnavailable("the test")
				})
				r.wire.spoil(nil)
				r.runWithoutUpstream(t, kube, 0)
				time.Sleep(time.Minute)
				if got := r.onlyLoadBalancer(t).Targets; len(got) != 1 {
					t.Errorf("targets before the list of Nodes: got %+v, want 1", got)
				}
				if calls := r.wire.takeCalls(true); len(calls) > 0 {
					t.Errorf("calls before the list of Nodes: got %v", calls)
				}
				answers.Store(true)
				if _, err := r.cloud.SetLoadBalancerTargets(t.Context(), r.onlyLoadBalancer(t).ID, cloudsim.SetTargets{}); err != nil {
					t.Fatal(err)
				}
				awaitEverySecond(t, 5*time.Minute, "the target is repaired", func() bool { return len(r.onlyLoadBalancer(t).Targets) == 1 })
			})
		})
	}
}

// The resync of the EndpointSlices reports no changes, so it causes no calls to the cloud.
func TestResyncOfPodsMakesNoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, i, s := newPodInBubble(t)
		svc := withoutNodePorts(func(s *v1.Service) { s.Finalizers = []string{servicehelpers.LoadBalancerCleanupFinalizer} })
		svc.Status.LoadBalancer = *r.ensure(t, svc, initializedNode(i))
		r.startMirror(t) // with the mirror, only the pod follower makes calls
		r.runWithoutUpstream(t, fake.NewClientset(svc, s, initializedNode(i)), time.Minute)
		time.Sleep(30 * time.Second)
		r.wire.spoil(nil)
		time.Sleep(10 * time.Minute)
		if calls := r.wire.takeCalls(false); len(calls) > 0 {
			t.Errorf("calls during 10 resyncs: got %v", calls)
		}
	})
}
