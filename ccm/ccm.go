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
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	instances *instances
	balancers *balancers
}

var (
	_ cloudprovider.Interface    = (*Provider)(nil)
	_ cloudprovider.InformerUser = (*Provider)(nil)
)

// New returns a provider that calls the cloud by api. region is where load
// balancers are made; "" means the cloud's only one. What people should know
// about a Service goes to events.
func New(log *slog.Logger, api *client.Client, region string, events record.EventRecorder) *Provider {
	return &Provider{
		log:       log,
		instances: &instances{api: api},
		balancers: &balancers{log: log, api: api, events: events, region: region, patience: patience, unreported: unreported},
	}
}

// Initialize has nothing to start: every call stands on its own.
func (p *Provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// SetInformers makes the caches of the controllers smaller: nobody here reads
// managedFields, which are a good part of a Node. An update without them keeps
// them on the server.
func (p *Provider) SetInformers(f informers.SharedInformerFactory) {
	for _, i := range []cache.SharedIndexInformer{f.Core().V1().Nodes().Informer(), f.Core().V1().Services().Informer()} {
		if err := i.SetTransform(stripManagedFields); err != nil {
			p.log.Warn("caches keep managedFields", "err", err)
		}
	}
}

func stripManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
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

// Routes is not offered: the cloud has none.
func (p *Provider) Routes() (cloudprovider.Routes, bool) { return nil, false }
