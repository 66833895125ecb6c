package hollow

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
)

// endpoint is an address to which a port of a Service sends connections.
type endpoint struct {
	addr  netip.AddrPort
	pod   string // "" if the endpoint is not a pod
	node  string
	ready bool
	// terminating is true for an endpoint that terminates and still serves. The responder uses this
	// endpoint only if no endpoint is ready.
	terminating bool
	// terminate is true for every endpoint that terminates, even if it no longer serves. If two
	// endpoints have the same address, the method fill prefers an endpoint that does not terminate.
	terminate bool
	zoneHints []string
	nodeHints []string
}

// service describes one port of a Service. The type table holds only services that have a node port
// and the protocol TCP or UDP.
type service struct {
	types.NamespacedName
	portName  string
	protocol  corev1.Protocol
	port      int32
	nodePort  int32
	local     bool // externalTrafficPolicy: Local
	affinity  bool // sessionAffinity: ClientIP
	endpoints []endpoint

	cluster []endpoint            // endpoints for all nodes, used if local is false; hints may select some of them
	byNode  map[string][]endpoint // endpoints by their node, used if local is true
}

// healthCheck is the node port for the health checks of a Service.
type healthCheck struct {
	types.NamespacedName
	port  int32
	local map[string]int // number of ready endpoints by node
}

// table holds the node ports and health checks that the responders of all nodes serve.
type table struct {
	services []*service
	checks   []healthCheck
}

// newTable reads the Services with node ports and their endpoints. It reads each
// EndpointSlice once, and all nodes share the result.
func newTable(services corelisters.ServiceLister, slicesOf discoverylisters.EndpointSliceLister) (*table, error) {
	all, err := services.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	found, err := slicesOf.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	behind := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for _, s := range found {
		if owner := s.Labels[discoveryv1.LabelServiceName]; owner != "" {
			key := types.NamespacedName{Namespace: s.Namespace, Name: owner}
			behind[key] = append(behind[key], s)
		}
	}
	t := &table{}
	for _, svc := range all {
		t.add(svc, behind[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}])
	}
	return t, nil
}

func (t *table) add(svc *corev1.Service, behind []*discoveryv1.EndpointSlice) {
	if svc.Spec.Type != corev1.ServiceTypeNodePort && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	name := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
	local := svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	ready := map[string]map[netip.Addr]bool{} // by node; a pod with several ports counts once
	for _, p := range svc.Spec.Ports {
		s := &service{
			NamespacedName: name, portName: p.Name, protocol: p.Protocol, port: p.Port, nodePort: p.NodePort,
			local: local, affinity: svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
		}
		s.fill(behind)
		for _, e := range s.endpoints {
			if e.ready && e.node != "" {
				if ready[e.node] == nil {
					ready[e.node] = map[netip.Addr]bool{}
				}
				ready[e.node][e.addr.Addr()] = true
			}
		}
		if p.NodePort != 0 && (p.Protocol == corev1.ProtocolTCP || p.Protocol == corev1.ProtocolUDP) {
			t.services = append(t.services, s)
		}
	}
	if local && svc.Spec.HealthCheckNodePort != 0 {
		c := healthCheck{NamespacedName: name, port: svc.Spec.HealthCheckNodePort, local: map[string]int{}}
		for node, pods := range ready {
			c.local[node] = len(pods)
		}
		t.checks = append(t.checks, c)
	}
}

// fill reads the endpoints of s from the EndpointSlices of the Service. It
// takes each address only once. If a running pod and a terminating pod share an
// address, the method stores only the running pod.
func (s *service) fill(behind []*discoveryv1.EndpointSlice) {
	byAddr := map[netip.AddrPort]endpoint{}
	for _, slice := range behind {
		if slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue // the machines have IPv4 addresses only
		}
		for _, p := range slice.Ports {
			if p.Name == nil || *p.Name != s.portName || p.Port == nil || *p.Port <= 0 || p.Protocol == nil || *p.Protocol != s.protocol {
				continue
			}
			for _, e := range slice.Endpoints {
				if got, ok := readEndpoint(e, uint16(*p.Port)); ok {
					if _, have := byAddr[got.addr]; !have || !got.terminate {
						byAddr[got.addr] = got
					}
				}
			}
		}
	}
	s.endpoints = slices.SortedFunc(maps.Values(byAddr), func(a, b endpoint) int { return a.addr.Compare(b.addr) })
	s.cluster = usableEndpoints(s.endpoints)
	s.byNode = map[string][]endpoint{}
	for _, e := range s.endpoints {
		s.byNode[e.node] = append(s.byNode[e.node], e)
	}
	for node, here := range s.byNode {
		s.byNode[node] = usableEndpoints(here)
	}
}

// readEndpoint reads an entry of an EndpointSlice. If a condition is missing, readEndpoint uses the
// default of this condition: ready, serving, not terminating.
func readEndpoint(e discoveryv1.Endpoint, port uint16) (endpoint, bool) {
	if len(e.Addresses) == 0 {
		return endpoint{}, false
	}
	ip, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return endpoint{}, false
	}
	yes := func(b *bool, absent bool) bool {
		if b == nil {
			return absent
		}
		return *b
	}
	out := endpoint{
		addr:      netip.AddrPortFrom(ip, port),
		ready:     yes(e.Conditions.Ready, true),
		terminate: yes(e.Conditions.Terminating, false),
	}
	out.terminating = out.terminate && yes(e.Conditions.Serving, true)
	if e.NodeName != nil {
		out.node = *e.NodeName
	}
	if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
		out.pod = e.TargetRef.Name
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.zoneHints = append(out.zoneHints, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			out.nodeHints = append(out.nodeHints, n.Name)
		}
	}
	return out, true
}

// usableEndpoints returns the ready endpoints. If no endpoint is ready, it returns the endpoints
// that still serve while they terminate (KEP-1669).
func usableEndpoints(all []endpoint) []endpoint {
	only := func(keep func(endpoint) bool) []endpoint {
		var out []endpoint
		for _, e := range all {
			if keep(e) {
				out = append(out, e)
			}
		}
		return out
	}
	if up := only(func(e endpoint) bool { return e.ready }); len(up) > 0 {
		return up
	}
	return only(func(e endpoint) bool { return e.terminating })
}

// endpointsFrom returns the endpoints for connections to the node port on the given node. If no
// endpoint is usable, the result is empty. With externalTrafficPolicy Local, the result contains
// only endpoints on this node. With the policy Cluster, the result is the first of these lists that
// applies:
//
//   - the ready endpoints with a hint for this node (KEP-3015),
//   - the ready endpoints with a hint for this zone (KEP-2433),
//   - all usable endpoints.
//
// Hints of one kind apply only if all ready endpoints have hints of this kind, and at least one of
// these hints names this node or zone.
func (s *service) endpointsFrom(node, zone string) []endpoint {
	if s.local {
		return s.byNode[node]
	}
	if len(s.cluster) == 0 || !s.cluster[0].ready {
		return s.cluster
	}
	near := hintedEndpoints(s.cluster, func(e endpoint) []string { return e.nodeHints }, node)
	if near == nil {
		near = hintedEndpoints(s.cluster, func(e endpoint) []string { return e.zoneHints }, zone)
	}
	if near == nil {
		return s.cluster
	}
	return near
}

// hintedEndpoints returns the endpoints that have a hint for nodeOrZone. If one or more endpoints
// have no hints, hintedEndpoints returns nil.
func hintedEndpoints(all []endpoint, hints func(endpoint) []string, nodeOrZone string) []endpoint {
	var near []endpoint
	for _, e := range all {
		h := hints(e)
		if len(h) == 0 {
			return nil
		}
		if slices.Contains(h, nodeOrZone) {
			near = append(near, e)
		}
	}
	return near
}
