package ccm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// Labels that say whose a load balancer is. The cluster and the UID decide; the
// rest is for people.
const (
	LabelCluster          = "kubernetes.io/cluster-name"
	LabelServiceUID       = "kubernetes.io/service-uid"
	LabelServiceNamespace = "kubernetes.io/service-namespace"
	LabelServiceName      = "kubernetes.io/service-name"
)

// AnnotationLoadBalancerIP asks for a static address of the cloud, as
// spec.loadBalancerIP does, which Kubernetes deprecated. If both are set they
// must agree.
const AnnotationLoadBalancerIP = "cloudsim.dev/load-balancer-ip"

// How targets are probed: short, because a lab is watched by a person.
const (
	probeInterval = 2000 // ms
	probeTimeout  = 1000 // ms
	// kubeProxyPort is where kube-proxy says whether its node can take new
	// connections (KEP-3836).
	kubeProxyPort = 10256
	probePath     = "/healthz"
)

var nameRE = regexp.MustCompile(cloudsim.NamePattern)

// loadBalancerName is the name of a Service's load balancer, for ever: it comes
// from the UID alone, so a Service finds its own after any restart or change,
// and one that was deleted and made again does not find its predecessor's.
func loadBalancerName(svc *v1.Service) string {
	name := "k8s-" + string(svc.UID)
	if nameRE.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(svc.UID)) // a UID that is no UUID
	return "k8s-" + hex.EncodeToString(sum[:16])
}

// ownership is what a cluster writes on a load balancer of a Service.
func ownership(cluster string, svc *v1.Service) map[string]string {
	return map[string]string{
		LabelCluster:          cluster,
		LabelServiceUID:       string(svc.UID),
		LabelServiceNamespace: svc.Namespace,
		LabelServiceName:      svc.Name,
	}
}

// checkOwner refuses a load balancer that has the Service's name but is of
// another cluster or Service, as after a cluster was restored from a backup of
// another: two clusters must not fight over one.
func checkOwner(lb cloudsim.LoadBalancer, cluster string, svc *v1.Service) error {
	for _, l := range []struct{ key, want string }{{LabelCluster, cluster}, {LabelServiceUID, string(svc.UID)}} {
		if have := lb.Labels[l.key]; have != l.want {
			return fmt.Errorf("load balancer %s (%s) is not this Service's: its label %s is %q, not %q; delete it in the cloud, or correct the label if it is", lb.ID, lb.Name, l.key, have, l.want)
		}
	}
	return nil
}

// refusal is why the cloud cannot do what a Service asks for; nil when it can.
// Doing a part in silence would be worse: a Service that looks restricted and
// is open, or one port that never answers.
func refusal(svc *v1.Service) error {
	var bad []error
	add := func(format string, args ...any) { bad = append(bad, fmt.Errorf(format, args...)) }
	s := svc.Spec
	if len(s.Ports) == 0 {
		add("spec.ports is empty")
	}
	for i, p := range s.Ports {
		at := fmt.Sprintf("spec.ports[%d]", i)
		switch {
		case p.Protocol != v1.ProtocolTCP && p.Protocol != "":
			add("%s: port %d is %s, and this cloud's load balancers forward TCP only", at, p.Port, p.Protocol)
		case p.NodePort == 0:
			add("%s: port %d has no nodePort, which this cloud's load balancers forward to: leave spec.allocateLoadBalancerNodePorts true", at, p.Port)
		}
	}
	if ranges, err := servicehelpers.GetLoadBalancerSourceRanges(svc); err != nil {
		add("spec.loadBalancerSourceRanges: %w", err)
	} else if !servicehelpers.IsAllowAll(ranges) {
		add("spec.loadBalancerSourceRanges is not supported: this cloud's load balancers are open to everybody")
	}
	if s.SessionAffinity == v1.ServiceAffinityClientIP {
		add("spec.sessionAffinity ClientIP is not supported: this cloud's load balancers spread connections over all nodes")
	}
	if len(s.IPFamilies) > 0 && !slices.Contains(s.IPFamilies, v1.IPv4Protocol) {
		add("spec.ipFamilies is IPv6 only, and this cloud's load balancers have an IPv4 address")
	}
	if s.LoadBalancerIP != "" && svc.Annotations[AnnotationLoadBalancerIP] != "" && s.LoadBalancerIP != svc.Annotations[AnnotationLoadBalancerIP] {
		add("spec.loadBalancerIP is %s but annotation %s is %s", s.LoadBalancerIP, AnnotationLoadBalancerIP, svc.Annotations[AnnotationLoadBalancerIP])
	}
	return errors.Join(bad...)
}

// wanted is the load balancer that a Service asks for, without its region.
func wanted(cluster string, svc *v1.Service, targets []cloudsim.Target) cloudsim.CreateLoadBalancer {
	want := cloudsim.CreateLoadBalancer{
		Name:   loadBalancerName(svc),
		Labels: ownership(cluster, svc),
		LoadBalancerSpec: cloudsim.LoadBalancerSpec{
			Targets:     targets,
			HealthCheck: healthCheck(svc),
		},
	}
	if ip := cmp.Or(svc.Spec.LoadBalancerIP, svc.Annotations[AnnotationLoadBalancerIP]); ip != "" {
		want.Addresses = []string{ip}
	}
	for _, p := range svc.Spec.Ports {
		want.Listeners = append(want.Listeners, cloudsim.Listener{Protocol: cloudsim.TCP, Port: int(p.Port), TargetPort: int(p.NodePort)})
	}
	return want
}

// healthCheck asks the node whether it would serve: with externalTrafficPolicy
// Local whether it has an endpoint of this Service, else whether its kube-proxy
// works. Nodes that are not ready stay targets (KEP-3458), so this is all that
// keeps traffic from them.
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

// targetsOf are the instances behind nodes, each once, and the nodes that have
// none to offer: those of another cloud, with the reason. They are sorted, so
// that two leaders ask in the same words. A node that has no provider id yet is
// left out in silence: it comes again when it has.
func targetsOf(nodes []*v1.Node) (targets []cloudsim.Target, skipped []error) {
	for _, n := range nodes {
		if n.Spec.ProviderID == "" {
			continue
		}
		id, err := providerid.Parse(n.Spec.ProviderID)
		if err != nil {
			skipped = append(skipped, fmt.Errorf("node %q: %w", n.Name, err))
			continue
		}
		targets = append(targets, cloudsim.Target{Instance: cloudsim.InstanceID(id.Instance)})
	}
	slices.SortFunc(targets, func(a, b cloudsim.Target) int { return cmp.Compare(a.Instance, b.Instance) })
	return slices.Compact(targets), skipped
}

// same reports whether lb already is what is wanted: the same rules in whatever
// order, and our labels among its own.
func same(lb cloudsim.LoadBalancer, want cloudsim.CreateLoadBalancer) bool {
	for k, v := range want.Labels {
		if lb.Labels[k] != v {
			return false
		}
	}
	return plain(lb.LoadBalancerSpec).Same(plain(want.LoadBalancerSpec))
}

// plain is a spec in one of the many ways to say the same.
func plain(s cloudsim.LoadBalancerSpec) cloudsim.LoadBalancerSpec {
	s.HealthCheck = s.Check()
	s.Listeners = slices.SortedFunc(slices.Values(s.Listeners), func(a, b cloudsim.Listener) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	s.Targets = sortedTargets(s.Targets)
	return s
}

func sortedTargets(ts []cloudsim.Target) []cloudsim.Target {
	return slices.SortedFunc(slices.Values(ts), func(a, b cloudsim.Target) int { return cmp.Compare(a.Instance, b.Instance) })
}

func sameTargets(a, b []cloudsim.Target) bool {
	return slices.Equal(sortedTargets(a), sortedTargets(b))
}
