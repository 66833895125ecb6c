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

// UpdateLoadBalancer replaces all targets in one call, so that the load balancer
// is never without targets in between. The framework may call it before Ensure,
// after Delete and with an outdated Service. A load balancer that is being
// deleted is not changed. A missing load balancer is an error, which the
// framework ignores if GetLoadBalancer also reports false.
//
// When a node joins, the framework calls UpdateLoadBalancer for every Service. If
// the mirror has the load balancer, UpdateLoadBalancer does not read it from the
// cloud, to save a call.
func (b *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	if byPods(svc) {
		return b.followPods(ctx, cluster, svc, nodes)
	}
	if _, err := nodeSelector(svc); err != nil {
		return err
	}
	to, err := b.backends(ctx, svc, nodes)
	if err != nil {
		return err
	}
	b.tellLeft(svc, to.left)
	if lb, known := b.remembered(cluster, svc); known && !sameTargets(lb.Targets, to.targets) {
		if _, err := b.api.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{Targets: to.targets}); err == nil {
			return nil
		} // after an error, the code below reads the load balancer and tries again
	}
	lb, found, err := b.find(ctx, cluster, svc)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("load balancer %s %w", loadBalancerName(svc), errMissing)
	case strays(lb, svc):
		return errShares(lb, svc)
	case lb.State == cloudsim.LoadBalancerDeleting:
		return nil
	}
	return b.setTargets(ctx, svc, lb, to.targets)
}

// remembered returns the Service's own load balancer from the mirror, which may
// be outdated. This is safe for a write, because the cloud refuses to change a
// missing load balancer. But if the targets in the mirror are already correct,
// the caller must read the load balancer from the cloud.
func (b *loadBalancers) remembered(cluster string, svc *v1.Service) (cloudsim.LoadBalancer, bool) {
	lb, known := b.mirror.balancerNamed(loadBalancerName(svc))
	return lb, known && lb.State != cloudsim.LoadBalancerDeleting && checkOwner(lb, cluster, svc) == nil
}

// setTargets replaces the targets of lb. It leaves out targets that the cloud
// does not know.
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
		b.log.Warn("targets are left out", "service", name(svc), "reason", err)
		targets = known
	}
	return fmt.Errorf("load balancer %s: setting targets: %w", lb.ID, err)
}

// errMissing is the error for the update of a load balancer that does not exist.
var errMissing = errors.New("does not exist (yet)")

// strays reports whether svc is on the shared lb, but its annotation no longer
// names lb.
func strays(lb cloudsim.LoadBalancer, svc *v1.Service) bool {
	return shared(lb) && lb.Labels[LabelShared] != svc.Namespace+"/"+svc.Annotations[AnnotationLoadBalancerShared]
}

// errShares returns the error for a Service that is on a shared load balancer but
// no longer asks for it. The CCM then changes nothing, because other Services use
// the load balancer.
func errShares(lb cloudsim.LoadBalancer, svc *v1.Service) error {
	return fmt.Errorf("load balancer %s is shared, and %s asks for its own load balancer: a shared Service cannot change this, so nothing is changed", lb.ID, name(svc))
}

// followPods is UpdateLoadBalancer for targets that are pods. The ports of the
// pods may have changed, so followPods replaces the whole specification, also in
// one call.
func (b *loadBalancers) followPods(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) error {
	want, err := b.want(ctx, cluster, svc, nodes)
	if err != nil {
		return err
	}
	for range maxAttempts {
		lb, found, err := b.find(ctx, cluster, svc)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("load balancer %s %w", want.Name, errMissing)
		case strays(lb, svc):
			return errShares(lb, svc)
		case lb.State == cloudsim.LoadBalancerDeleting, same(lb, want):
			return nil
		}
		_, err = b.update(ctx, lb, want)
		if known, ok := knownTargets(want.Targets, err); ok {
			b.log.Warn("targets are left out", "service", name(svc), "reason", err)
			want.Targets = known
		} else if cloudsim.KindOf(err) != cloudsim.Stale {
			return err
		}
	}
	return fmt.Errorf("load balancer of %s: other callers change it all the time", name(svc))
}

// backends returns the instances of the selected nodes, or the Service's pods on
// these nodes. It leaves out nodes of another cloud, so their pods get no
// traffic. With an invalid selector it returns no backends and no error, because
// wanted reports that error.
func (b *loadBalancers) backends(ctx context.Context, svc *v1.Service, nodes []*v1.Node) (to backends, err error) {
	by, err := nodeSelector(svc)
	if err != nil {
		return to, nil //nolint:nilerr // wanted reports this error together with all others
	}
	if nodes = chosen(nodes, by); byPods(svc) {
		return b.podBackends(ctx, svc, nodes)
	}
	return targetsOf(nodes), nil
}

var targetField = regexp.MustCompile(`^targets\[(\d+)\]\.(?:instance|ip)$`)

// knownTargets returns targets without those that the cloud refused in err. The
// cloud refuses instances that are gone while their Nodes still exist. A missing
// instance must not block the other targets. The result is false if err has
// another reason.
func knownTargets(targets []cloudsim.Target, err error) ([]cloudsim.Target, bool) {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.Kind != cloudsim.Invalid || len(e.Fields) == 0 {
		return nil, false
	}
	refused := map[int]bool{}
	for _, f := range e.Fields {
		m := targetField.FindStringSubmatch(strings.TrimSpace(f.Field))
		if m == nil {
			return nil, false
		}
		n, err := strconv.Atoi(m[1])
		if err != nil || n >= len(targets) {
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
