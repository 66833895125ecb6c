package fake

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/cloudsim-dev/allinone/conform"
)

// Bug is a defect of the CCM. Most bugs were found in real CCMs.
type Bug string

// These are the bugs. The comment names the wrong behaviour.
const (
	NoZone              Bug = "NoZone"              // Nodes get no zone and no region
	OtherProviderID     Bug = "OtherProviderID"     // Nodes get the provider ID of no machine
	NoExternalIP        Bug = "NoExternalIP"        // Nodes get only internal addresses
	EveryAddress        Bug = "EveryAddress"        // every machine seems to have every --node-ip
	UnknownInitialised  Bug = "UnknownInitialised"  // a Node without a machine is initialised
	ForeignDeleted      Bug = "ForeignDeleted"      // a Node of another provider counts as deleted
	NeverShutdown       Bug = "NeverShutdown"       // a stopped machine counts as running
	StoppedIsDeleted    Bug = "StoppedIsDeleted"    // a stopped machine counts as deleted
	NotFoundError       Bug = "NotFoundError"       // a deleted machine is an error, so its Node stays
	ErrorIsDeleted      Bug = "ErrorIsDeleted"      // after an error of the cloud, the machine counts as deleted
	EmptyListIsDeleted  Bug = "EmptyListIsDeleted"  // the machine counts as deleted if a list is empty
	LookupByName        Bug = "LookupByName"        // a new machine with the same name counts as the old machine
	WrongNodePort       Bug = "WrongNodePort"       // load balancers use the port of the Service as NodePort
	PortsNotUpdated     Bug = "PortsNotUpdated"     // a load balancer keeps its first ports
	Recreate            Bug = "Recreate"            // a change replaces the load balancer
	NodesNotUpdated     Bug = "NodesNotUpdated"     // a load balancer keeps its first Nodes
	Leak                Bug = "Leak"                // load balancers are never deleted
	EveryClass          Bug = "EveryClass"          // the CCM claims Services of every class
	NameOnly            Bug = "NameOnly"            // the load balancer's name omits the namespace
	NoSourceRanges      Bug = "NoSourceRanges"      // source ranges are ignored
	UDPAsTCP            Bug = "UDPAsTCP"            // UDP ports become TCP ports
	CachedLoadBalancers Bug = "CachedLoadBalancers" // a load balancer that was deleted in the cloud counts as existing
	Duplicate           Bug = "Duplicate"           // a repeated creation creates a second load balancer
	RoutesNotRepaired   Bug = "RoutesNotRepaired"   // a deleted route counts as existing
	RoutesNotDeleted    Bug = "RoutesNotDeleted"    // routes are never deleted
	NoRoutes            Bug = "NoRoutes"            // routes are never created
	EveryRoute          Bug = "EveryRoute"          // the CCM deletes routes of other owners
	WriteAtStart        Bug = "WriteAtStart"        // the CCM writes all load balancers after its start
)

// Bugs returns all bugs.
func Bugs() []Bug {
	return []Bug{
		NoZone, OtherProviderID, NoExternalIP, EveryAddress, UnknownInitialised, ForeignDeleted, NeverShutdown, StoppedIsDeleted, NotFoundError,
		ErrorIsDeleted, EmptyListIsDeleted, LookupByName, WrongNodePort, PortsNotUpdated, Recreate, NodesNotUpdated, Leak, EveryClass,
		NameOnly, NoSourceRanges, UDPAsTCP, CachedLoadBalancers, Duplicate, RoutesNotRepaired, RoutesNotDeleted, NoRoutes, EveryRoute, WriteAtStart,
	}
}

// provider implements cloudprovider.Interface for Cloud.
type provider struct {
	cloud *Cloud
	bug   Bug

	// Upstream's controllers call the provider from several goroutines.
	known  sync.Map // conform.LoadBalancer by name, created by this process, for CachedLoadBalancers
	routes sync.Map // *cloudprovider.Route by range, created by this process, for RoutesNotRepaired
}

var (
	_ cloudprovider.Interface    = (*provider)(nil)
	_ cloudprovider.InstancesV2  = (*provider)(nil)
	_ cloudprovider.LoadBalancer = (*provider)(nil)
)

func (p *provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (p *provider) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return p, true }
func (p *provider) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (p *provider) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return p, true }
func (p *provider) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (p *provider) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (p *provider) Routes() (cloudprovider.Routes, bool)                              { return routes{p}, true }
func (p *provider) ProviderName() string                                              { return Name }
func (p *provider) HasClusterID() bool                                                { return true }

// find returns the machine of a Node.
func (p *provider) find(ctx context.Context, n *v1.Node) (conform.Machine, bool, error) {
	return p.cloud.machine(ctx, func(m conform.Machine) bool {
		if n.Spec.ProviderID == "" || p.bug == LookupByName {
			return m.Name == n.Name
		}
		return m.ProviderID == n.Spec.ProviderID
	})
}

// InstanceExists implements cloudprovider.InstancesV2.
func (p *provider) InstanceExists(ctx context.Context, n *v1.Node) (bool, error) {
	if id := n.Spec.ProviderID; id != "" && !strings.HasPrefix(id, Name+"://") && p.bug != ForeignDeleted {
		return false, fmt.Errorf("the provider ID %q belongs to another provider", id)
	}
	m, found, err := p.find(ctx, n)
	switch {
	case err != nil && p.bug == ErrorIsDeleted, p.bug == EmptyListIsDeleted && p.cloud.emptyList():
		return false, nil
	case err == nil && !found && p.bug == NotFoundError:
		return false, cloudprovider.InstanceNotFound
	}
	return found && (m.Running || p.bug != StoppedIsDeleted), err
}

// InstanceShutdown implements cloudprovider.InstancesV2.
func (p *provider) InstanceShutdown(ctx context.Context, n *v1.Node) (bool, error) {
	m, found, err := p.find(ctx, n)
	return found && !m.Running && p.bug != NeverShutdown, err
}

// InstanceMetadata implements cloudprovider.InstancesV2.
func (p *provider) InstanceMetadata(ctx context.Context, n *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	m, found, err := p.find(ctx, n)
	if err != nil {
		return nil, err
	}
	if !found {
		if p.bug != UnknownInitialised {
			return nil, cloudprovider.InstanceNotFound
		}
		m = conform.Machine{ProviderID: Name + "://0", Type: machineType, Addresses: []conform.Address{{Type: "InternalIP", Address: "10.0.0.1"}}}
	}
	md := &cloudprovider.InstanceMetadata{ProviderID: m.ProviderID, InstanceType: m.Type, Zone: m.Zone, Region: m.Region}
	for _, a := range m.Addresses {
		if p.bug != NoExternalIP || a.Type != string(v1.NodeExternalIP) {
			md.NodeAddresses = append(md.NodeAddresses, v1.NodeAddress{Type: v1.NodeAddressType(a.Type), Address: a.Address})
		}
	}
	md.NodeAddresses = append(md.NodeAddresses, v1.NodeAddress{Type: v1.NodeHostName, Address: n.Name})
	switch p.bug {
	case NoZone:
		md.Zone, md.Region = "", ""
	case OtherProviderID:
		md.ProviderID = Name + "://other-" + n.Name
	case EveryAddress:
		if ip := n.Annotations["alpha.kubernetes.io/provided-node-ip"]; ip != "" {
			md.NodeAddresses = append(md.NodeAddresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
		}
	}
	return md, nil
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (p *provider) GetLoadBalancerName(_ context.Context, _ string, s *v1.Service) string {
	if p.bug == NameOnly {
		return s.Name
	}
	return string(s.UID)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer.
func (p *provider) GetLoadBalancer(ctx context.Context, cluster string, s *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	lb, found, err := p.cloud.loadBalancer(ctx, p.GetLoadBalancerName(ctx, cluster, s))
	return statusOf(lb), found, err
}

func statusOf(lb conform.LoadBalancer) *v1.LoadBalancerStatus {
	s := &v1.LoadBalancerStatus{}
	for _, a := range lb.Addresses {
		s.Ingress = append(s.Ingress, v1.LoadBalancerIngress{IP: a})
	}
	return s
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (p *provider) EnsureLoadBalancer(ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	name := p.GetLoadBalancerName(ctx, cluster, s)
	lb, found, err := p.cloud.loadBalancer(ctx, name)
	if err != nil {
		return nil, err
	}
	if known, ok := p.known.Load(name); ok && !found && p.bug == CachedLoadBalancers {
		return statusOf(known.(conform.LoadBalancer)), nil
	}
	want := conform.LoadBalancer{ID: lb.ID, Addresses: lb.Addresses, Machines: namesOf(nodes)}
	if p.bug != NoSourceRanges {
		want.SourceRanges = s.Spec.LoadBalancerSourceRanges
	}
	for _, port := range s.Spec.Ports {
		w := conform.Port{Protocol: string(port.Protocol), Port: port.Port, NodePort: port.NodePort}
		switch p.bug {
		case WrongNodePort:
			w.NodePort = port.Port
		case UDPAsTCP:
			w.Protocol = string(v1.ProtocolTCP)
		}
		want.Ports = append(want.Ports, w)
	}
	switch {
	case found && p.bug == PortsNotUpdated:
		want.Ports = lb.Ports
	case found && p.bug == Recreate && !slices.Equal(lb.Ports, want.Ports):
		want.ID = ""
	case p.bug == Duplicate && !found:
		name += rand.Text()
	}
	if found && same(lb, want) && p.bug != WriteAtStart {
		return statusOf(lb), nil
	}
	if want, err = p.cloud.putLoadBalancer(ctx, name, want); err != nil {
		return nil, err
	}
	p.known.Store(name, want)
	return statusOf(want), nil
}

func same(a, b conform.LoadBalancer) bool {
	return a.ID == b.ID && slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Machines, b.Machines) && slices.Equal(a.SourceRanges, b.SourceRanges)
}

func namesOf(nodes []*v1.Node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	slices.Sort(all)
	return all
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer.
func (p *provider) UpdateLoadBalancer(ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node) error {
	if p.bug == NodesNotUpdated {
		return nil
	}
	_, err := p.EnsureLoadBalancer(ctx, cluster, s, nodes)
	return err
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (p *provider) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, s *v1.Service) error {
	if p.bug == Leak {
		return nil
	}
	return p.cloud.removeLoadBalancer(ctx, p.GetLoadBalancerName(ctx, cluster, s))
}

// routes implements cloudprovider.Routes.
type routes struct{ *provider }

// ListRoutes implements cloudprovider.Routes.
func (p routes) ListRoutes(ctx context.Context, _ string) (all []*cloudprovider.Route, err error) {
	err = p.cloud.call(ctx, "routes.list", false, func() error {
		found, err := p.cloud.ListRoutes(ctx)
		for _, r := range found {
			all = append(all, &cloudprovider.Route{Name: r.ID, TargetNode: types.NodeName(r.Machine), DestinationCIDR: r.CIDR})
		}
		return err
	})
	switch p.bug {
	case EveryRoute:
		for _, r := range all {
			if !strings.HasPrefix(r.DestinationCIDR, "10.244.") {
				_ = p.cloud.DeleteRoute(ctx, r.Name)
			}
		}
	case RoutesNotRepaired:
		all = nil
		for _, r := range p.routes.Range {
			all = append(all, r.(*cloudprovider.Route))
		}
	}
	return all, err
}

// CreateRoute implements cloudprovider.Routes.
func (p routes) CreateRoute(ctx context.Context, _, _ string, r *cloudprovider.Route) error {
	if p.bug == NoRoutes {
		return nil
	}
	p.routes.Store(r.DestinationCIDR, r)
	return p.cloud.call(ctx, "routes.create", true, func() error {
		_, err := p.cloud.CreateRoute(ctx, conform.Route{CIDR: r.DestinationCIDR, Machine: string(r.TargetNode)})
		return err
	})
}

// DeleteRoute implements cloudprovider.Routes.
func (p routes) DeleteRoute(ctx context.Context, _ string, r *cloudprovider.Route) error {
	if p.bug == RoutesNotDeleted {
		return nil
	}
	p.routes.Delete(r.DestinationCIDR)
	return p.cloud.call(ctx, "routes.delete", true, func() error { return p.cloud.DeleteRoute(ctx, r.Name) })
}
