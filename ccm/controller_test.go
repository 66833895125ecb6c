package ccm_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	cloudapi "k8s.io/cloud-provider/api"
	nodecontroller "k8s.io/cloud-provider/controllers/node"
	lifecycle "k8s.io/cloud-provider/controllers/nodelifecycle"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// plane is a rig (a cloud and a provider) with a fake API server, upstream's
// controllers, and controllers of this package.
type plane struct {
	*rig
	kube *fake.Clientset
}

// pace contains the periods of upstream's loops. It also contains the settle
// time of the repairer. A Service must be unchanged for this time before the
// repairer checks its load balancer.
type pace struct{ status, monitor, settle time.Duration }

// start runs the controllers with short periods until the test ends.
func (r *rig) start(t *testing.T) plane {
	t.Helper()
	return r.startAt(t, pace{50 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond})
}

func (r *rig) startAt(t *testing.T, at pace) plane {
	t.Helper()
	p := plane{r, fake.NewClientset()}
	ctx, cancel := context.WithCancel(context.Background())
	shared := informers.NewSharedInformerFactory(p.kube, 0)
	r.provider.SetInformers(shared)
	nodes, services := shared.Core().V1().Nodes(), shared.Core().V1().Services()
	metrics := controllersmetrics.NewControllerManagerMetrics("test")
	nc, err := nodecontroller.NewCloudNodeController(nodes, p.kube, r.provider, at.status, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	lc, err := lifecycle.NewCloudNodeLifecycleController(nodes, p.kube, r.provider, at.monitor)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := servicecontroller.New(r.provider, p.kube, services, nodes, cluster, utilfeature.DefaultFeatureGate)
	if err != nil {
		t.Fatal(err)
	}
	repair, err := r.provider.RunRepairer(ctx, p.kube, services, nodes, cluster, at.settle)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := r.provider.RunPodFollower(ctx, shared, cluster)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 5)
	for _, run := range []func(){
		repair,
		pods,
		func() { nc.RunWithContext(ctx, metrics) },
		func() { lc.Run(ctx, metrics) },
		func() { sc.Run(ctx, 2, metrics) },
	} {
		go func() { run(); done <- struct{}{} }()
	}
	t.Cleanup(func() {
		cancel()
		for range cap(done) {
			<-done
		}
		shared.Shutdown()
	})
	startInformers(t, p.kube, shared, ctx.Done())
	return p
}

// startInformers starts the informers and waits until all informers have a watch.
// Without this wait, an informer would miss changes. The fake API server loses
// the events between the list and the watch of an informer. A real API server
// does not lose these events.
func startInformers(t testing.TB, kube *fake.Clientset, shared informers.SharedInformerFactory, stop <-chan struct{}) {
	t.Helper()
	var mu sync.Mutex
	watched := map[schema.GroupVersionResource]bool{}
	kube.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := kube.Tracker().Watch(a.GetResource(), a.GetNamespace(), a.(clienttesting.WatchActionImpl).ListOptions)
		mu.Lock()
		defer mu.Unlock()
		watched[a.GetResource()] = err == nil
		return true, w, err
	})
	shared.Start(stop)
	kinds := len(shared.WaitForCacheSync(stop))
	eventually.True(t, "all informers watch", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(watched) == kinds
	})
}

func (p plane) join(t *testing.T, n *v1.Node) {
	t.Helper()
	if _, err := p.kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (p plane) getNode(t *testing.T, name string) *v1.Node {
	t.Helper()
	n, err := p.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (p plane) getService(t *testing.T) *v1.Service {
	t.Helper()
	s, err := p.kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p plane) update(t *testing.T, change func(*v1.Service)) {
	t.Helper()
	s := p.getService(t)
	change(s)
	if _, err := p.kube.CoreV1().Services("default").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (p plane) warningMessages(t *testing.T) string {
	t.Helper()
	l, err := p.kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range l.Items {
		if e.Type == v1.EventTypeWarning {
			all = append(all, e.Message)
		}
	}
	return strings.Join(all, "\n")
}

func hasTaint(n *v1.Node, key string) bool {
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == key })
}

func setReady(n *v1.Node) *v1.Node {
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	return n
}

// The CCM writes the cloud's data into a new Node and removes the taint of
// uninitialized Nodes. This also works if the Node registers before its
// instance exists.
func TestNodeIsInitialized(t *testing.T) {
	r := newRig(t)
	p := r.start(t)
	early := setReady(newNode("node-1"))
	p.join(t, early)
	r.createMachine(t, "other") // so that the number in the id differs from the number in the name
	i := r.createMachine(t, "node-1")
	eventually.True(t, "the taint is removed", func() bool { return !hasTaint(p.getNode(t, "node-1"), cloudapi.TaintExternalCloudProvider) })
	eventually.True(t, "the Node has 2 addresses", func() bool { return len(p.getNode(t, "node-1").Status.Addresses) == 2 })
	n := p.getNode(t, "node-1")
	want := map[string]string{
		v1.LabelInstanceTypeStable: "small", v1.LabelTopologyZone: "sim-1a", v1.LabelTopologyRegion: "sim-1",
		v1.LabelInstanceType: "small", v1.LabelFailureDomainBetaZone: "sim-1a", v1.LabelFailureDomainBetaRegion: "sim-1",
	}
	if d := cmp.Diff(want, n.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	if n.Spec.ProviderID != i.ProviderID {
		t.Errorf("provider id: got %q, want %q", n.Spec.ProviderID, i.ProviderID)
	}
	if n.Status.Addresses[0] != (v1.NodeAddress{Type: v1.NodeInternalIP, Address: i.InternalIP()}) {
		t.Errorf("addresses: got %v, want InternalIP %s first", n.Status.Addresses, i.InternalIP())
	}
}

// If the address in the kubelet's --node-ip does not belong to the instance,
// the CCM does not initialize the Node.
func TestProvidedNodeIP(t *testing.T) {
	r := newRig(t)
	a, b := r.createMachine(t, "node-1"), r.createMachine(t, "node-2")
	p := r.start(t)
	good, bad := setReady(newNode("node-1")), setReady(newNode("node-2"))
	good.Annotations = map[string]string{cloudapi.AnnotationAlphaProvidedIPAddr: a.InternalIP()}
	bad.Annotations = map[string]string{cloudapi.AnnotationAlphaProvidedIPAddr: "192.0.2.1"}
	p.join(t, bad)
	p.join(t, good)
	eventually.True(t, "node-1 is initialized", func() bool { return !hasTaint(p.getNode(t, "node-1"), cloudapi.TaintExternalCloudProvider) })
	r.wire.spoil(nil)
	eventually.True(t, "the CCM calls the cloud again for node-2", func() bool { return len(r.wire.takeCalls(false)) > 3 })
	if n := p.getNode(t, "node-2"); !hasTaint(n, cloudapi.TaintExternalCloudProvider) || n.Spec.ProviderID != "" {
		t.Errorf("the CCM initialized a Node with an address that instance %s does not have: %+v", b.ID, n.Spec)
	}
}

// While calls to the cloud fail, the CCM keeps Nodes that are not ready. It
// deletes a Node when the cloud reports that the instance is deleted.
func TestNodeSurvivesCloudOutage(t *testing.T) {
	r := newRig(t)
	i, other := r.createMachine(t, "node-1"), r.createMachine(t, "node-2")
	p := r.start(t)
	p.join(t, setReady(initializedNode(other))) // this Node proves that the CCM calls the correct cloud
	var down atomic.Bool
	down.Store(true)
	r.wire.spoil(func(n int, _ *http.Request) fault {
		if !down.Load() {
			return fault{}
		}
		return []fault{{cut: true}, {status: 503, body: "<html>"}, {status: 401, body: `{"status":401,"kind":"unauthenticated"}`}, {loseReply: true}}[n%4]
	})
	p.join(t, initializedNode(i))
	eventually.True(t, "the CCM calls the cloud many times", func() bool { return len(r.wire.takeCalls(false)) > 40 })
	if p.getNode(t, "node-1") == nil {
		t.Fatal("the CCM deleted the Node while the cloud did not answer")
	}
	if _, err := r.cloud.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	calls := len(r.wire.takeCalls(false))
	eventually.True(t, "the CCM calls the cloud many times again", func() bool { return len(r.wire.takeCalls(false)) > calls+20 })
	if p.getNode(t, "node-1") == nil {
		t.Fatal("the CCM deleted the Node of the deleted instance while the cloud did not answer")
	}
	down.Store(false)
	eventually.True(t, "the Node is deleted", func() bool { return p.getNode(t, "node-1") == nil })
}

// When an instance stops, its Node gets a taint. When an instance is
// terminating, its Node stays until the instance is deleted.
func TestStopTaintsAndTerminateDeletes(t *testing.T) {
	r := newRig(t, withSlowProfile(func(p *engine.Profile) { p.Shutdown = 200 * time.Millisecond }))
	i := r.createMachine(t, "node-1")
	p := r.start(t)
	p.join(t, initializedNode(i))
	if _, err := r.cloud.StopInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the Node has the shutdown taint", func() bool { return hasTaint(p.getNode(t, "node-1"), cloudapi.TaintNodeShutdown) })
	if _, err := r.cloud.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the Node is deleted", func() bool {
		gone := p.getNode(t, "node-1") == nil
		if gone {
			if now, err := r.cloud.GetInstance(t.Context(), i.ID); err == nil {
				t.Errorf("the CCM deleted the Node while the state of its instance was %s", now.State)
			}
		}
		return gone
	})
}

// Upstream's service controller creates, updates and deletes a load balancer
// through this provider. During the sync of a Service, upstream writes the
// Service to its cache without a lock. If a sync of Nodes reads this cache at
// the same time, a data race occurs. So the test adds and changes Nodes only
// between two syncs of the Service.
func TestServiceThroughTheController(t *testing.T) {
	r := newRig(t)
	a, b, c := r.createMachine(t, "node-1"), r.createMachine(t, "node-2"), r.createMachine(t, "node-3")
	p := r.start(t)
	if _, err := p.kube.CoreV1().Services("default").Create(t.Context(), newService(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the Service has an address", func() bool { return len(p.getService(t).Status.LoadBalancer.Ingress) == 1 })
	in, lb := p.getService(t).Status.LoadBalancer.Ingress[0], r.onlyLoadBalancer(t)
	if in.IP != lb.IP || in.IPMode == nil || *in.IPMode != v1.LoadBalancerIPModeProxy {
		t.Errorf("ingress: got %+v, want %s in mode Proxy", in, lb.IP)
	}
	targets := func(want ...cloudsim.InstanceID) func() bool {
		return func() bool {
			var got []cloudsim.InstanceID
			for _, t := range r.onlyLoadBalancer(t).Targets {
				got = append(got, t.Instance)
			}
			return slices.Equal(got, want)
		}
	}
	p.join(t, setReady(initializedNode(a)))
	excluded := setReady(initializedNode(c))
	excluded.Labels = map[string]string{v1.LabelNodeExcludeBalancers: "junk"}
	p.join(t, excluded)
	eventually.True(t, "node-1 is the target", targets(a.ID))
	p.join(t, initializedNode(b)) // this Node is not ready, but it is a target, because health checks choose the targets that get traffic
	eventually.True(t, "node-1 and node-2 are the targets", targets(a.ID, b.ID))
	for _, step := range []struct {
		label string
		want  []cloudsim.InstanceID
	}{{"false", []cloudsim.InstanceID{a.ID, b.ID, c.ID}}, {"true", []cloudsim.InstanceID{a.ID, b.ID}}, {"", []cloudsim.InstanceID{a.ID, b.ID}}} {
		n := p.getNode(t, "node-3")
		n.Labels[v1.LabelNodeExcludeBalancers] = step.label
		if _, err := p.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "targets match the exclude label \""+step.label+"\"", targets(step.want...))
	}

	p.update(t, func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30081 })
	eventually.True(t, "the node port changes", func() bool { return r.onlyLoadBalancer(t).Listeners[0].TargetPort == 30081 })
	p.update(t, func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP })
	eventually.True(t, "the load balancer is deleted after the change to ClusterIP", func() bool { return len(r.balancersInCloud(t)) == 0 })
	eventually.True(t, "the Service has no finalizer", func() bool {
		s := p.getService(t)
		return !servicehelpers.HasLBFinalizer(s) && len(s.Status.LoadBalancer.Ingress) == 0
	})
	p.update(t, func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeLoadBalancer })
	eventually.True(t, "the Service has an address after the change to LoadBalancer", func() bool { return len(p.getService(t).Status.LoadBalancer.Ingress) == 1 })
}

// The Service keeps its finalizer until the cloud has deleted the load
// balancer. In this test the deletion takes some time, and the replies to all
// delete calls are lost.
func TestFinalizerWaits(t *testing.T) {
	r := newRig(t, withSlowProfile(func(p *engine.Profile) { p.LoadBalancer = 150 * time.Millisecond }))
	p := r.start(t)
	if _, err := p.kube.CoreV1().Services("default").Create(t.Context(), newService(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the Service has an address", func() bool { return len(p.getService(t).Status.LoadBalancer.Ingress) == 1 })
	r.wire.spoil(func(_ int, req *http.Request) fault { return fault{loseReply: req.Method == http.MethodDelete} })
	now := metav1.Now()
	p.update(t, func(s *v1.Service) { s.DeletionTimestamp = &now })
	eventually.True(t, "the Service has no finalizer", func() bool {
		free := !servicehelpers.HasLBFinalizer(p.getService(t))
		if free && len(r.balancersInCloud(t)) > 0 {
			t.Error("the CCM removed the finalizer while the load balancer existed")
		}
		return free
	})
}

func TestRefusalIsAnEvent(t *testing.T) {
	r := newRig(t)
	p := r.start(t)
	s := newService(func(s *v1.Service) { s.Spec.Ports[0].Protocol, s.Spec.Ports[0].Port = v1.ProtocolSCTP, 5353 })
	if _, err := p.kube.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "a Warning names the port", func() bool {
		w := p.warningMessages(t)
		return strings.Contains(w, "5353") && strings.Contains(w, "SCTP")
	})
	if all := r.balancersInCloud(t); len(all) > 0 {
		t.Errorf("unexpected load balancers: %+v", all)
	}
}

// If the cloud needs time to create a load balancer, the framework retries
// within seconds. For these retries the framework does not use its exponential
// delays.
func TestProvisioningIsFollowedQuickly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The repairer waits for a minute, its settle time, before it acts. So
		// only upstream's controller retries during the test.
		p := normalPeriodsAt(t, time.Minute, withSlowProfile(func(p *engine.Profile) { p.LoadBalancer = 500 * time.Millisecond }))
		p.postService(t, newService())
		awaitEverySecond(t, 4*time.Second, "the Service has an address", func() bool { return addressed(p.getService(t)) }) // exponential retries begin at 5 s
	})
}

// The Nodes in the informer cache have no managedFields.
func TestCachesAreStripped(t *testing.T) {
	r := newRig(t)
	kube := fake.NewClientset()
	shared := informers.NewSharedInformerFactory(kube, 0)
	r.provider.SetInformers(shared)
	ctx, cancel := context.WithCancel(t.Context())
	defer shared.Shutdown()
	defer cancel()
	n := newNode("node-1")
	n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate}}
	if _, err := kube.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	got, err := shared.Core().V1().Nodes().Lister().Get("node-1")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.ManagedFields) > 0 {
		t.Errorf("managedFields in the cache: got %v, want none", got.ManagedFields)
	}
}
