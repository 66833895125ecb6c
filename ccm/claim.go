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

// claims says whose the finalizer of a Service is. All clouds' controllers have
// the same one, and a Service that becomes of another type loses its class: by the
// look of it anybody's, and upstream's controller would take it from its owner.
type claims struct {
	mu   sync.Mutex
	ours map[types.UID]bool // of Services that have the finalizer
}

func (c *claims) set(svc *v1.Service, ours bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !servicehelpers.HasLBFinalizer(svc) {
		delete(c.ours, svc.UID)
		return
	}
	c.ours[svc.UID] = ours
}

// of is what is known of a Service that wants no load balancer any more: what it
// was when it wanted one, or else who wrote its finalizer.
func (c *claims) of(svc *v1.Service) (ours, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ours, known = c.ours[svc.UID]; !known && servicehelpers.HasLBFinalizer(svc) && wrote(svc) {
		return true, true
	}
	return ours, known
}

// doubt is an error if the Service has a finalizer and the cloud nothing of it,
// and nobody knows whose it is: to take it would leak what its owner has not
// deleted yet. Ours that is gone is known by the condition, too.
func (c *claims) doubt(svc *v1.Service) error {
	if svc.Spec.Type == v1.ServiceTypeLoadBalancer || !servicehelpers.HasLBFinalizer(svc) || leftover(svc) {
		return nil
	}
	if ours, _ := c.of(svc); ours {
		return nil
	}
	return fmt.Errorf("its finalizer %s may be another controller's: the cloud has no load balancer of this Service; remove the finalizer if nobody else does", servicehelpers.LoadBalancerCleanupFinalizer)
}

// wrote reports whether this program put the finalizer there, as the API server
// keeps it. The views of Services do not have it.
func wrote(svc *v1.Service) bool {
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
