package fake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/cloudsim-dev/allinone/conform"
)

// Bug is a defect of the CCM. Most of the bugs exist or existed in real CCMs.
type Bug string

// These are the bugs. Each comment describes the wrong behavior.
const (
	NoZone              Bug = "NoZone"              // Nodes get no zone and no region
	OtherProviderID     Bug = "OtherProviderID"     // Nodes get a provider ID that no machine has
	NoExternalIP        Bug = "NoExternalIP"        // Nodes get only internal addresses
	EveryAddress        Bug = "EveryAddress"        // the CCM reports any --node-ip as an address of the machine
	UnknownInitialized  Bug = "UnknownInitialized"  // the CCM initializes a Node without a machine
	ForeignDeleted      Bug = "ForeignDeleted"      // a machine of another provider counts as deleted
	NeverShutdown       Bug = "NeverShutdown"       // a stopped machine counts as running
	StoppedIsDeleted    Bug = "StoppedIsDeleted"    // a stopped machine counts as deleted
	NotFoundError       Bug = "NotFoundError"       // the provider returns an error for a deleted machine, so the Node stays
	ErrorIsDeleted      Bug = "ErrorIsDeleted"      // after an error of the cloud, the machine counts as deleted
	EmptyListIsDeleted  Bug = "EmptyListIsDeleted"  // a machine counts as deleted if a list of machines is empty
	LookupByName        Bug = "LookupByName"        // a new machine with the same name counts as the old machine
	WrongNodePort       Bug = "WrongNodePort"       // load balancers use the port of the Service as NodePort
	PortsNotUpdated     Bug = "PortsNotUpdated"     // a load balancer keeps its first ports
	Recreate            Bug = "Recreate"            // after a change of the ports, the CCM replaces the load balancer instead of changing it
	NodesNotUpdated     Bug = "NodesNotUpdated"     // a load balancer keeps its first Nodes
	Leak                Bug = "Leak"                // the CCM deletes no load balancers
	EveryClass          Bug = "EveryClass"          // the CCM claims Services of every class
	NameOnly            Bug = "NameOnly"            // the load balancer's name omits the namespace
	NoSourceRanges      Bug = "NoSourceRanges"      // the CCM ignores source ranges
	UDPAsTCP            Bug = "UDPAsTCP"            // UDP ports become TCP ports
	CachedLoadBalancers Bug = "CachedLoadBalancers" // a load balancer that was deleted in the cloud counts as existing
	Duplicate           Bug = "Duplicate"           // a repeated creation creates a second load balancer
	RoutesNotRepaired   Bug = "RoutesNotRepaired"   // a deleted route counts as existing
	RoutesNotDeleted    Bug = "RoutesNotDeleted"    // the CCM deletes no routes
	NoRoutes            Bug = "NoRoutes"            // the CCM creates no routes
	EveryRoute          Bug = "EveryRoute"          // the CCM deletes routes that do not belong to the cluster
	WriteAtStart        Bug = "WriteAtStart"        // the CCM writes all load balancers after its start
	NewIsDeleted        Bug = "NewIsDeleted"        // a machine that the cloud does not show yet counts as deleted
	NoBetaLabels        Bug = "NoBetaLabels"        // Nodes lose the beta labels, from which upstream's controller restores the stable labels
	SlowCreation        Bug = "SlowCreation"        // the cloud finds a new load balancer only some time after the call that creates it
	OtherFinalizers     Bug = "OtherFinalizers"     // the CCM removes the finalizers of other controllers
	DrainedNodes        Bug = "DrainedNodes"        // a load balancer keeps Nodes that the cluster autoscaler deletes
	SilentSCTP          Bug = "SilentSCTP"          // the CCM ignores a protocol that the cloud does not support
	OneProtocol         Bug = "OneProtocol"         // a load balancer has only one protocol for each port number
	NoAffinity          Bug = "NoAffinity"          // the CCM ignores the session affinity
	SingleStack         Bug = "SingleStack"         // load balancers have only an IPv4 address
	NoInternal          Bug = "NoInternal"          // the CCM ignores the annotation for an internal load balancer
	NoStaticIP          Bug = "NoStaticIP"          // the CCM ignores spec.loadBalancerIP
	NoLocalCheck        Bug = "NoLocalCheck"        // the CCM ignores spec.healthCheckNodePort
	NoIPMode            Bug = "NoIPMode"            // the status has no IP mode
	SharedDeleted       Bug = "SharedDeleted"       // the deletion of one Service deletes the shared load balancer
	NoElection          Bug = "NoElection"          // the CCM works without a Lease
	NoMigration         Bug = "NoMigration"         // the CCM ignores the Lease of the leader migration
	NoNodeDeletion      Bug = "NoNodeDeletion"      // the CCM's role does not permit the deletion of Nodes
	Storm               Bug = "Storm"               // the CCM repeats a refused call at once
	IdleWrites          Bug = "IdleWrites"          // the CCM writes unchanged objects regularly
	MemoryOnly          Bug = "MemoryOnly"          // after a restart the CCM does not find its load balancers
	SlowMetadata        Bug = "SlowMetadata"        // InstanceMetadata takes some seconds
)

// Bugs returns all bugs.
func Bugs() []Bug {
	return []Bug{
		NoZone, OtherProviderID, NoExternalIP, EveryAddress, UnknownInitialized, ForeignDeleted, NeverShutdown, StoppedIsDeleted, NotFoundError,
		ErrorIsDeleted, EmptyListIsDeleted, LookupByName, WrongNodePort, PortsNotUpdated, Recreate, NodesNotUpdated, Leak, EveryClass,
		NameOnly, NoSourceRanges, UDPAsTCP, CachedLoadBalancers, Duplicate, RoutesNotRepaired, RoutesNotDeleted, NoRoutes, EveryRoute, WriteAtStart,
		NewIsDeleted, NoBetaLabels, SlowCreation, OtherFinalizers, DrainedNodes, SilentSCTP, OneProtocol, NoAffinity, SingleStack, NoInternal, NoStaticIP,
		NoLocalCheck, NoIPMode, SharedDeleted, NoElection, NoMigration, NoNodeDeletion, Storm, IdleWrites, MemoryOnly, SlowMetadata,
	}
}

// provider implements cloudprovider.Interface for Cloud.
type provider struct {
	cloud *Cloud
	bug   Bug

	// The next two maps are safe for concurrent use, because upstream's
	// controllers call the provider from several goroutines.
	known  sync.Map // load balancers that this process created, by name, as conform.LoadBalancer; for the bug CachedLoadBalancers
	routes sync.Map // routes that this process created, by destination, as *cloudprovider.Route; for the bug RoutesNotRepaired
	nodes  corelisters.NodeLister

	sharing sync.Mutex // held while a goroutine changes a shared load balancer

	mu     sync.Mutex                   // protects shared
	shared map[types.UID][]conform.Port // ports that each Service has or may have on a shared load balancer
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
func (p *provider) Routes() (cloudprovider.Routes, bool)                              { return routesProvider{p}, true }
func (p *provider) ProviderName() string                                              { return Name }
func (p *provider) HasClusterID() bool                                                { return true }

func (p *provider) find(ctx context.Context, n *v1.Node) (conform.Machine, bool, error) {
	return p.cloud.findMachine(ctx, func(m conform.Machine) bool {
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
	case err == nil && !found && n.Spec.ProviderID == "" && p.bug != NewIsDeleted:
		return false, fmt.Errorf("the Node %s has no machine yet", n.Name)
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
	if p.bug == SlowMetadata {
		select {
		case <-time.After(slowCall):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if !found {
		if p.bug != UnknownInitialized {
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
	switch {
	case s.Annotations[annotationShared] != "":
		return s.Namespace + "/" + s.Annotations[annotationShared]
	case p.bug == NameOnly:
		return s.Name
	case p.bug == MemoryOnly:
		return fmt.Sprintf("%s-%p", s.UID, p)
	}
	return string(s.UID)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer.
func (p *provider) GetLoadBalancer(ctx context.Context, cluster string, s *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	lb, found, err := p.cloud.loadBalancer(ctx, p.GetLoadBalancerName(ctx, cluster, s))
	if s.Annotations[annotationShared] != "" {
		found = found && p.sharer(s)
	}
	return p.statusOf(s, lb), found, err
}

// sharer reports whether the Service has or may have ports on a shared load balancer.
func (p *provider) sharer(s *v1.Service) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.shared[s.UID]) > 0
}

func (p *provider) statusOf(s *v1.Service, lb conform.LoadBalancer) *v1.LoadBalancerStatus {
	status := &v1.LoadBalancerStatus{}
	mode := v1.LoadBalancerIPModeVIP
	if s.Annotations[annotationProxy] != "" && p.bug != NoIPMode {
		mode = v1.LoadBalancerIPModeProxy
	}
	for _, a := range lb.Addresses {
		status.Ingress = append(status.Ingress, v1.LoadBalancerIngress{IP: a, IPMode: &mode})
	}
	return status
}

// wantedBalancer returns the load balancer that a Service needs. The addresses can contain the
// placeholder *, which putLoadBalancer replaces by a number.
func (p *provider) wantedBalancer(s *v1.Service, nodes []*v1.Node) (conform.LoadBalancer, error) {
	want := conform.LoadBalancer{
		Machines:         namesOf(nodes),
		ClientIPAffinity: s.Spec.SessionAffinity == v1.ServiceAffinityClientIP && p.bug != NoAffinity,
		Internal:         s.Annotations[annotationInternal] != "" && p.bug != NoInternal,
	}
	if p.bug != NoSourceRanges {
		want.SourceRanges = s.Spec.LoadBalancerSourceRanges
	}
	if p.bug != NoLocalCheck {
		want.HealthCheckPort = s.Spec.HealthCheckNodePort
	}
	switch {
	case s.Spec.LoadBalancerIP != "" && p.bug != NoStaticIP:
		want.Addresses = []string{s.Spec.LoadBalancerIP}
	case len(s.Spec.IPFamilies) > 1 && p.bug != SingleStack:
		want.Addresses = []string{"203.1.0.*", "2001:db8::*"}
	default:
		want.Addresses = []string{"203.1.0.*"}
	}
	for _, port := range s.Spec.Ports {
		w := conform.Port{Protocol: string(port.Protocol), Port: port.Port, NodePort: port.NodePort}
		switch {
		case port.Protocol == v1.ProtocolSCTP && p.bug != SilentSCTP:
			return want, errors.New("the cloud does not support SCTP")
		case p.bug == WrongNodePort:
			w.NodePort = port.Port
		case p.bug == UDPAsTCP:
			w.Protocol = string(v1.ProtocolTCP)
		case p.bug == OneProtocol && slices.ContainsFunc(want.Ports, func(o conform.Port) bool { return o.Port == w.Port }):
			continue
		}
		want.Ports = append(want.Ports, w)
	}
	return want, nil
}

// mergePorts returns the new ports of a load balancer. Its current ports are oldPorts, and the
// Service s needs the ports ownPorts. If several Services share the load balancer, mergePorts keeps
// the ports of the other Services. After the load balancer has the new ports, the caller calls
// recordPorts. Until then the load balancer can have the old or the new ports of s, for example
// because the cloud's reply was lost. So p.shared then contains both.
func (p *provider) mergePorts(s *v1.Service, oldPorts, ownPorts []conform.Port) []conform.Port {
	if s.Annotations[annotationShared] == "" {
		return ownPorts
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	possible := p.shared[s.UID]
	for _, port := range ownPorts {
		if !slices.Contains(possible, port) {
			possible = append(slices.Clip(possible), port)
		}
	}
	p.shared[s.UID] = possible
	return append(slices.DeleteFunc(slices.Clone(oldPorts), func(x conform.Port) bool { return slices.Contains(possible, x) }), ownPorts...)
}

// recordPorts records the ports of a Service on a shared load balancer.
func (p *provider) recordPorts(s *v1.Service, ports []conform.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Annotations[annotationShared] != "" {
		p.shared[s.UID] = ports
	}
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (p *provider) EnsureLoadBalancer(ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	name := p.GetLoadBalancerName(ctx, cluster, s)
	if s.Annotations[annotationShared] != "" {
		p.sharing.Lock()
		defer p.sharing.Unlock()
	}
	lb, found, err := p.cloud.loadBalancer(ctx, name)
	if p.bug == Storm {
		for range 1000 {
			if err != nil {
				lb, found, err = p.cloud.loadBalancer(ctx, name)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if known, ok := p.known.Load(name); ok && !found && p.bug == CachedLoadBalancers {
		return p.statusOf(s, known.(conform.LoadBalancer)), nil
	}
	if p.bug == DrainedNodes {
		if nodes, err = p.nodes.List(labels.Everything()); err != nil {
			return nil, err
		}
		nodes = slices.DeleteFunc(nodes, func(n *v1.Node) bool { return n.Labels[v1.LabelNodeExcludeBalancers] != "" })
	}
	want, err := p.wantedBalancer(s, nodes)
	if err != nil {
		return nil, err
	}
	ownPorts := want.Ports
	want.Ports = p.mergePorts(s, lb.Ports, ownPorts)
	if found {
		want.ID, want.Addresses = lb.ID, lb.Addresses
	}
	switch {
	case found && p.bug == PortsNotUpdated:
		want.Ports = lb.Ports
	case found && p.bug == Recreate && !slices.Equal(lb.Ports, want.Ports):
		want.ID = ""
	case p.bug == Duplicate && !found:
		name += rand.Text()
	case p.bug == SlowCreation && !found:
		time.AfterFunc(slowCall/2, func() { _, _ = p.cloud.putLoadBalancer(context.WithoutCancel(ctx), name, want) })
		return nil, errors.New("the load balancer is not ready yet")
	}
	if found && reflect.DeepEqual(lb, want) && p.bug != WriteAtStart {
		p.recordPorts(s, ownPorts)
		return p.statusOf(s, lb), nil
	}
	if want, err = p.cloud.putLoadBalancer(ctx, name, want); err != nil {
		return nil, err
	}
	p.recordPorts(s, ownPorts)
	p.known.Store(name, want)
	return p.statusOf(s, want), nil
}

// slowCall is the duration of a call with the bug SlowMetadata. With the bug SlowCreation, the
// cloud creates a load balancer after half of this time.
const slowCall = 2 * time.Second

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
	// A node event can arrive after the deletion of the load balancer. Without this check,
	// EnsureLoadBalancer would then create a new load balancer.
	if _, found, err := p.GetLoadBalancer(ctx, cluster, s); err != nil || !found {
		return err
	}
	_, err := p.EnsureLoadBalancer(ctx, cluster, s, nodes)
	return err
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (p *provider) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, s *v1.Service) error {
	if p.bug == Leak {
		return nil
	}
	if s.Annotations[annotationShared] != "" {
		p.sharing.Lock()
		defer p.sharing.Unlock()
	}
	if err := p.removePorts(ctx, p.GetLoadBalancerName(ctx, cluster, s), s); err != nil {
		return err
	}
	p.recordPorts(s, nil)
	return nil
}

// removePorts removes the ports of a Service from its load balancer. If no other Service has ports
// on this load balancer, removePorts deletes the load balancer.
func (p *provider) removePorts(ctx context.Context, name string, s *v1.Service) error {
	if s.Annotations[annotationShared] != "" && p.bug != SharedDeleted {
		lb, found, err := p.cloud.loadBalancer(ctx, name)
		if err != nil || !found {
			return err
		}
		if lb.Ports = p.mergePorts(s, lb.Ports, nil); len(lb.Ports) > 0 {
			_, err := p.cloud.putLoadBalancer(ctx, name, lb)
			return err
		}
	}
	return p.cloud.removeLoadBalancer(ctx, name)
}

// routesProvider implements cloudprovider.Routes.
type routesProvider struct{ *provider }

// ListRoutes implements cloudprovider.Routes.
func (p routesProvider) ListRoutes(ctx context.Context, _ string) (all []*cloudprovider.Route, err error) {
	err = p.cloud.countCall(ctx, "routes.list", false, func() error {
		found, err := p.cloud.ListRoutes(ctx)
		for _, r := range found {
			all = append(all, &cloudprovider.Route{Name: r.ID, TargetNode: types.NodeName(r.Machine), DestinationCIDR: r.CIDR})
		}
		return err
	})
	switch p.bug {
	case IdleWrites:
		err = errors.Join(err, p.cloud.countCall(ctx, "loadBalancers.put", true, func() error { return nil }))
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
func (p routesProvider) CreateRoute(ctx context.Context, _, _ string, r *cloudprovider.Route) error {
	if p.bug == NoRoutes {
		return nil
	}
	p.routes.Store(r.DestinationCIDR, r)
	return p.cloud.countCall(ctx, "routes.create", true, func() error {
		_, err := p.cloud.CreateRoute(ctx, conform.Route{CIDR: r.DestinationCIDR, Machine: string(r.TargetNode)})
		return err
	})
}

// DeleteRoute implements cloudprovider.Routes.
func (p routesProvider) DeleteRoute(ctx context.Context, _ string, r *cloudprovider.Route) error {
	if p.bug == RoutesNotDeleted {
		return nil
	}
	p.routes.Delete(r.DestinationCIDR)
	return p.cloud.countCall(ctx, "routes.delete", true, func() error { return p.cloud.DeleteRoute(ctx, r.Name) })
}
