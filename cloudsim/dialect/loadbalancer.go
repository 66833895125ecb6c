package dialect

import (
	"errors"
	"maps"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Attempts is the maximum number of attempts to change a resource that other callers change at the
// same time.
const Attempts = 10

// Retry calls fn until fn returns nil or an error other than Stale. It calls fn at most Attempts
// times. It returns the last result of fn. Each call of fn must read the resource again before it
// changes the resource. Otherwise fn would use the old revision, and return Stale again.
func Retry(fn func() error) (err error) {
	for range Attempts {
		if err = fn(); !errors.Is(err, cloudsim.Stale) {
			return err
		}
	}
	return err
}

// ChangeLoadBalancer changes a load balancer with the function fn. If fn changes no value,
// ChangeLoadBalancer does not call the cloud. If fn returns an error, ChangeLoadBalancer returns
// this error at once. If another caller changes the load balancer at the same time,
// ChangeLoadBalancer reads the load balancer again and calls fn again. If this happens in each of
// its attempts, ChangeLoadBalancer returns Stale. The maximum number of attempts is Attempts.
func ChangeLoadBalancer(r *Request, l cloudsim.LoadBalancer, fn func(*cloudsim.LoadBalancer) error) (out cloudsim.LoadBalancer, err error) {
	for range Attempts {
		changed := l
		changed.Labels = CloneLabels(l.Labels)
		changed.Listeners, changed.Targets = slices.Clone(l.Listeners), slices.Clone(l.Targets)
		if err := fn(&changed); err != nil {
			return l, err
		}
		if changed.Same(l.LoadBalancerSpec) && maps.Equal(changed.Labels, l.Labels) {
			return l, nil // cloud controller managers often send values that the load balancer already has
		}
		out, err = r.Cloud.UpdateLoadBalancer(r.Context(), l.ID, cloudsim.UpdateLoadBalancer{Labels: changed.Labels, LoadBalancerSpec: changed.LoadBalancerSpec}, l.Revision)
		if !errors.Is(err, cloudsim.Stale) {
			return out, err
		}
		latest, getErr := r.Cloud.GetLoadBalancer(r.Context(), l.ID)
		if getErr != nil {
			return l, getErr
		}
		l = latest
	}
	return out, err
}
