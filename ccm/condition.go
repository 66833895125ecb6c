package ccm

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
)

// portsError is why ports of a Service cannot be had: the cloud does not forward
// their protocol, there is no node port, or another Service has them.
type portsError struct{ error }

// refused is why the load balancer that a Service asks for cannot be made. The
// framework's controller tells it in an event; asking again changes nothing.
type refused struct{ error }

// reasonPorts is the reason of the condition LoadBalancerPortsError. The one that
// Kubernetes defines is for clouds that cannot mix protocols.
const reasonPorts = "PortsRefused"

// leftover reports whether the Service has our condition and wants no load
// balancer any more.
func leftover(svc *v1.Service) bool {
	c := meta.FindStatusCondition(svc.Status.Conditions, v1.LoadBalancerPortsError)
	return svc.Spec.Type != v1.ServiceTypeLoadBalancer && c != nil && c.Reason == reasonPorts
}

// tellPorts keeps the condition LoadBalancerPortsError of a Service: it is there
// while why, which may be nil, is about ports. An event is gone within the hour;
// who waits for the Service reads the condition.
func (r *repairer) tellPorts(svc *v1.Service, why error) error {
	after := svc.DeepCopy()
	changed := false
	if ports, about := errors.AsType[portsError](why); about {
		changed = meta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{
			Type: v1.LoadBalancerPortsError, Status: metav1.ConditionTrue, Reason: reasonPorts, Message: ports.Error(), ObservedGeneration: svc.Generation,
		})
	} else {
		changed = meta.RemoveStatusCondition(&after.Status.Conditions, v1.LoadBalancerPortsError)
	}
	if !changed {
		return nil
	}
	if _, err := servicehelpers.PatchService(r.kube.CoreV1(), svc, after); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the condition %s: %w", v1.LoadBalancerPortsError, err)
	}
	return nil
}
