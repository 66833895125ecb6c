package ccm

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
)

// DefaultLoadBalancerClass is the value of spec.loadBalancerClass (KEP-1959)
// that this provider serves. The configuration can replace this value.
const DefaultLoadBalancerClass = "cloudsim.dev/load-balancer"

// notServed is a class that exists only in the informer cache. If the
// configuration excludes Services without a class, classView gives them this
// class.
const notServed = "cloudsim.dev/not-served"

// classView returns an informer transform. With this transform, upstream's service controller
// serves the Services of the given class. If class is empty, the class is DefaultLoadBalancerClass.
// If serveUnclassed is true, upstream's controller also serves Services without a class. Without
// the transform, upstream serves only Services without a class, and no flag changes this rule. So
// the transform removes the class from the Services that this provider serves. A Service that this
// provider does not serve keeps its class, or gets the class notServed if it has no class. The
// transform also removes the load balancer finalizer from the Services that this provider does not
// serve. Upstream therefore does not act on the finalizers of other controllers. Kubernetes removes
// the class when a user changes the type of a Service. So if a Service does not have the type
// LoadBalancer, its class does not show the owner of the finalizer. In this case the transform
// removes the finalizer only if owners.ownerOf reports that another controller owns it. The
// transform removes managedFields from all Services.
//
// The transform changes Services only in the informer cache, not in the API server. When upstream
// changes a Service, it sends the difference between two transformed Services. This difference
// never contains the class, so the class in the API server does not change.
func classView(class string, serveUnclassed bool, owners *finalizerOwners) cache.TransformFunc {
	return func(obj any) (any, error) {
		whole, ok := obj.(*v1.Service)
		if !ok {
			return obj, nil
		}
		svc := new(v1.Service)
		*svc = *whole // copies the outer struct only, like strippedNode
		svc.ManagedFields = nil
		if svc.Spec.Type != v1.ServiceTypeLoadBalancer {
			isOurs, known := owners.ownerOf(whole)
			if known {
				owners.set(svc, isOurs)
			}
			if known && !isOurs {
				hideFinalizer(svc)
			}
			return svc, nil
		}
		served := isServed(svc, class, serveUnclassed)
		owners.set(svc, served)
		switch {
		case served:
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

// isServed reports whether this provider serves the Service svc, which must
// have the type LoadBalancer.
func isServed(svc *v1.Service, class string, serveUnclassed bool) bool {
	c := svc.Spec.LoadBalancerClass
	return c == nil && serveUnclassed || c != nil && *c == cmp.Or(class, DefaultLoadBalancerClass)
}

func hideFinalizer(svc *v1.Service) {
	svc.Finalizers = slices.DeleteFunc(slices.Clone(svc.Finalizers), func(f string) bool { return f == servicehelpers.LoadBalancerCleanupFinalizer })
}
