package ccm_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"
	nodecontroller "k8s.io/cloud-provider/controllers/node"
	fakecloud "k8s.io/cloud-provider/fake"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/klog/v2"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// benchNodes is the largest number of Nodes that Kubernetes supports officially.
const benchNodes = 5000

func (r *rig) createMachines(t testing.TB, n int) []*v1.Node {
	t.Helper()
	nodes := make([]*v1.Node, n)
	runConcurrently(20, n, func(i int) {
		m, err := r.cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", i), Zone: "sim-1a", Type: "small"})
		if err != nil {
			t.Error(err)
			return
		}
		nodes[i] = initializedNode(m)
	})
	if t.Failed() {
		t.FailNow()
	}
	return nodes
}

func runConcurrently(workers, n int, work func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				work(int(i))
			}
		})
	}
	all.Wait()
}

// BenchmarkInitializeNodes measures how fast upstream's controller initializes 5,000 Nodes with
// this provider. It also measures the controller with upstream's fake provider, which answers from
// memory. The metric "of-limit" is the time with the fake provider, divided by the time with this
// provider. This ratio should be at least 0.8.
func BenchmarkInitializeNodes(b *testing.B) {
	r := newRig(b)
	r.createMachines(b, benchNodes)
	r.startMirror(b)
	limit := &fakecloud.Cloud{EnableInstancesV2: true, ProviderID: map[types.NodeName]string{}, Zone: cloudprovider.Zone{FailureDomain: "a", Region: "b"}, Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}}}
	for i := range benchNodes {
		limit.ProviderID[types.NodeName(fmt.Sprintf("node-%d", i))] = fmt.Sprintf("fake://%d", i)
	}
	var own, least time.Duration
	for range b.N {
		least += measureInit(b, limit)
		own += measureInit(b, r.provider)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(benchNodes*b.N)/own.Seconds(), "nodes/s")
	b.ReportMetric(float64(benchNodes*b.N)/least.Seconds(), "limit-nodes/s")
	b.ReportMetric(least.Seconds()/own.Seconds(), "of-limit(>=0.8)")
}

func measureInit(b *testing.B, cloud cloudprovider.Interface) time.Duration {
	b.Helper()
	klog.LogToStderr(false) // log output would make the measured time longer
	klog.SetOutput(io.Discard)
	defer klog.LogToStderr(true)
	kube := fake.NewClientset()
	for i := range benchNodes {
		if _, err := kube.CoreV1().Nodes().Create(b.Context(), newNode(fmt.Sprintf("node-%d", i)), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	shared := informers.NewSharedInformerFactory(kube, 0)
	nodes := shared.Core().V1().Nodes()
	nc, err := nodecontroller.NewCloudNodeController(nodes, kube, cloud, time.Hour, 10, 10)
	if err != nil {
		b.Fatal(err)
	}
	var done atomic.Int64
	all := make(chan struct{})
	_, err = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if hasTaint(before.(*v1.Node), cloudapi.TaintExternalCloudProvider) && !hasTaint(after.(*v1.Node), cloudapi.TaintExternalCloudProvider) && done.Add(1) == benchNodes {
			close(all)
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	began := time.Now()
	var running sync.WaitGroup
	running.Go(func() { nc.RunWithContext(ctx, controllersmetrics.NewControllerManagerMetrics("bench")) })
	<-all
	took := time.Since(began)
	cancel()
	running.Wait()
	shared.Shutdown()
	return took
}

// BenchmarkIdleMinute counts the calls to the cloud in a minute without changes, for 5,000 Nodes.
// Of these Nodes, 100 are not ready. Upstream requests the addresses of each Node every five
// minutes. For each Node that is not ready, upstream also calls the provider twice every five
// seconds. The benchmark runs once with the mirror, the provider's local copy of the cloud, and
// once without the mirror. The metric "calls/min" is the number of calls with the mirror. It must
// not exceed the metric "limit-calls/min", the number of calls without the mirror.
func BenchmarkIdleMinute(b *testing.B) {
	r := newRig(b)
	nodes := r.createMachines(b, benchNodes)
	minute := func() float64 {
		r.wire.spoil(nil)
		ask := r.instances()
		for i, n := range nodes[:benchNodes/5] { // upstream requests the data of each Node every five minutes, so in a minute it requests the data of a fifth of the Nodes
			if _, err := ask.InstanceMetadata(b.Context(), n); err != nil {
				b.Fatal(err)
			}
			if i >= benchNodes/50 {
				continue
			}
			for range 12 {
				exists, err := ask.InstanceExists(b.Context(), n)
				off, err2 := ask.InstanceShutdown(b.Context(), n)
				if !exists || off || err != nil || err2 != nil {
					b.Fatal(exists, off, err, err2)
				}
			}
		}
		return float64(len(r.wire.takeCalls(false)))
	}
	var each, withMirror float64
	for range b.N {
		each += minute()
	}
	r.startMirror(b)
	for range b.N {
		withMirror += minute()
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(withMirror/n, "calls/min")
	b.ReportMetric(each/n, "limit-calls/min")
	b.ReportMetric(withMirror/n/benchNodes, "calls/min/node")
}

// BenchmarkMembership measures the time in which five workers add a node to 1,000 Services with 999
// nodes each. In the CCM, upstream's service controller has the same number of workers. The
// benchmark compares the measured time with the time in which five workers write the targets
// directly to the cloud. The benchmark takes one or two minutes of processor time. The cloud uses
// most of this time, because each load balancer has all nodes as targets.
func BenchmarkMembership(b *testing.B) {
	const services, nodes = 1000, 1000
	r := newRig(b)
	r.startMirror(b)
	all := r.createMachines(b, nodes)
	svcs := make([]*v1.Service, services)
	lbs := make([]cloudsim.LoadBalancerID, services)
	runConcurrently(20, services, func(i int) {
		svcs[i] = newService(func(s *v1.Service) {
			s.Name, s.UID = fmt.Sprintf("web-%d", i), types.UID(fmt.Sprintf("00000000-1111-2222-3333-%012d", i))
		})
		if _, err := r.balancers().EnsureLoadBalancer(b.Context(), cluster, svcs[i], all[1:]); err != nil {
			b.Error(err)
		}
	})
	found, _, err := cloudsim.All(b.Context(), r.cloud.ListLoadBalancers, cloudsim.ListOptions{})
	if err != nil || len(found) != services {
		b.Fatalf("load balancers: got %d, error %v; want %d", len(found), err, services)
	}
	for i, lb := range found {
		lbs[i] = lb.ID
	}
	targets := make([]cloudsim.Target, nodes)
	for i, n := range all {
		targets[i] = cloudsim.Target{Instance: cloudsim.InstanceID(n.Spec.ProviderID[len("cloudsim://sim-1/sim-1a/"):])}
	}
	timed := func(work func(i int) error) time.Duration {
		began := time.Now()
		runConcurrently(5, services, func(i int) {
			if err := work(i); err != nil {
				b.Error(err)
			}
		})
		return time.Since(began)
	}
	var own, least time.Duration
	for range b.N {
		r.wire.spoil(nil)
		own += timed(func(i int) error { return r.balancers().UpdateLoadBalancer(b.Context(), cluster, svcs[i], all) })
		b.ReportMetric(float64(len(r.wire.takeCalls(false)))/services, "calls/service")
		least += timed(func(i int) error {
			_, err := r.api.SetLoadBalancerTargets(b.Context(), lbs[i], cloudsim.SetTargets{Targets: targets[1:]})
			return err
		})
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(own.Seconds()/float64(b.N), "s")
	b.ReportMetric(least.Seconds()/float64(b.N), "limit-s")
	b.ReportMetric(least.Seconds()/own.Seconds(), "of-limit(>=0.8)")
}
