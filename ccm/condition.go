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

// portsError reports that a load balancer cannot serve a port of a Service, for one of these
// reasons:
//   - The cloud does not forward the protocol of the port.
//   - The port has no node port, and the cloud's network does not route to pods.
//   - Another Service of the shared load balancer already uses the port number.
type portsError struct{ error }

// permanentError is the error for a load balancer that the CCM cannot create or repair until a
// person changes the Service or the cloud. Upstream's controller reports the reason in an event.
type permanentError struct{ error }

// reasonPorts is the reason that this provider writes into the condition
// LoadBalancerPortsError. Kubernetes defines only one reason for this
// condition, LoadBalancerMixedProtocolNotSupported. This provider also refuses
// ports for other reasons.
const reasonPorts = "PortsRefused"

// hasOldPortsCondition reports whether a Service that no longer has the type LoadBalancer
// still has this provider's condition LoadBalancerPortsError.
func hasOldPortsCondition(svc *v1.Service) bool {
	c := meta.FindStatusCondition(svc.Status.Conditions, v1.LoadBalancerPortsError)
	return svc.Spec.Type != v1.ServiceTypeLoadBalancer && c != nil && c.Reason == reasonPorts
}

// tellPorts sets the condition LoadBalancerPortsError of a Service if cause contains a portsError.
// The condition contains only the first portsError. If cause contains no portsError, tellPorts
// removes the condition. Upstream also reports the error in an event. But Kubernetes deletes an
// event after an hour, while the condition stays in the status of the Service.
func (r *repairer) tellPorts(svc *v1.Service, cause error) error {
	after := svc.DeepCopy()
	changed := false
	if ports, about := errors.AsType[portsError](cause); about {
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
