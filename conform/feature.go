package conform

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// featureChecks are the checks of load balancer features that most Services do not need.
var featureChecks = []Check{
	{ID: "lb.abort", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkAbort),
		Title: "A Service that is deleted during the creation of its load balancer leaves no load balancer"},
	{ID: "lb.conflict", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkConflict),
		Title: "The CCM keeps the finalizers, annotations and conditions that other clients write to a Service"},
	{ID: "lb.drain", Level: Must, skipReason: needsLoadBalancers, run: onNode(checkDrain),
		Title: "At the next change of a load balancer, the CCM removes a Node that the cluster autoscaler is about to delete"},
	{ID: "lb.unsupported", Level: Should, skipReason: needsLoadBalancers, run: onNode(checkUnsupported),
		Title: "A Service with a feature that the cloud does not support gets a Warning event"},
	{ID: "lb.mixed", Level: Must, skipReason: requirements(needsLoadBalancers, needsMixed), run: onNode(checkMixed),
		Title: "A Service with a TCP port and a UDP port of the same number gets both ports"},
	{ID: "lb.affinity", Level: Must, skipReason: requirements(needsLoadBalancers, needsAffinity), run: onNode(checkAffinity),
		Title: "The load balancer follows the session affinity of the Service"},
	{ID: "lb.dualstack", Level: Must, skipReason: requirements(needsLoadBalancers, needsDualStack), run: onNode(checkDualStack),
		Title: "A dual-stack Service gets an IPv4 address and an IPv6 address"},
	{ID: "lb.internal", Level: Must, skipReason: requirements(needsLoadBalancers, needsInternal), run: onNode(checkInternal),
		Title: "A Service with the provider's annotation gets an internal load balancer"},
	{ID: "lb.ip", Level: Must, skipReason: requirements(needsLoadBalancers, needsStaticIP), run: onNode(checkStaticIP),
		Title: "A Service gets the address of spec.loadBalancerIP"},
	{ID: "lb.etp-local", Level: Must, skipReason: requirements(needsLoadBalancers, needsLocalTraffic), run: onNode(checkLocalTraffic),
		Title: "With externalTrafficPolicy Local, the health check uses the healthCheckNodePort"},
	{ID: "lb.ipmode", Level: Should, skipReason: requirements(needsLoadBalancers, needsProxy), run: onNode(checkIPMode),
		Title: "A Service whose load balancer sends PROXY headers has the IP mode Proxy"},
	{ID: "lb.sharing", Level: Must, skipReason: requirements(needsLoadBalancers, needsSharing), run: onNode(checkSharing),
		Title: "Two Services can share a load balancer, and the deletion of one Service does not affect the other Service"},
}

// checkAbort creates three Services, and deletes them at different moments. It deletes the first
// Service at once. For the other Services, it waits until the CCM has added the finalizer. It then
// deletes the second Service at once, and the third Service after 100 ms. See
// kubernetes/kubernetes#53451.
func checkAbort(ctx context.Context, e *env, _ Machine) error {
	for i, delay := range []time.Duration{0, 0, 100 * time.Millisecond} {
		s, err := e.service(ctx, fmt.Sprintf("abort-%d", i), func(s *v1.Service) { s.Spec.Ports[0].Port = int32(9000 + i) }) //nolint:gosec // a small number
		if err != nil {
			return err
		}
		if i > 0 {
			if err := e.serviceBecomes(ctx, s, "protected", func(s *v1.Service) error {
				if !slices.Contains(s.Finalizers, finalizer) {
					return errors.New("the Service has no finalizer")
				}
				return nil
			}); err != nil {
				return err
			}
		}
		if err := sleepFor(ctx, delay); err != nil {
			return err
		}
		if err := e.removeService(ctx, s); err != nil {
			return err
		}
	}
	// No other check uses the ports 9000 to 9002, so a load balancer with one of these ports
	// belongs to a deleted Service.
	return e.checkAlways(ctx, "the deleted Services have no load balancer", func(ctx context.Context) error {
		found, err := e.loadBalancers(ctx, func(lb LoadBalancer) bool {
			return slices.ContainsFunc(lb.Ports, func(p Port) bool { return p.Port >= 9000 && p.Port < 9003 })
		})
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("the cloud still has the load balancers %v", found)
		}
		return err
	})
}

// checkConflict writes to a Service at the same time as the CCM, so that writes of the CCM fail
// with conflicts.
func checkConflict(ctx context.Context, e *env, _ Machine) error {
	const name = "conform.cloudsim.dev/other"
	s, err := e.service(ctx, "web", func(s *v1.Service) { s.Finalizers = []string{name} })
	if err != nil {
		return err
	}
	services := e.kube.CoreV1().Services(s.Namespace)
	e.addCleanup(func(ctx context.Context) error { // the cleanup of the check calls this function before it removes the Service
		err := e.changeService(ctx, s, func(s *v1.Service) {
			s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == name })
		})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	condition := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":"Test","message":"","lastTransitionTime":%q}]}}`, name, time.Now().UTC().Format(time.RFC3339))
	if _, err := services.Patch(ctx, s.Name, types.StrategicMergePatchType, []byte(condition), metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	last := ""
	for i := range 20 {
		last = fmt.Sprint(i)
		if _, err := services.Patch(ctx, s.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, last), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	kept := func(s *v1.Service) error {
		switch {
		case !slices.Contains(s.Finalizers, name):
			return fmt.Errorf("the finalizer %s of another controller is missing", name)
		case s.Annotations[name] != last:
			return fmt.Errorf("the annotation %s is %q; another client wrote %q", name, s.Annotations[name], last)
		case !slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool { return c.Type == name }):
			return fmt.Errorf("the condition %s of another controller is missing", name)
		}
		return nil
	}
	if err := e.serviceBecomes(ctx, s, "ready, with the last annotation", func(s *v1.Service) error { return errors.Join(hasAddress(s), kept(s)) }); err != nil {
		return err
	}
	return e.serviceStays(ctx, s, "complete", kept)
}

// taintToBeDeleted is the taint of the cluster autoscaler. The package k8s.io/cloud-provider
// defines this taint in controllers/service/controller.go.
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

func checkDrain(ctx context.Context, e *env, a Machine) error {
	b, err := e.joinNode(ctx, "b")
	if err != nil {
		return err
	}
	s, lb, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	if err := e.awaitBalancer(ctx, s, lb.ID, "has both Nodes", func(_ *v1.Service, lb LoadBalancer) error {
		return forwardsTo(lb, []string{a.Name, b.Name}, nil)
	}); err != nil {
		return err
	}
	if err := e.patchNode(ctx, b.Name, `{"spec":{"taints":[{"key":"`+taintToBeDeleted+`","effect":"NoSchedule"}]}}`); err != nil {
		return err
	}
	// The taint alone does not make upstream's controller update the load balancer. Therefore the
	// check also changes the Service.
	if err := e.changeService(ctx, s, func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 }); err != nil {
		return err
	}
	return e.awaitBalancer(ctx, s, lb.ID, "omits the tainted Node", func(s *v1.Service, lb LoadBalancer) error {
		return errors.Join(samePorts(s, lb), forwardsTo(lb, []string{a.Name}, []string{b.Name}))
	})
}

// checkUnsupported creates a Service for each feature that the driver does not claim. Each
// Service must get a Warning event.
func checkUnsupported(ctx context.Context, e *env, _ Machine) error {
	created := 0
	for _, f := range []struct {
		name    string
		claimed bool
		change  func(*v1.Service)
	}{
		{"sctp", e.caps.SCTP, func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }},
		{"udp", e.caps.UDP, func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP }},
		{"sourceRanges", e.caps.SourceRanges, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} }},
		{"sessionAffinity", e.caps.SessionAffinity, func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }},
	} {
		if f.claimed {
			continue
		}
		created++
		s, err := e.service(ctx, strings.ToLower(f.name), f.change)
		if err != nil {
			return err
		}
		if err := e.retryUntilOK(ctx, "the Service "+s.Name+" gets a Warning event", func(ctx context.Context) error {
			all, err := e.kube.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=" + v1.EventTypeWarning + ",involvedObject.uid=" + string(s.UID)})
			if err == nil && len(all.Items) == 0 {
				err = fmt.Errorf("the Service has no Warning event, although the driver does not claim the capability %q", f.name)
			}
			return err
		}); err != nil {
			return err
		}
	}
	if created == 0 {
		return missingError("the driver claims all capabilities that this check tests")
	}
	return nil
}

func checkMixed(ctx context.Context, e *env, _ Machine) error {
	s, lb, err := e.createBalanced(ctx, "dns", func(s *v1.Service) {
		s.Spec.Ports = []v1.ServicePort{{Name: "tcp", Port: 53, Protocol: v1.ProtocolTCP}, {Name: "udp", Port: 53, Protocol: v1.ProtocolUDP}}
	})
	if err != nil {
		return err
	}
	return e.awaitBalancer(ctx, s, lb.ID, "has both protocols", samePorts)
}

func checkAffinity(ctx context.Context, e *env, _ Machine) error {
	affinity := func(want bool) func(*v1.Service, LoadBalancer) error {
		return func(_ *v1.Service, lb LoadBalancer) error {
			if lb.ClientIPAffinity != want {
				return fmt.Errorf("the load balancer has affinity to the client's address: %t; want %t", lb.ClientIPAffinity, want)
			}
			return nil
		}
	}
	s, lb, err := e.createBalanced(ctx, "web", func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP })
	if err != nil {
		return err
	}
	if err := e.awaitBalancer(ctx, s, lb.ID, "has affinity", affinity(true)); err != nil {
		return err
	}
	if err := e.changeService(ctx, s, func(s *v1.Service) {
		s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = v1.ServiceAffinityNone, nil
	}); err != nil {
		return err
	}
	return e.awaitBalancer(ctx, s, lb.ID, "has no affinity", affinity(false))
}

func checkDualStack(ctx context.Context, e *env, _ Machine) error {
	both := v1.IPFamilyPolicyRequireDualStack
	s, err := e.service(ctx, "web", func(s *v1.Service) { s.Spec.IPFamilyPolicy = &both })
	if apierrors.IsInvalid(err) {
		return missingError(fmt.Sprintf("the cluster does not support dual-stack Services: %v", err))
	}
	if err != nil {
		return err
	}
	return e.serviceBecomes(ctx, s, "ready in both families", func(s *v1.Service) error {
		var v4, v6 bool
		for _, i := range s.Status.LoadBalancer.Ingress {
			a, err := netip.ParseAddr(i.IP)
			if i.Hostname != "" { // the name can have IPv4 and IPv6 addresses in the provider's DNS
				v4, v6 = true, true
			} else if err == nil {
				v4, v6 = v4 || a.Is4(), v6 || a.Is6()
			}
		}
		if !v4 || !v6 {
			return fmt.Errorf("status.loadBalancer has the addresses %v", addressesOf(s))
		}
		return nil
	})
}

func annotate(annotations map[string]string) func(*v1.Service) {
	return func(s *v1.Service) { s.Annotations = annotations }
}

func checkInternal(ctx context.Context, e *env, _ Machine) error {
	_, lb, err := e.createBalanced(ctx, "web", annotate(e.caps.InternalAnnotations))
	if err == nil && !lb.Internal {
		err = fmt.Errorf("the load balancer %s is not internal", lb.ID)
	}
	return err
}

func checkStaticIP(ctx context.Context, e *env, _ Machine) error {
	s, err := e.service(ctx, "web", func(s *v1.Service) { s.Spec.LoadBalancerIP = e.caps.StaticIP })
	if err != nil {
		return err
	}
	return e.serviceBecomes(ctx, s, "ready at "+e.caps.StaticIP, func(s *v1.Service) error {
		if got := addressesOf(s); !slices.Equal(got, []string{e.caps.StaticIP}) {
			return fmt.Errorf("status.loadBalancer has the addresses %v", got)
		}
		return nil
	})
}

// checkLocalTraffic covers KEP-27 (source IP preservation). The load balancer must check the
// healthCheckNodePort, so that a Node without pods of the Service fails the health check.
func checkLocalTraffic(ctx context.Context, e *env, _ Machine) error {
	s, lb, err := e.createBalanced(ctx, "web", func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal })
	if err != nil {
		return err
	}
	local := s.Spec.HealthCheckNodePort
	if local == 0 {
		return errors.New("the API server has set no spec.healthCheckNodePort")
	}
	if err := e.awaitBalancer(ctx, s, lb.ID, "checks the healthCheckNodePort", func(_ *v1.Service, lb LoadBalancer) error {
		if lb.HealthCheckPort != local {
			return fmt.Errorf("the health check of the load balancer uses port %d; spec.healthCheckNodePort is %d", lb.HealthCheckPort, local)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := e.changeService(ctx, s, func(s *v1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyCluster, 0
	}); err != nil {
		return err
	}
	return e.awaitBalancer(ctx, s, lb.ID, "does not check the old healthCheckNodePort", func(_ *v1.Service, lb LoadBalancer) error {
		if lb.HealthCheckPort == local {
			return fmt.Errorf("the health check of the load balancer still uses port %d", local)
		}
		return nil
	})
}

// checkIPMode covers KEP-1860. With the IP mode VIP, kube-proxy sends connections of pods directly
// to the pods of the Service, so these connections have no PROXY header. If the pods of the Service
// expect PROXY headers, the Service therefore needs the IP mode Proxy.
func checkIPMode(ctx context.Context, e *env, _ Machine) error {
	s, err := e.service(ctx, "web", annotate(e.caps.ProxyAnnotations))
	if err != nil {
		return err
	}
	return e.serviceBecomes(ctx, s, "ready with the IP mode Proxy", func(s *v1.Service) error {
		for _, i := range s.Status.LoadBalancer.Ingress {
			if i.IP != "" && (i.IPMode == nil || *i.IPMode != v1.LoadBalancerIPModeProxy) {
				return fmt.Errorf("the IP mode of %s is not Proxy", i.IP)
			}
		}
		return hasAddress(s)
	})
}

func checkSharing(ctx context.Context, e *env, _ Machine) error {
	first, lb, err := e.createBalanced(ctx, "a", annotate(e.caps.SharedAnnotations))
	if err != nil {
		return err
	}
	second, other, err := e.createBalanced(ctx, "b", annotate(e.caps.SharedAnnotations), func(s *v1.Service) { s.Spec.Ports[0].Port = 81 })
	if err != nil {
		return err
	}
	if lb.ID != other.ID {
		return fmt.Errorf("the Services have the load balancers %s and %s; want one", lb.ID, other.ID)
	}
	has := func(ports ...int32) func(*v1.Service, LoadBalancer) error {
		return func(_ *v1.Service, lb LoadBalancer) error {
			var got []int32
			for _, p := range lb.Ports {
				got = append(got, p.Port)
			}
			slices.Sort(got)
			if !slices.Equal(got, ports) {
				return fmt.Errorf("the ports of the load balancer are %v; want %v", got, ports)
			}
			return nil
		}
	}
	if err := e.awaitBalancer(ctx, second, lb.ID, "has the ports of both Services", has(80, 81)); err != nil {
		return err
	}
	if err := e.removeService(ctx, first); err != nil {
		return err
	}
	if err := e.awaitBalancer(ctx, second, lb.ID, "has the ports of the remaining Service", has(81)); err != nil {
		return err
	}
	if err := e.removeService(ctx, second); err != nil {
		return err
	}
	return e.awaitDeletion(ctx, lb.ID)
}
