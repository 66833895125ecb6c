// Package ccm implements k8s.io/cloud-provider for a simulated cloud
// (KEP-2392). The cloud controller manager (CCM) initializes Nodes, deletes
// Nodes without an instance, and creates load balancers for Services. The
// module k8s.io/cloud-provider contains most of the controllers. In comments,
// "upstream" and "the framework" mean this module. This package contains the
// provider that upstream's controllers call, a few additional controllers, and
// the command.
//
// Two rules apply everywhere. First, the provider treats an unclear answer of
// the cloud as an error. It never treats such an answer as the absence of an
// object. After an error the framework deletes nothing and calls the provider
// again. If the provider wrongly reported that an instance is absent, the
// framework would delete the Node. Second, every operation is safe to repeat. A
// lost reply, a restart or a new leader can interrupt an operation, and the
// next run completes the operation.
package ccm

import (
	"context"
	"log/slog"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// Provider is a cloudprovider.Interface. The fields instances, loadBalancers,
// routes and mirror share one client. The framework calls methods such as
// InstancesV2 for every Node, so these methods only return a field.
type Provider struct {
	log           *slog.Logger
	settings      *Settings
	events        record.EventRecorder
	mirror        *mirror
	instances     *instances
	loadBalancers *loadBalancers
	routes        *routes

	// reread reads the configuration again. It is nil if there is no
	// configuration file.
	reread func() (Config, error)
	// restartSettings contains the last values of the settings that take effect only after a
	// restart. Reload compares new values with these values, so that it logs only one warning for
	// each change.
	restartSettings Config
	// onLeading contains a function that Initialize calls. Upstream calls
	// Initialize when this process begins to lead. onLeading may be nil.
	onLeading func()

	start sync.Once
	runs  sync.WaitGroup
	stop  sync.Once
	over  chan struct{} // closed by Stop
}

var (
	_ cloudprovider.Interface    = (*Provider)(nil)
	_ cloudprovider.InformerUser = (*Provider)(nil)
)

// New returns a provider that calls the cloud with the given client. The provider reads most
// settings again at each use. The settings that startSettings returns take effect only after a
// restart.
func New(log *slog.Logger, api *client.Client, settings *Settings, events record.EventRecorder) *Provider {
	m := newMirror(log, api)
	i := &instances{api: api, mirror: m, events: events, settings: settings, absent: map[nodeKey]absenceRecord{}, absenceLasts: minAbsenceLasts}
	return &Provider{
		log: log, settings: settings, events: events, mirror: m, over: make(chan struct{}),
		instances:     i,
		loadBalancers: &loadBalancers{log: log, api: api, events: events, settings: settings, mirror: m, backoff: retryBackoff, maxUnreported: maxUnreported, sharedSlot: make(chan struct{}, 1), finalizers: &finalizerOwners{owned: map[types.UID]bool{}}},
		routes:        &routes{api: api, instances: i, backoff: retryBackoff, early: map[string]string{}},
	}
}

// Initialize calls onLeading and starts the mirror, a local copy of the cloud's objects. If there
// is a configuration file, it also starts a reloader, which reads the file periodically. The mirror
// and the reloader run until the caller closes the given channel or calls p.Stop. The caller can
// use p.Wait to wait until both have ended. With leader migration, upstream calls Initialize twice.
// The second call only calls onLeading.
func (p *Provider) Initialize(_ cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	if p.onLeading != nil {
		p.onLeading()
	}
	p.start.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		p.runs.Go(func() {
			defer cancel()
			select {
			case <-stop:
			case <-p.over:
			}
		})
		p.runs.Go(func() { p.mirror.run(ctx) })
		if p.reread != nil {
			p.runs.Go(func() { reloader{p.log, p, p.reread}.run(ctx) })
		}
	})
}

// Stop ends all goroutines that this provider started. The command must call
// Stop itself. With leader election, upstream does not stop the provider,
// because upstream expects that the process exits.
func (p *Provider) Stop() { p.stop.Do(func() { close(p.over) }) }

// startWork calls the given function in a new goroutine. The function's context
// ends when ctx ends, or when any goroutine calls Stop.
func (p *Provider) startWork(ctx context.Context, work func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	p.runs.Go(func() {
		defer cancel()
		work(ctx)
	})
	p.runs.Go(func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-p.over:
		}
	})
}

// Wait returns when all goroutines that this provider started have ended.
func (p *Provider) Wait() { p.runs.Wait() }

// SetInformers sets the transforms of the informers, and gives the provider access to the
// EndpointSlices. Upstream calls SetInformers before it creates its controllers. A transform
// changes an object before the informer stores the object. These transforms remove managedFields,
// because managedFields are a large part of a Node and no controller reads them in the informer
// caches. The API server keeps the existing managedFields if a controller writes an object without
// managedFields.
func (p *Provider) SetInformers(f informers.SharedInformerFactory) {
	cfg := p.settings.Get()
	set := func(i cache.SharedIndexInformer, t cache.TransformFunc) {
		if err := i.SetTransform(t); err != nil {
			p.log.Error("transform of an informer not set", "err", err)
		}
	}
	set(f.Core().V1().Nodes().Informer(), strippedNode)
	set(f.Core().V1().Services().Informer(), classView(cfg.LoadBalancerClass, !cfg.OnlyLoadBalancerClass, p.loadBalancers.finalizers))
	pods := f.Discovery().V1().EndpointSlices()
	set(pods.Informer(), strippedSlice)
	p.loadBalancers.endpoints = endpointReader{pods.Lister(), pods.Informer().HasSynced}
}

// strippedNode returns a copy of a Node without managedFields. It copies only
// the outer struct. It does not change the given object, because other code may
// use that object.
func strippedNode(obj any) (any, error) {
	n, ok := obj.(*v1.Node)
	if !ok {
		return obj, nil
	}
	view := *n
	view.ManagedFields = nil
	return &view, nil
}

// ProviderName returns the scheme of the provider ids.
func (p *Provider) ProviderName() string { return providerid.Scheme }

// HasClusterID returns true, because the CCM labels its cloud resources with
// the cluster's name.
func (p *Provider) HasClusterID() bool { return true }

// InstancesV2 returns the part of the provider that the framework calls for
// Nodes.
func (p *Provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return p.instances, true }

// LoadBalancer returns the part of the provider that the framework calls for
// Services.
func (p *Provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return p.loadBalancers, true }

// Instances returns false, because InstancesV2 replaces the interface
// Instances.
func (p *Provider) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones returns false, because InstancesV2 replaces the interface Zones.
func (p *Provider) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters returns false, because the framework does not use the interface
// Clusters.
func (p *Provider) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes returns the part of the provider that the framework calls for routes
// to pods.
func (p *Provider) Routes() (cloudprovider.Routes, bool) { return p.routes, true }
