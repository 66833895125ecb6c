package ccm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// UpdateLoadBalancer replaces the targets of the Service's load balancer. It replaces all targets
// in one call, so that the load balancer is never without targets. If the cloud is deleting the
// load balancer, UpdateLoadBalancer changes nothing. These cases are errors:
//   - The load balancer does not exist. The framework may call UpdateLoadBalancer before
//     EnsureLoadBalancer or after EnsureLoadBalancerDeleted, or with an outdated Service. The
//     framework ignores the error if GetLoadBalancer does not find the load balancer either.
//   - The Service uses a shared load balancer, but its annotation no longer names this load
//     balancer.
//   - The Service uses a shared load balancer and has a node selector.
//
// When a node joins, the framework calls UpdateLoadBalancer for every Service. To save a call,
// UpdateLoadBalancer reads the load balancer from the mirror if possible.
func (b *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	if byPods(svc) {
		return b.followPods(ctx, cluster, svc, nodes)
	}
	if _, err := nodeSelector(svc); err != nil {
		return err
	}
	backends, err := b.backendsOf(ctx, svc, nodes)
	if err != nil {
		return err
	}
	b.reportSkipped(svc, backends.skipped)
	if lb, known := b.fromMirror(cluster, svc); known && !sameTargets(lb.Targets, backends.targets) {
		if _, err := b.api.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{Targets: backends.targets}); err == nil {
			return nil
		} // after an error, the code below reads the load balancer from the cloud and tries again
	}
	lb, found, err := b.find(ctx, cluster, svc)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("load balancer %s %w", loadBalancerName(svc), errMissing)
	case leavesShared(lb, svc):
		return errShares(lb, svc)
	case isShared(lb) && svc.Annotations[AnnotationLoadBalancerNodeSelector] != "":
		return errSelectsNodes
	case lb.State == cloudsim.LoadBalancerDeleting:
		return nil
	}
	return b.setTargets(ctx, svc, lb, backends.targets)
}

// fromMirror returns the load balancer of the Service from the mirror. It never returns a shared
// load balancer. The mirror may be outdated, so the caller must follow two rules. If the targets in
// the mirror differ from the desired targets, the caller may write the targets. The cloud refuses
// the write if the load balancer no longer exists. If the targets in the mirror equal the desired
// targets, the caller must read the load balancer from the cloud.
func (b *loadBalancers) fromMirror(cluster string, svc *v1.Service) (cloudsim.LoadBalancer, bool) {
	lb, known := b.mirror.balancerNamed(loadBalancerName(svc))
	return lb, known && lb.State != cloudsim.LoadBalancerDeleting && checkOwner(lb, cluster, svc) == nil
}

// setTargets replaces the targets of lb. It leaves out the targets that the
// cloud refuses.
func (b *loadBalancers) setTargets(ctx context.Context, svc *v1.Service, lb cloudsim.LoadBalancer, targets []cloudsim.Target) (err error) {
	for range maxAttempts {
		if sameTargets(lb.Targets, targets) {
			return nil
		}
		_, err = b.api.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{Targets: targets})
		if err == nil {
			return nil
		}
		known, isTargets := knownTargets(targets, err)
		if !isTargets {
			break
		}
		b.log.Warn("targets are left out, because the cloud refused them", "service", name(svc), "reason", err)
		targets = known
	}
	return fmt.Errorf("load balancer %s: setting targets: %w", lb.ID, err)
}

var errMissing = errors.New("does not exist (yet)")

// leavesShared reports whether svc uses the shared load balancer lb although the
// annotation of svc no longer names lb.
func leavesShared(lb cloudsim.LoadBalancer, svc *v1.Service) bool {
	return isShared(lb) && lb.Labels[LabelShared] != svc.Namespace+"/"+svc.Annotations[AnnotationLoadBalancerShared]
}

// errShares returns the error for a Service that uses a shared load balancer
// although its annotation no longer names this load balancer. The CCM does not
// change the load balancer, because other Services use it.
func errShares(lb cloudsim.LoadBalancer, svc *v1.Service) error {
	return fmt.Errorf("load balancer %s not changed: Service %s uses this shared load balancer, but annotation %s of the Service was changed or removed: restore the annotation, or delete the Service and create it again", lb.ID, name(svc), AnnotationLoadBalancerShared)
}

// followPods does the work of UpdateLoadBalancer for Services with pods as
// targets. The ports of the pods may have changed, so followPods replaces the
// whole specification of the load balancer in one call.
func (b *loadBalancers) followPods(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) error {
	desired, err := b.wantedBalancer(ctx, cluster, svc, nodes)
	if err != nil {
		return err
	}
	for range maxAttempts {
		lb, found, err := b.find(ctx, cluster, svc)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("load balancer %s %w", desired.Name, errMissing)
		case leavesShared(lb, svc):
			return errShares(lb, svc)
		case lb.State == cloudsim.LoadBalancerDeleting, isEqual(lb, desired):
			return nil
		}
		_, err = b.updateBalancer(ctx, lb, desired)
		if known, ok := knownTargets(desired.Targets, err); ok {
			b.log.Warn("targets are left out, because the cloud refused them", "service", name(svc), "reason", err)
			desired.Targets = known
		} else if cloudsim.KindOf(err) != cloudsim.Stale {
			return err
		}
	}
	return fmt.Errorf("updating the load balancer of %s: the load balancer changed during every attempt", name(svc))
}

// backendsOf returns the backends of the Service's load balancer on the nodes that match the
// Service's node selector. The backends are either the instances of these nodes, or the Service's
// pods on these nodes. backendsOf leaves out nodes without a valid provider id, and their pods. If
// the selector is invalid, it returns no backends and no error, because the function
// requestedBalancer later returns the error of the selector.
func (b *loadBalancers) backendsOf(ctx context.Context, svc *v1.Service, nodes []*v1.Node) (backends backendSet, err error) {
	selector, err := nodeSelector(svc)
	if err != nil {
		return backends, nil //nolint:nilerr // requestedBalancer reports this error together with all other errors
	}
	if nodes = matchingNodes(nodes, selector); byPods(svc) {
		return b.podBackends(ctx, svc, nodes)
	}
	return targetsOf(nodes), nil
}

var targetField = regexp.MustCompile(`^targets\[(\d+)\]\.(?:instance|ip)$`)

// knownTargets returns the given targets except the targets that the cloud refused. The fields
// of the error targetErr name the refused targets. If targetErr does not name refused targets, or
// also names other fields, knownTargets returns false.
//
// After an instance is deleted, its Node may still exist. The CCM then requests a target on this
// instance. The cloud refuses this target, and therefore the whole request. The caller must repeat
// the request with the returned targets, because otherwise the load balancer would get no new
// targets.
func knownTargets(targets []cloudsim.Target, targetErr error) ([]cloudsim.Target, bool) {
	e, ok := errors.AsType[*cloudsim.Error](targetErr)
	if !ok || e.Kind != cloudsim.Invalid || len(e.Fields) == 0 {
		return nil, false
	}
	refused := map[int]bool{}
	for _, f := range e.Fields {
		m := targetField.FindStringSubmatch(strings.TrimSpace(f.Field))
		if m == nil {
			return nil, false
		}
		n, targetErr := strconv.Atoi(m[1])
		if targetErr != nil || n >= len(targets) {
			return nil, false
		}
		refused[n] = true
	}
	known := make([]cloudsim.Target, 0, len(targets))
	for n, t := range targets {
		if !refused[n] {
			known = append(known, t)
		}
	}
	return slices.Clip(known), true
}
