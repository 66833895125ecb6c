package ccm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cloud-provider/api"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// byPods reports whether the Service's load balancer sends traffic directly to
// pods. It returns true if the Service disables node ports and at least one of
// its ports has no node port.
func byPods(svc *v1.Service) bool {
	allocate := svc.Spec.AllocateLoadBalancerNodePorts
	return allocate != nil && !*allocate && slices.ContainsFunc(svc.Spec.Ports, func(p v1.ServicePort) bool { return p.NodePort == 0 })
}

type backendSet struct {
	targets []cloudsim.Target
	ports   []int            // if the targets are pods: the target port for each port of the Service. If ports is nil, the load balancer uses node ports
	skipped []skippedBackend // backends that get no traffic
}

type skippedBackend struct {
	reason string // short reason of the event on the Service
	why    error
}

// endpointReader reads the EndpointSlices of the cluster from the informer
// cache.
type endpointReader struct {
	lister discoverylisters.EndpointSliceLister
	synced cache.InformerSynced
}

// awaitList waits for a short time until the informer has listed all
// EndpointSlices. It returns a RetryError if the list is not complete in time.
// With an incomplete list a Service would seem to have no pods, and the CCM
// would remove all targets of its load balancer.
func (e endpointReader) awaitList(ctx context.Context, backoff wait.Backoff) error {
	if e.synced == nil {
		return errors.New("EndpointSlices are not watched")
	}
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(context.Context) (bool, error) { return e.synced(), nil })
	if err != nil {
		return api.NewRetryError("the pods of Services are not known yet: check that the cloud controller manager has the permission to list and watch endpointslices", retryAfter)
	}
	return nil
}

// strippedSlice returns a copy of an EndpointSlice without managedFields. It copies only the outer
// struct.
func strippedSlice(obj any) (any, error) {
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	view := *s
	view.ManagedFields = nil
	return &view, nil
}

// pod is an endpoint of a Service.
type pod struct {
	name    string // for messages
	node    string
	ip      string
	numbers []int // the pod's ports, in the order of the Service's ports; 0 means that the pod lacks the port
}

// podsOf returns the ready pods of the Service. If no pod is ready, it returns the terminating pods
// that still serve (KEP-1669). If a pod has addresses of two families, podsOf returns the pod once,
// with the address of the Service's first family.
func (e endpointReader) podsOf(svc *v1.Service) ([]pod, error) {
	all, err := e.lister.EndpointSlices(svc.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: svc.Name}))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	var ready, ending []pod
	seen := map[string]bool{}
	for _, family := range svc.Spec.IPFamilies {
		for _, s := range all {
			if string(s.AddressType) != string(family) {
				continue
			}
			numbers := numbersOf(svc, s)
			for _, e := range s.Endpoints {
				if len(e.Addresses) == 0 {
					continue
				}
				p := pod{name: e.Addresses[0], ip: e.Addresses[0], numbers: numbers}
				key := p.ip
				if e.TargetRef != nil {
					p.name, key = e.TargetRef.Name, string(e.TargetRef.UID)+"/"+e.TargetRef.Name
				}
				if e.NodeName != nil {
					p.node = *e.NodeName
				}
				is := func(c *bool, unsaid bool) bool { return c == nil && unsaid || c != nil && *c }
				switch {
				case seen[key]:
					continue
				case is(e.Conditions.Ready, true):
					ready = append(ready, p)
				case is(e.Conditions.Serving, false) && is(e.Conditions.Terminating, false):
					ending = append(ending, p)
				default:
					continue
				}
				seen[key] = true
			}
		}
	}
	if len(ready) > 0 {
		return ready, nil
	}
	return ending, nil
}

// numbersOf returns the port numbers of the pods in the EndpointSlice s, in the
// order of the Service's ports. If s lacks a port, its number is 0.
func numbersOf(svc *v1.Service, s *discoveryv1.EndpointSlice) []int {
	numbers := make([]int, len(svc.Spec.Ports))
	for i, p := range svc.Spec.Ports {
		for _, have := range s.Ports {
			if have.Port != nil && (have.Name == nil && p.Name == "" || have.Name != nil && *have.Name == p.Name) {
				numbers[i] = int(*have.Port)
			}
		}
	}
	return numbers
}

// targetPorts returns one target port for each port of the Service, because a listener has only one
// target port. The target port is the first existing number of this list:
//   - the most frequent number in the pods
//   - the number in the field targetPort of the Service's port
//   - the port number of the Service
func targetPorts(svc *v1.Service, pods []pod) []int {
	most := make([]int, len(svc.Spec.Ports))
	for i, port := range svc.Spec.Ports {
		votes := map[int]int{}
		for _, p := range pods {
			if n := p.numbers[i]; n != 0 {
				votes[n]++
			}
		}
		for _, n := range slices.Sorted(maps.Keys(votes)) {
			if votes[n] > votes[most[i]] {
				most[i] = n
			}
		}
		most[i] = cmp.Or(most[i], int(cmp.Or(port.TargetPort.IntVal, port.Port)))
	}
	return most
}

// hasPorts reports whether the pod's ports equal the given ports. It ignores
// ports that the pod lacks. For example, during a rollout the older pods may
// lack the newest port of the Service, but these pods still serve the other
// ports.
func (p pod) hasPorts(ports []int) bool {
	for i, n := range p.numbers {
		if n != 0 && n != ports[i] {
			return false
		}
	}
	return true
}

// podBackends returns the pods of a Service that run on the given nodes. backends.skipped contains
// pods that get no traffic, with the reason: unsuitable ports, an unsuitable address, or more pods
// than MaxTargets. If the cloud's network delivers no packets to pods on these nodes, podBackends
// returns no backends.
func (b *loadBalancers) podBackends(ctx context.Context, svc *v1.Service, nodes []*v1.Node) (backends backendSet, err error) {
	if err := b.endpoints.awaitList(ctx, b.backoff); err != nil {
		return backends, err
	}
	pods, err := b.endpoints.podsOf(svc)
	if err != nil {
		return backends, err
	}
	of := make(map[string]cloudsim.InstanceID, len(nodes))
	for _, n := range nodes {
		if id, err := providerid.Parse(n.Spec.ProviderID); err == nil {
			of[n.Name] = cloudsim.InstanceID(id.Instance)
		}
	}
	if !b.carriesPods(of) {
		return backends, nil // backends.ports is nil, so requestedBalancer refuses the Service
	}
	backends.ports = targetPorts(svc, pods)
	leave := func(p pod, format string, a ...any) {
		backends.skipped = append(backends.skipped, skippedBackend{"PodLeftOut", fmt.Errorf("pod %s: "+format, append([]any{p.name}, a...)...)})
	}
	for _, p := range pods {
		id, here := of[p.node]
		switch {
		case !here: // the pod's node is excluded, not selected, or not initialized yet
		case !p.hasPorts(backends.ports):
			leave(p, "its ports are %v, but most pods have the ports %v, and a load balancer has only one target port for each port of the Service", p.numbers, backends.ports)
		case !b.acceptsTarget(id, p.ip):
			leave(p, "the cloud does not route %s to %s, because the address is not in the instance's pod ranges", p.ip, id)
		default:
			backends.targets = append(backends.targets, cloudsim.Target{Instance: id, IP: p.ip})
		}
	}
	backends.targets = slices.Compact(sortedTargets(backends.targets))
	if n := len(backends.targets); n > cloudsim.MaxTargets {
		backends.targets = backends.targets[:cloudsim.MaxTargets]
		backends.skipped = append(backends.skipped, skippedBackend{"PodLeftOut", fmt.Errorf("%d pods: a load balancer has at most %d targets", n-cloudsim.MaxTargets, cloudsim.MaxTargets)})
	}
	return backends, nil
}

// carriesPods reports whether the cloud's network delivers packets to pods on these nodes. It
// returns true if the instance of at least one node has a pod range. It also returns true if the
// parameter nodes is empty, or if the mirror (the CCM's copy of the cloud) does not contain the
// instance of a node.
func (b *loadBalancers) carriesPods(nodes map[string]cloudsim.InstanceID) bool {
	for _, id := range nodes {
		if i, known := b.mirror.instance(id); !known || len(i.PodRanges) > 0 {
			return true
		}
	}
	return len(nodes) == 0
}

// acceptsTarget reports whether the cloud accepts the address ip as a target on
// the instance. If the mirror does not have the instance, the method returns
// true, and the cloud checks the address when the CCM sets the targets.
func (b *loadBalancers) acceptsTarget(id cloudsim.InstanceID, ip string) bool {
	i, known := b.mirror.instance(id)
	a, err := netip.ParseAddr(ip)
	return !known || err == nil && i.Has(a)
}

// podCheck returns the health check for pods. By default, the load balancer only checks that a pod
// accepts TCP connections, because Kubernetes already checks the readiness of pods. If the Service
// has only UDP ports, there is no health check, because UDP servers do not always answer a probe.
func podCheck(svc *v1.Service) cloudsim.HealthCheck {
	check := cloudsim.HealthCheck{
		Protocol: cloudsim.HealthNone, IntervalMillis: probeInterval, TimeoutMillis: probeTimeout,
		HealthyThreshold: 1, UnhealthyThreshold: 2,
	}
	if slices.ContainsFunc(svc.Spec.Ports, func(p v1.ServicePort) bool { return protocols[p.Protocol] == cloudsim.TCP }) {
		check.Protocol = cloudsim.HealthTCP
	}
	return check
}

// reportSkipped emits events on the Service about the backends that get no traffic.
// It emits one event for each reason.
func (b *loadBalancers) reportSkipped(svc *v1.Service, all []skippedBackend) {
	const most = 3
	words := map[string][]string{}
	for _, l := range all {
		words[l.reason] = append(words[l.reason], l.why.Error())
	}
	for reason, why := range words {
		more := ""
		if n := len(why) - most; n > 0 {
			why, more = why[:most], fmt.Sprintf("; and %d more", n)
		}
		b.events.Eventf(svc, v1.EventTypeWarning, reason, "Left out of the load balancer: %s%s", strings.Join(why, "; "), more)
	}
}
