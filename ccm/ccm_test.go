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
	"testing/synctest"
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

// rig contains a simulated cloud and a provider that calls this cloud. A test
// can make the provider's calls fail.
type rig struct {
	cloud    *client.Client // client of an admin; the faults of a test do not affect its calls
	api      *client.Client // the provider's client; a test can add faults to its calls
	wire     *wire
	events   *record.FakeRecorder
	cfg      ccm.Config
	pods     []*discoveryv1.EndpointSlice // EndpointSlices of the cluster
	provider *ccm.Provider
}

// newRigAndEngine returns a new rig and the engine of its cloud. With the engine,
// a test can report the status of load balancers, as a data plane does.
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
	spoilable := *cloudtest.As(t, cloud, "ccm", cloudsim.RoleCCM) // with the same permissions as the CCM in a lab
	spoilable.HTTP = &http.Client{Timeout: 10 * time.Second, Transport: r.wire}
	r.api = &spoilable
	r.provider = r.restarted()
	return r
}

// restarted returns a new provider without the state of the earlier provider,
// as after a restart of the process.
func (r *rig) restarted() *ccm.Provider {
	return ccm.New(slog.New(slog.DiscardHandler), r.api, ccm.NewSettings(r.cfg), r.events).Hurry().WithPods(r.pods...)
}

// startMirror starts the mirror, the provider's local copy of the cloud, and
// waits until the mirror is up to date.
func (r *rig) startMirror(t testing.TB) {
	t.Helper()
	stop := make(chan struct{})
	r.provider.Initialize(nil, stop)
	t.Cleanup(func() { close(stop); r.provider.Wait() })
	eventually.True(t, "the cloud is mirrored", r.provider.Mirrored)
}

// awaitMirror waits until the revision of the load balancer in the mirror is at
// least lb.Revision. If the mirror is not running, the method returns at once.
func (r *rig) awaitMirror(t testing.TB, lb cloudsim.LoadBalancer) {
	t.Helper()
	eventually.True(t, "the load balancer is mirrored", func() bool {
		got, known := r.provider.MirroredBalancer(lb.Name)
		return !r.provider.Mirrored() || known && got.Revision >= lb.Revision
	})
}

func withAndWithoutMirror(t *testing.T, test func(t *testing.T, r *rig), opts ...cloudtest.Option) {
	t.Helper()
	t.Run("asking the cloud", func(t *testing.T) { test(t, newRig(t, opts...)) })
	t.Run("with a mirror", func(t *testing.T) {
		r := newRig(t, opts...)
		r.startMirror(t)
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

// takeEvents returns the events since the last call of takeEvents, one event
// per line.
func (r *rig) takeEvents() string {
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

// wire is an HTTP transport that records the calls of the provider. It can also
// lose calls or replace the answers to calls.
type wire struct {
	next  http.RoundTripper
	takes time.Duration // delay before each call

	mu    sync.Mutex
	calls []string
	fault func(n int, r *http.Request) fault
	token client.TokenSource // if set, replaces the token of the provider
	watch []io.Closer
}

// fault describes how a call fails. With the zero value, the call succeeds.
type fault struct {
	loseReply bool   // the cloud executes the call, but the reply is lost
	cut       bool   // the call does not arrive at the cloud
	hang      bool   // the call never gets an answer
	status    int    // a proxy answers with this status instead of the cloud
	body      string // body of the proxy's answer
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

// hangUp closes all open watches. It first waits until the cloud has answered
// all running requests for a watch. This wait works only in a bubble of synctest.
func (w *wire) hangUp() {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.watch {
		_ = c.Close()
	}
	w.watch = nil
}

// spoil sets the function that chooses a fault for each later call to the cloud.
// It also clears the list of recorded calls.
func (w *wire) spoil(faultFn func(n int, r *http.Request) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.calls = faultFn, nil
}

// takeCalls returns the recorded calls to the cloud since the test last called
// spoil. If mutating is true, the method returns only the calls that can change
// objects in the cloud.
func (w *wire) takeCalls(mutating bool) []string {
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

func (r *rig) createMachine(t testing.TB, name string) cloudsim.Instance {
	t.Helper()
	i, err := r.cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// newNode returns a Node in the form in which a kubelet registers it, before
// the CCM initializes the Node.
func newNode(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: cloudapi.TaintExternalCloudProvider, Value: "true", Effect: v1.TaintEffectNoSchedule}}},
	}
}

func initializedNode(i cloudsim.Instance) *v1.Node {
	n := newNode(i.Name)
	n.Spec.Taints, n.Spec.ProviderID = nil, i.ProviderID
	return n
}

func newService(change ...func(*v1.Service)) *v1.Service {
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

func (r *rig) balancersInCloud(t testing.TB) []cloudsim.LoadBalancer {
	t.Helper()
	l, err := r.cloud.ListLoadBalancers(t.Context(), cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l.Items
}

func (r *rig) onlyLoadBalancer(t testing.TB) cloudsim.LoadBalancer {
	t.Helper()
	all := r.balancersInCloud(t)
	if len(all) != 1 {
		t.Fatalf("%d load balancers exist, want 1", len(all))
	}
	return all[0]
}

func (r *rig) ensure(t testing.TB, s *v1.Service, nodes ...*v1.Node) *v1.LoadBalancerStatus {
	t.Helper()
	st, err := r.balancers().EnsureLoadBalancer(t.Context(), cluster, s, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// hourLater advances the cloud's clock by an hour. Tests call hourLater to end
// an operation that takes an hour of the cloud's time.
func (r *rig) hourLater(t testing.TB) {
	t.Helper()
	if _, err := r.cloud.AdvanceClock(t.Context(), cloudsim.AdvanceClock{Seconds: 3600}); err != nil {
		t.Fatal(err)
	}
}
