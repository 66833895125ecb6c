// Package ccm speaks k8s.io/cloud-provider to a simulated cloud (KEP-2392): it
// initialises nodes, removes those whose instance is gone, and makes load
// balancers for Services. The controllers are upstream's; this package is the
// provider below them, and the command around them.
//
// Two rules run through it. What the cloud did not clearly say is an error,
// never an absence: an error costs a retry, a wrong absence costs a Node. And
// every call may be the second of its kind: a reply that was lost, a restart or
// another leader leave things half done, and the next run finishes them.
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

// Provider is a cloudprovider.Interface. Its parts share one client, and are
// made once: the framework asks for them again for every node.
type Provider struct {
	log       *slog.Logger
	settings  *Settings
	events    record.EventRecorder
	mirror    *mirror
	instances *instances
	balancers *balancers
	routes    *routes

	// reread returns the configuration as it is on disk; nil if it is not.
	reread func() (Config, error)
	// unheeded is what the file says that only a restart would heed; told once.
	unheeded Config
	// leads is told when this process begins to lead; nil if nobody asks.
	leads func()

	start sync.Once
	runs  sync.WaitGroup
	stop  sync.Once
	over  chan struct{} // closed by Stop
}

var (
	_ cloudprovider.Interface    = (*Provider)(nil)
	_ cloudprovider.InformerUser = (*Provider)(nil)
)

// New returns a provider that calls the cloud by api and does as settings say. What
// people should know about a Service or a Node goes to events.
func New(log *slog.Logger, api *client.Client, settings *Settings, events record.EventRecorder) *Provider {
	m := newMirror(log, api)
	i := &instances{api: api, mirror: m, events: events, settings: settings, absent: map[nodeKey]absence{}}
	return &Provider{
		log: log, settings: settings, events: events, mirror: m, over: make(chan struct{}),
		instances: i,
		balancers: &balancers{log: log, api: api, events: events, settings: settings, mirror: m, patience: patience, unreported: unreported, sharing: make(chan struct{}, 1), whose: &claims{ours: map[types.UID]bool{}}},
		routes:    &routes{api: api, instances: i, patience: patience, early: map[string]string{}},
	}
}

// Initialize starts to mirror the cloud until stop closes; Wait returns after
// that. With leader migration upstream calls it twice.
func (p *Provider) Initialize(_ cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	if p.leads != nil {
		p.leads()
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

// Stop ends everything that was started here. With leader election upstream
// ends nothing by itself: it leaves that to the end of the process.
func (p *Provider) Stop() { p.stop.Do(func() { close(p.over) }) }

// during runs work until ctx ends or Stop is called.
func (p *Provider) during(ctx context.Context, work func(context.Context)) {
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

// Wait returns when everything that was started here has ended.
func (p *Provider) Wait() { p.runs.Wait() }

// SetInformers chooses how upstream's controllers see Nodes and Services, before
// they are made. Their caches hold no managedFields, which nobody here reads and
// which are a good part of a Node; an update without them keeps them on the
// server. Services are shown as classView says.
func (p *Provider) SetInformers(f informers.SharedInformerFactory) {
	cfg := p.settings.Get()
	set := func(i cache.SharedIndexInformer, t cache.TransformFunc) {
		if err := i.SetTransform(t); err != nil {
			p.log.Error("an informer cannot be given its view", "err", err)
		}
	}
	set(f.Core().V1().Nodes().Informer(), strippedNode)
	set(f.Core().V1().Services().Informer(), classView(cfg.LoadBalancerClass, !cfg.OnlyLoadBalancerClass, p.balancers.whose))
	pods := f.Discovery().V1().EndpointSlices()
	set(pods.Informer(), strippedSlice)
	p.balancers.endpoints = endpoints{pods.Lister(), pods.Informer().HasSynced}
}

// strippedNode is a Node without its managedFields. The object that an informer
// was given may be somebody else's as well, so this is a copy of its skin.
func strippedNode(obj any) (any, error) {
	n, ok := obj.(*v1.Node)
	if !ok {
		return obj, nil
	}
	view := *n
	view.ManagedFields = nil
	return &view, nil
}

// ProviderName is the scheme of our provider ids.
func (p *Provider) ProviderName() string { return providerid.Scheme }

// HasClusterID is true: what a cluster makes carries the cluster's name.
func (p *Provider) HasClusterID() bool { return true }

// InstancesV2 answers for nodes.
func (p *Provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return p.instances, true }

// LoadBalancer makes load balancers for Services.
func (p *Provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return p.balancers, true }

// Instances is not offered: InstancesV2 replaces it.
func (p *Provider) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones is not offered: InstancesV2 replaces it.
func (p *Provider) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters is not offered: nothing calls it.
func (p *Provider) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes makes routes to the pods of nodes.
func (p *Provider) Routes() (cloudprovider.Routes, bool) { return p.routes, true }
