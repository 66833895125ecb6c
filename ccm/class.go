package ccm

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
)

// DefaultLoadBalancerClass is the spec.loadBalancerClass (KEP-1959) that this
// provider serves if its configuration does not name another.
const DefaultLoadBalancerClass = "cloudsim.dev/load-balancer"

// notServed is the class of a Service that names none, where those are left to
// somebody else.
const notServed = "cloudsim.dev/not-served"

// classView shows Services to upstream's service controller so that it serves
// a class: it wants exactly the Services without one, and no flag changes that.
// A Service of our class is shown without it, one that is not ours with another
// one, and without the finalizer that would have upstream clean up after its
// real owner; that stays so when it becomes of another type, which has no class.
// Only the cache differs: what upstream writes is the difference of two such
// views, which never names the class.
func classView(class string, serveUnclassed bool, whose *claims) cache.TransformFunc {
	return func(obj any) (any, error) {
		whole, ok := obj.(*v1.Service)
		if !ok {
			return obj, nil
		}
		svc := new(v1.Service)
		*svc = *whole // as with strippedNode
		svc.ManagedFields = nil
		if svc.Spec.Type != v1.ServiceTypeLoadBalancer {
			ours, known := whose.of(whole)
			if known {
				whose.set(svc, ours)
			}
			if known && !ours {
				hideFinalizer(svc)
			}
			return svc, nil
		}
		ours := wantsOurs(svc, class, serveUnclassed)
		whose.set(svc, ours)
		switch {
		case ours:
			svc.Spec.LoadBalancerClass = nil
			return svc, nil
		case svc.Spec.LoadBalancerClass == nil:
			other := notServed
			svc.Spec.LoadBalancerClass = &other
		}
		hideFinalizer(svc)
		return svc, nil
	}
}

// wantsOurs reports whether a Service that wants a load balancer wants it of us.
func wantsOurs(svc *v1.Service, class string, serveUnclassed bool) bool {
	c := svc.Spec.LoadBalancerClass
	return c == nil && serveUnclassed || c != nil && *c == cmp.Or(class, DefaultLoadBalancerClass)
}

func hideFinalizer(svc *v1.Service) {
	svc.Finalizers = slices.DeleteFunc(slices.Clone(svc.Finalizers), func(f string) bool { return f == servicehelpers.LoadBalancerCleanupFinalizer })
}
