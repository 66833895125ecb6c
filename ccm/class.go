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

// classView returns an informer transform. With the transform, upstream's service controller serves
// the Services of the given class. If class is empty, the class is DefaultLoadBalancerClass. If
// serveUnclassed is true, upstream's controller also serves Services without a class.
//
// Without the transform, upstream serves only Services without a class, and no flag changes this
// rule. Upstream also acts on the load balancer finalizers of other controllers. The transform
// therefore changes a Service of the type LoadBalancer as follows:
//   - If this provider serves the Service, the transform removes the class.
//   - If this provider does not serve the Service, the transform removes the finalizer. If the
//     Service has no class, the transform sets the class notServed.
//
// Kubernetes removes the class of a Service when its type changes. If a Service does not have the
// type LoadBalancer, the transform removes the finalizer only if owners.ownerOf reports that
// another controller owns the finalizer.
//
// The transform also removes managedFields. It changes Services only in the informer cache, not in
// the API server. When upstream changes a Service, it sends the difference between two transformed
// Services. This difference never contains the class, so the class in the API server does not
// change.
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
