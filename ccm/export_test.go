package ccm

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	clientcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// Hurry limits each wait of p for load balancers and routes to a few milliseconds. If the cloud
// needs more time, the methods of p return an error.
func (p *Provider) Hurry() *Provider {
	p.loadBalancers.backoff = wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}
	p.routes.backoff = p.loadBalancers.backoff
	p.loadBalancers.maxUnreported = 0
	return p
}

func (p *Provider) WithPods(all ...*discoveryv1.EndpointSlice) *Provider {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, s := range all {
		_ = index.Add(s)
	}
	p.loadBalancers.endpoints = endpointReader{discoverylisters.NewEndpointSliceLister(index), func() bool { return true }}
	return p
}

// Unread puts p in the state that it has before the informer has listed the EndpointSlices.
func (p *Provider) Unread() { p.loadBalancers.endpoints.synced = func() bool { return false } }

func (p *Provider) RunPodFollower(ctx context.Context, shared informers.SharedInformerFactory, cluster string) (run func(), err error) {
	core := shared.Core().V1()
	f, err := newPodFollower(p, core.Services(), core.Nodes(), shared.Discovery().V1().EndpointSlices(), cluster)
	if err != nil {
		return nil, err
	}
	return func() { f.run(ctx) }, nil
}

var (
	Measure   = measuredTransport
	Operation = operationOf
	Migrating = completeMigration
)

// View returns the Service in the form that upstream's controller gets from the informer cache. The
// function classView makes this form.
func (p *Provider) View(svc *v1.Service) *v1.Service {
	cfg := p.settings.Get()
	seen, _ := classView(cfg.LoadBalancerClass, !cfg.OnlyLoadBalancerClass, p.loadBalancers.finalizers)(svc)
	return seen.(*v1.Service)
}

// Wrote reports whether this program added the finalizer to the Service.
var Wrote = hasWritten

func (p *Provider) RunRepairer(ctx context.Context, kube kubernetes.Interface, services coreinformers.ServiceInformer, nodes coreinformers.NodeInformer, cluster string, settle time.Duration) (run func(), err error) {
	r, err := newRepairer(p, kube, services, nodes, cluster)
	if err != nil {
		return nil, err
	}
	r.settle = settle
	return func() { r.run(ctx) }, nil
}

func (p *Provider) Sweeper(kube kubernetes.Interface, cluster string) func(context.Context) error {
	return newSweeper(p, kube, cluster).sweep
}

// Hear simulates a message of the cloud's watch.
func (p *Provider) Hear() { p.mirror.OnSync(true) }

func (p *Provider) Mirrored() bool { return p.mirror.isFresh() }

// Drift compares the load balancer of a Service with the load balancer that the
// Service requests. It returns a description of the difference. It calls the method
// that the CCM's repair controller uses to find differences.
func (p *Provider) Drift(ctx context.Context, cluster string, svc *v1.Service, nodes ...*v1.Node) (string, error) {
	return (&repairer{p: p, cluster: cluster}).findDrift(ctx, svc, nodes)
}

func (p *Provider) MirroredInstance(id cloudsim.InstanceID) (cloudsim.Instance, bool) {
	return p.mirror.instance(id)
}

func (p *Provider) MirroredBalancer(name string) (cloudsim.LoadBalancer, bool) {
	return p.mirror.balancerNamed(name)
}

func (p *Provider) SyncLabels(ctx context.Context, kube kubernetes.Interface, n *v1.Node) error {
	return (&labeler{log: p.log, p: p, kube: kube}).sync(ctx, n)
}

func (p *Provider) SweepLabels(ctx context.Context, kube kubernetes.Interface, nodes ...*v1.Node) error {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, n := range nodes {
		_ = index.Add(n)
	}
	return (&labeler{log: p.log, p: p, kube: kube, nodes: corelisters.NewNodeLister(index)}).sweep(ctx)
}

// Age makes the records of all absent instances older by the duration d.
func (p *Provider) Age(d time.Duration) {
	p.instances.mu.Lock()
	defer p.instances.mu.Unlock()
	for k, a := range p.instances.absent {
		p.instances.absent[k] = absenceRecord{a.firstMissed.Add(-d), a.lastMissed.Add(-d)}
	}
}

func (p *Provider) WithMonitorPeriod(period time.Duration) *Provider {
	p.instances.setMonitorPeriod(period)
	return p
}

func (p *Provider) RunAllocator(ctx context.Context, kube kubernetes.Interface, nodes coreinformers.NodeInformer, clusterCIDR, clusterName string) (run func(), err error) {
	a, err := newAllocator(p, kube, nodes, clusterCIDR, clusterName)
	if err != nil {
		return nil, err
	}
	return func() { a.run(ctx) }, nil
}

func (s *Settings) Client() *client.Client { return s.client() }

// NewCommandWithSilence returns the same command as NewCommand, but with a different timeout. The
// parameter silence replaces clientTimeout.
func NewCommandWithSilence(getenv func(string) string, stderr io.Writer, silence time.Duration) *cobra.Command {
	return newCommand(getenv, stderr, silence)
}

// Health returns the error that /healthz reports about the cloud.
func (p *Provider) Health() error { return health{p}.Check(nil) }

// Resync calls setResync with upstream's default period and returns the resulting minimum resync
// period. If isChosen is true, setResync acts as if the user had set the period with a flag: it
// does not change the period.
func Resync(isChosen bool) (time.Duration, error) {
	opts, err := defaultOptions()
	if err != nil {
		return 0, err
	}
	(&runner{opts: opts}).setResync(isChosen)
	return opts.Generic.MinResyncPeriod.Duration, nil
}

func ConfigOf(path string, flags ...string) (Config, error) {
	opts, err := defaultOptions()
	if err != nil {
		return Config{}, err
	}
	opts.KubeCloudShared.CloudProvider.CloudConfigFile = path
	r := &runner{getenv: func(string) string { return "" }, opts: opts}
	all := r.flags()
	if err := all.FlagSet("cloud").Parse(flags); err != nil {
		return Config{}, err
	}
	return r.mergeConfig()
}

func AcquireAndRelease(ctx context.Context, api clientcoordinationv1.LeaseInterface, lease string) error {
	l := &leaseReleaser{log: slog.New(slog.DiscardHandler), api: api, main: lease, all: []string{lease}}
	l.setIdentity()
	return l.releaseAll(ctx)
}
