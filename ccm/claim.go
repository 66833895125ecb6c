package ccm

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
)

// finalizerOwners records whether this provider owns the load balancer
// finalizer of a Service. The controllers of all clouds use one common
// finalizer. When the type of a Service changes, the Service loses its class.
// After this change, the CCM cannot find the owner of the finalizer by the
// class. Without finalizerOwners, upstream's controller would remove
// finalizers that other controllers still need.
type finalizerOwners struct {
	mu    sync.Mutex
	owned map[types.UID]bool // only Services with the finalizer
}

func (c *finalizerOwners) set(svc *v1.Service, isOurs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !servicehelpers.HasLBFinalizer(svc) {
		delete(c.owned, svc.UID)
		return
	}
	c.owned[svc.UID] = isOurs
}

// ownerOf reports whether this provider owns the load balancer finalizer of a Service that no
// longer has the type LoadBalancer. isKnown is true in two cases:
//   - c.owned contains the owner. The CCM records the owner while the Service has the type
//     LoadBalancer.
//   - An entry in managedFields proves that this program wrote the finalizer.
func (c *finalizerOwners) ownerOf(svc *v1.Service) (isOurs, isKnown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isOurs, isKnown = c.owned[svc.UID]; !isKnown && servicehelpers.HasLBFinalizer(svc) && hasWritten(svc) {
		return true, true
	}
	return isOurs, isKnown
}

// checkRemoval returns nil if upstream may remove the load balancer finalizer of the Service. It
// returns an error if another controller may own the finalizer. Without the finalizer, that
// controller would never delete its load balancer. The caller calls checkRemoval only if the cloud
// has no load balancer of the Service. The result is nil in these cases:
//   - The Service has the type LoadBalancer, or it does not have the finalizer.
//   - The Service has the condition LoadBalancerPortsError with the reason reasonPorts. Only this
//     provider sets this reason.
//   - The method ownerOf reports that this provider owns the finalizer.
func (c *finalizerOwners) checkRemoval(svc *v1.Service) error {
	if svc.Spec.Type == v1.ServiceTypeLoadBalancer || !servicehelpers.HasLBFinalizer(svc) || hasOldPortsCondition(svc) {
		return nil
	}
	if isOurs, _ := c.ownerOf(svc); isOurs {
		return nil
	}
	return fmt.Errorf("the finalizer %s stays, because it may belong to another controller: the cloud has no load balancer of this Service. If no other controller removes the finalizer, remove it yourself", servicehelpers.LoadBalancerCleanupFinalizer)
}

// hasWritten reports whether this program wrote the finalizer, according to the managedFields of
// the Service. The Services in the informer caches have no managedFields, so for these Services the
// result is false.
func hasWritten(svc *v1.Service) bool {
	me, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	for _, entry := range svc.ManagedFields {
		var fields struct {
			Metadata struct {
				Finalizers map[string]any `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if entry.Manager != me || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, ok := fields.Metadata.Finalizers[`v:"`+servicehelpers.LoadBalancerCleanupFinalizer+`"`]; ok {
			return true
		}
	}
	return false
}
