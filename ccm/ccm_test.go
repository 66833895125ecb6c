package ccm_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

const cluster = "kubernetes"

// rig is a real cloud, and our provider that calls it by a wire that can be
// cut.
type rig struct {
	cloud    *client.Client // the person at the cloud's console: a wire of its own
	api      *client.Client // what the provider calls with; a test may spoil it
	wire     *wire
	events   *record.FakeRecorder
	cfg      ccm.Config
	pods     []*discoveryv1.EndpointSlice // of the cluster
	provider *ccm.Provider
}

// newRigAndEngine is newRig with the cloud's engine, to report what a data plane
// would.
func newRigAndEngine(t testing.TB) (*rig, *engine.Engine) {
	t.Helper()
	engines := make(chan *engine.Engine, 1)
	r := newRig(t, cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
		engines <- e
		<-ctx.Done()
		return nil
	}))
	return r, <-engines
}

func newRig(t testing.TB, opts ...cloudtest.Option) *rig {
	t.Helper()
	cloud := cloudtest.Start(t, opts...)
	r := &rig{cloud: cloud, wire: &wire{next: cloud.HTTP.Transport}, events: record.NewFakeRecorder(100)}
	spoilable := *cloudtest.As(t, cloud, "ccm", cloudsim.RoleCCM) // what it may do in a lab, and no more
	spoilable.HTTP = &http.Client{Timeout: 10 * time.Second, Transport: r.wire}
	r.api = &spoilable
	r.provider = r.again()
	return r
}

// again is the provider of another process: it knows nothing of the first.
func (r *rig) again() *ccm.Provider {
	return ccm.New(slog.New(slog.DiscardHandler), r.api, ccm.NewSettings(r.cfg), r.events).Hurry().WithPods(r.pods...)
}

// mirrored starts the provider's mirror of the cloud, and waits for it.
func (r *rig) mirrored(t testing.TB) {
	t.Helper()
	stop := make(chan struct{})
	r.provider.Initialize(nil, stop)
	t.Cleanup(func() { close(stop); r.provider.Wait() })
	eventually.True(t, "the cloud is mirrored", r.provider.Mirrored)
}

// mirrors waits until the mirror, if there is one, holds the load balancer as it
// is.
func (r *rig) mirrors(t testing.TB, lb cloudsim.LoadBalancer) {
	t.Helper()
	eventually.True(t, "the load balancer is mirrored", func() bool {
		got, known := r.provider.MirroredBalancer(lb.Name)
		return !r.provider.Mirrored() || known && got.Revision >= lb.Revision
	})
}

// both runs a test without a mirror of the cloud, and with one.
func both(t *testing.T, test func(t *testing.T, r *rig), opts ...cloudtest.Option) {
	t.Helper()
	t.Run("asking the cloud", func(t *testing.T) { test(t, newRig(t, opts...)) })
	t.Run("with a mirror", func(t *testing.T) {
		r := newRig(t, opts...)
		r.mirrored(t)
		test(t, r)
	})
}

func (r *rig) instances() cloudprovider.InstancesV2 {
	i, _ := r.provider.InstancesV2()
	return i
}

func (r *rig) balancers() cloudprovider.LoadBalancer {
	b, _ := r.provider.LoadBalancer()
	return b
}

// said takes the events so far, one on a line.
func (r *rig) said() string {
	var all []string
	for {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

// wire counts the calls of the provider, and loses or spoils some.
type wire struct {
	next  http.RoundTripper
	takes time.Duration // for each call

	mu    sync.Mutex
	calls []string
	fault func(n int, r *http.Request) fault
	token client.TokenSource // instead of the caller's, if there is one
	watch []io.Closer
}

// fault is what goes wrong with a call.
type fault struct {
	loseReply bool   // the cloud acts, and the answer never arrives
	cut       bool   // the cloud never hears of it
	hang      bool   // nobody ever answers
	status    int    // somebody else answers with this status
	body      string // and this body
}

var errCut = errors.New("connection reset by the test")

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	n, choose, token := len(w.calls), w.fault, w.token
	w.calls = append(w.calls, r.Method+" "+r.URL.Path)
	w.mu.Unlock()
	time.Sleep(w.takes)
	if token != nil {
		secret, err := token()
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	var f fault
	if choose != nil {
		f = choose(n, r)
	}
	switch {
	case f.cut:
		return nil, errCut
	case f.hang:
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	case f.status != 0:
		return &http.Response{
			StatusCode: f.status, Status: http.StatusText(f.status), Request: r,
			Header: http.Header{}, Body: io.NopCloser(strings.NewReader(f.body)),
		}, nil
	}
	resp, err := w.next.RoundTrip(r)
	switch {
	case err == nil && f.loseReply:
		resp.Body.Close()
		return nil, errCut
	case err == nil && strings.HasSuffix(r.URL.Path, "/watch"):
		w.mu.Lock()
		defer w.mu.Unlock()
		w.watch = append(w.watch, resp.Body)
	}
	return resp, err
}

// hangUp breaks the watches there are.
func (w *wire) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.watch {
		_ = c.Close()
	}
	w.watch = nil
}

// spoil chooses what goes wrong from now on, and forgets the calls so far.
func (w *wire) spoil(choose func(n int, r *http.Request) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.calls = choose, nil
}

// made are the calls since the last spoil, only those that could change the
// cloud if mutating.
func (w *wire) made(mutating bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, c := range w.calls {
		if !mutating || !strings.HasPrefix(c, "GET ") {
			out = append(out, c)
		}
	}
	return out
}

// machine creates an instance.
func (r *rig) machine(t testing.TB, name string) cloudsim.Instance {
	t.Helper()
	i, err := r.cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// node is a Node as kubelet makes it on i, before a cloud initialised it.
func node(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: cloudapi.TaintExternalCloudProvider, Value: "true", Effect: v1.TaintEffectNoSchedule}}},
	}
}

// initialised is the Node of i after a cloud initialised it.
func initialised(i cloudsim.Instance) *v1.Node {
	n := node(i.Name)
	n.Spec.Taints, n.Spec.ProviderID = nil, i.ProviderID
	return n
}

// service is a Service that the cloud can serve: port 80 to node port 30080.
func service(change ...func(*v1.Service)) *v1.Service {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "0a0b0c0d-1111-2222-3333-444455556666"},
		Spec: v1.ServiceSpec{
			Type:                  v1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: v1.ServiceExternalTrafficPolicyCluster,
			SessionAffinity:       v1.ServiceAffinityNone,
			IPFamilies:            []v1.IPFamily{v1.IPv4Protocol},
			Ports:                 []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80, NodePort: 30080}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// balancersInCloud are all load balancers that exist.
func (r *rig) balancersInCloud(t testing.TB) []cloudsim.LoadBalancer {
	t.Helper()
	l, err := r.cloud.ListLoadBalancers(t.Context(), cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l.Items
}

// only is the one load balancer that exists.
func (r *rig) only(t testing.TB) cloudsim.LoadBalancer {
	t.Helper()
	all := r.balancersInCloud(t)
	if len(all) != 1 {
		t.Fatalf("%d load balancers exist, want 1", len(all))
	}
	return all[0]
}

// ensure makes the Service's load balancer and fails the test if that fails.
func (r *rig) ensure(t testing.TB, s *v1.Service, nodes ...*v1.Node) *v1.LoadBalancerStatus {
	t.Helper()
	st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// hourLater lets an hour of the cloud's time pass: what takes one there is being
// done for as long as a test wants it to be.
func (r *rig) hourLater(t testing.TB) {
	t.Helper()
	if _, err := r.cloud.AdvanceClock(t.Context(), cloudsim.AdvanceClock{Seconds: 3600}); err != nil {
		t.Fatal(err)
	}
}
