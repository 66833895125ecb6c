package ccm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// These labels record the owner of a load balancer. The CCM checks the owner with LabelCluster and
// LabelServiceUID. It uses LabelServiceNamespace and LabelServiceName to find the Service of a load
// balancer. Users can read all four labels in lists of load balancers.
const (
	LabelCluster          = "kubernetes.io/cluster-name"
	LabelServiceUID       = "kubernetes.io/service-uid"
	LabelServiceNamespace = "kubernetes.io/service-namespace"
	LabelServiceName      = "kubernetes.io/service-name"
)

// These are the defaults of health checks. The times are short, because users of a simulated cloud
// wait for the results.
const (
	probeInterval = 2000 // ms
	probeTimeout  = 1000 // ms
	// kubeProxyPort is the port on which kube-proxy reports whether its node can
	// accept new connections (KEP-3836).
	kubeProxyPort = 10256
	probePath     = "/healthz"
)

var nameRE = regexp.MustCompile(cloudsim.NamePattern)

// loadBalancerName returns the name of a Service's own load balancer. The name
// depends only on the UID of the Service and never changes. So the CCM finds
// the load balancer after every restart and after every change of the Service.
// If a user deletes a Service and creates it again, the new Service has another
// UID and does not get the old load balancer.
func loadBalancerName(svc *v1.Service) string {
	name := "k8s-" + string(svc.UID)
	if nameRE.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(svc.UID)) // a name that contains this UID is not valid
	return "k8s-" + hex.EncodeToString(sum[:16])
}

func ownershipLabels(cluster string, svc *v1.Service) map[string]string {
	return map[string]string{
		LabelCluster:          cluster,
		LabelServiceUID:       string(svc.UID),
		LabelServiceNamespace: svc.Namespace,
		LabelServiceName:      svc.Name,
	}
}

// checkOwner returns an error if lb belongs to another cluster or to another Service. It accepts a
// shared load balancer of this cluster, and an empty lb. If a person restores a cluster from a
// backup of another cluster, the Services of both clusters have the same UIDs and the same load
// balancer names. LabelCluster then ensures that only one of the clusters changes the load
// balancer.
func checkOwner(lb cloudsim.LoadBalancer, cluster string, svc *v1.Service) error {
	if lb.ID == "" || isShared(lb) && lb.Labels[LabelCluster] == cluster {
		return nil
	}
	for _, l := range []struct{ key, want string }{{LabelCluster, cluster}, {LabelServiceUID, string(svc.UID)}} {
		if have := lb.Labels[l.key]; have != l.want {
			return fmt.Errorf("load balancer %s (%s) belongs to another Service: its label %s is %q, not %q; delete the load balancer in the cloud, or correct the label", lb.ID, lb.Name, l.key, have, l.want)
		}
	}
	return nil
}

var ipFamilies = map[v1.IPFamily]cloudsim.IPFamily{v1.IPv4Protocol: cloudsim.IPv4, v1.IPv6Protocol: cloudsim.IPv6}

var protocols = map[v1.Protocol]cloudsim.Protocol{"": cloudsim.TCP, v1.ProtocolTCP: cloudsim.TCP, v1.ProtocolUDP: cloudsim.UDP}

// requestedBalancer returns the load balancer that a Service requests, without the region. If the
// cloud does not support parts of the request, the function returns an error that contains every
// reason. If the function silently omitted an unsupported part, a Service with restrictions might
// be open to all clients, or a port might never answer.
func requestedBalancer(cluster string, svc *v1.Service, backends backendSet, mode cloudsim.ListenerMode) (cloudsim.CreateLoadBalancer, error) {
	var bad []error
	add := func(err error) { bad = append(bad, err) }
	s := svc.Spec
	desired := cloudsim.CreateLoadBalancer{
		Name:   loadBalancerName(svc),
		Labels: ownershipLabels(cluster, svc),
		Scheme: cloudsim.SchemeExternal,
		LoadBalancerSpec: cloudsim.LoadBalancerSpec{
			Targets:     backends.targets,
			HealthCheck: healthCheck(svc),
		},
	}
	if len(s.Ports) == 0 {
		add(errors.New("spec.ports is empty"))
	}
	if backends.ports != nil {
		desired.HealthCheck = podCheck(svc)
	}
	for i, p := range s.Ports {
		l := cloudsim.Listener{Protocol: protocols[p.Protocol], Port: int(p.Port), TargetPort: int(p.NodePort), Mode: mode}
		if backends.ports != nil {
			l.TargetPort = backends.ports[i]
		}
		switch {
		case l.Protocol == "":
			add(portsError{fmt.Errorf("spec.ports[%d]: port %d has the protocol %s, but this cloud's load balancers forward only TCP and UDP", i, p.Port, p.Protocol)})
		case l.TargetPort == 0:
			add(portsError{fmt.Errorf("spec.ports[%d]: port %d has no nodePort, and this cloud's network does not route to pods: set spec.allocateLoadBalancerNodePorts to true, or set podRanges of the network and create the instances again", i, p.Port)})
		}
		desired.Listeners = append(desired.Listeners, l)
	}
	for _, f := range s.IPFamilies {
		desired.Families = append(desired.Families, ipFamilies[f])
	}
	if s.SessionAffinity == v1.ServiceAffinityClientIP {
		desired.Affinity = cloudsim.AffinityClientIP
		if c := s.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			desired.AffinityTimeoutSeconds = int(*c.ClientIP.TimeoutSeconds)
		}
	}
	var err error
	if desired.SourceRanges, err = sourceRanges(svc); err != nil {
		add(err)
	}
	if desired.Addresses, err = staticAddresses(svc); err != nil {
		add(err)
	}
	if _, err := nodeSelector(svc); err != nil {
		add(err)
	}
	if err := applyAnnotations(&desired, svc); err != nil {
		add(err)
	}
	if err := setShared(&desired, cluster, svc); err != nil {
		add(err)
	}
	return desired, errors.Join(bad...)
}

// sourceRanges returns the Service's source ranges, sorted. It reads the ranges
// from spec.loadBalancerSourceRanges. If this field is empty, it reads the
// ranges from the annotation that Kubernetes defines for source ranges. An
// empty result permits clients with any IPv4 or IPv6 address.
func sourceRanges(svc *v1.Service) ([]string, error) {
	if len(svc.Spec.LoadBalancerSourceRanges) == 0 && strings.TrimSpace(svc.Annotations[v1.AnnotationLoadBalancerSourceRangesKey]) == "" {
		return nil, nil
	}
	set, err := servicehelpers.GetLoadBalancerSourceRanges(svc)
	if err != nil {
		return nil, fmt.Errorf("spec.loadBalancerSourceRanges: %w", shortenError(err))
	}
	all := set.StringSlice()
	slices.Sort(all)
	return all, nil
}

// staticAddresses returns the addresses that the Service requests in the field spec.loadBalancerIP
// or in the annotation AnnotationLoadBalancerIP. It converts each address to the form that the
// cloud uses, because an IPv6 address can be written in several ways. It returns an error if an
// address is invalid. It also returns an error if the Service has both and the annotation does not
// contain the address of the field.
func staticAddresses(svc *v1.Service) (all []string, err error) {
	field, annotation := svc.Spec.LoadBalancerIP, svc.Annotations[AnnotationLoadBalancerIP]
	if field != "" {
		if field, err = convertAddress("spec.loadBalancerIP", field); err != nil {
			return nil, err
		}
	}
	if annotation == "" {
		if field == "" {
			return nil, nil
		}
		return []string{field}, nil
	}
	for text := range strings.SplitSeq(annotation, ",") {
		ip, err := convertAddress("annotation "+AnnotationLoadBalancerIP, strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		all = append(all, ip)
	}
	if field != "" && !slices.Contains(all, field) {
		return nil, fmt.Errorf("spec.loadBalancerIP is %s, but annotation %s is %s: remove one of the two, or use the same address in both", field, AnnotationLoadBalancerIP, truncate(annotation))
	}
	return all, nil
}

// convertAddress converts an IP address to the form that the cloud uses. Its errors
// begin with fieldName.
func convertAddress(fieldName, text string) (string, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return "", fmt.Errorf("%s: %q is not an IP address", fieldName, truncate(text))
	}
	return ip.String(), nil
}

// healthCheck returns the health check for nodes. With externalTrafficPolicy Local, a node is
// healthy if it has an endpoint of this Service. With externalTrafficPolicy Cluster, a node is
// healthy if its kube-proxy works. A node that is not ready stays a target (KEP-3458), so only the
// health check prevents traffic to this node.
func healthCheck(svc *v1.Service) cloudsim.HealthCheck {
	port := kubeProxyPort
	if svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && svc.Spec.HealthCheckNodePort != 0 {
		port = int(svc.Spec.HealthCheckNodePort)
	}
	return cloudsim.HealthCheck{
		Protocol: cloudsim.HealthHTTP, Port: port, Path: probePath,
		IntervalMillis: probeInterval, TimeoutMillis: probeTimeout,
		HealthyThreshold: 1, UnhealthyThreshold: 2,
	}
}

func matchingNodes(nodes []*v1.Node, selector labels.Selector) []*v1.Node {
	if selector.Empty() {
		return nodes
	}
	var kept []*v1.Node
	for _, n := range nodes {
		if selector.Matches(labels.Set(n.Labels)) {
			kept = append(kept, n)
		}
	}
	return kept
}

// targetsOf returns the instances of the nodes as targets. The targets are sorted and have no
// duplicates, so that every replica of the CCM sends the same request for the same nodes.
// backends.skipped contains each node with an invalid provider id, e.g. the id of another cloud
// provider. targetsOf omits nodes without a provider id. When a node gets its provider id, the
// framework updates the load balancer.
func targetsOf(nodes []*v1.Node) (backends backendSet) {
	for _, n := range nodes {
		if n.Spec.ProviderID == "" {
			continue
		}
		id, err := providerid.Parse(n.Spec.ProviderID)
		if err != nil {
			backends.skipped = append(backends.skipped, skippedBackend{"NodeNotInCloud", fmt.Errorf("node %q: %w", n.Name, err)})
			continue
		}
		backends.targets = append(backends.targets, cloudsim.Target{Instance: cloudsim.InstanceID(id.Instance)})
	}
	backends.targets = slices.Compact(sortedTargets(backends.targets))
	return backends
}

// isEqual reports whether lb already equals the desired load balancer. It
// ignores the name, the region, and the order of listeners and targets. It also
// ignores labels of lb that are not in desired.Labels.
func isEqual(lb cloudsim.LoadBalancer, desired cloudsim.CreateLoadBalancer) bool {
	return hasLabels(lb, desired.Labels) && hasAddressesOf(lb, desired) && lb.Scheme == desired.Scheme &&
		normalize(lb.LoadBalancerSpec).Same(normalize(desired.LoadBalancerSpec))
}

func hasLabels(lb cloudsim.LoadBalancer, labels map[string]string) bool {
	for k, v := range labels {
		if lb.Labels[k] != v {
			return false
		}
	}
	return true
}

// hasAddressesOf reports whether lb has the IP families and the static addresses of the desired
// load balancer. If desired.Families is empty, lb may have any families.
func hasAddressesOf(lb cloudsim.LoadBalancer, desired cloudsim.CreateLoadBalancer) bool {
	for _, ip := range desired.Addresses {
		if !slices.ContainsFunc(lb.Addresses, func(a cloudsim.LoadBalancerAddress) bool { return a.IP == ip }) {
			return false
		}
	}
	return len(desired.Families) == 0 || slices.Equal(lb.Families(), desired.Families)
}

// normalize returns the spec with sorted listeners and targets. It sets the
// defaults of the modes, the affinity, the affinity timeout, the drain timeout
// and the health check. It does not sort source ranges.
func normalize(s cloudsim.LoadBalancerSpec) cloudsim.LoadBalancerSpec {
	s.HealthCheck = s.Check()
	s.AffinityTimeoutSeconds = int(s.AffinityTimeout().Seconds())
	s.DrainTimeoutSeconds = int(s.DrainTimeout().Seconds())
	s.Listeners = slices.SortedFunc(slices.Values(s.Listeners), func(a, b cloudsim.Listener) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	for i, l := range s.Listeners {
		s.Listeners[i].Mode = l.EffectiveMode()
	}
	s.Affinity = cmp.Or(s.Affinity, cloudsim.AffinityNone)
	s.Targets = sortedTargets(s.Targets)
	return s
}

func sortedTargets(ts []cloudsim.Target) []cloudsim.Target {
	return slices.SortedFunc(slices.Values(ts), func(a, b cloudsim.Target) int { return a.Key().Compare(b.Key()) })
}

func sameTargets(a, b []cloudsim.Target) bool {
	return slices.Equal(sortedTargets(a), sortedTargets(b))
}
