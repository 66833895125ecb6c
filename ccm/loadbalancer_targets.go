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

// UpdateLoadBalancer replaces the set of targets in one call, so there is never
// an empty set on the way. It is called before Ensure, after Delete and with
// old Services, too: one that is being deleted is left alone, one that is
// missing is an error, which the framework drops when GetLoadBalancer agrees.
//
// A node that joins is a call of this for every Service, so where the mirror knows
// the load balancer it is written without being read.
func (b *balancers) UpdateLoadBalancer(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) error {
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
		} // what is wrong, the cloud's own word shows
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

// remembered is the Service's own load balancer as the mirror holds it. That may
// be behind: one that is not there any more the cloud refuses to change, and one
// that seems to be right must be read.
func (b *balancers) remembered(cluster string, svc *v1.Service) (cloudsim.LoadBalancer, bool) {
	lb, known := b.mirror.balancerNamed(loadBalancerName(svc))
	return lb, known && lb.State != cloudsim.LoadBalancerDeleting && checkOwner(lb, cluster, svc) == nil
}

// setTargets replaces the targets of lb, without those that the cloud does not
// know.
func (b *balancers) setTargets(ctx context.Context, svc *v1.Service, lb cloudsim.LoadBalancer, targets []cloudsim.Target) (err error) {
	for range attempts {
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

// errMissing is why a load balancer cannot be updated that is not there.
var errMissing = errors.New("does not exist (yet)")

// strays reports whether a Service that shares lb says no longer so.
func strays(lb cloudsim.LoadBalancer, svc *v1.Service) bool {
	return shared(lb) && lb.Labels[LabelShared] != svc.Namespace+"/"+svc.Annotations[AnnotationLoadBalancerShared]
}

// errShares is why nothing is changed for a Service that shares a load balancer
// and says no longer so: it is the others'.
func errShares(lb cloudsim.LoadBalancer, svc *v1.Service) error {
	return fmt.Errorf("load balancer %s is shared, and %s wants one of its own, which it cannot have as long as it is: nothing is changed", lb.ID, name(svc))
}

// followPods is UpdateLoadBalancer where the targets are pods, which may have
// other ports than those before: all of it is replaced, in one call too.
func (b *balancers) followPods(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) error {
	want, err := b.want(ctx, cluster, svc, nodes)
	if err != nil {
		return err
	}
	for range attempts {
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
	return fmt.Errorf("load balancer of %s: it changes all the time", name(svc))
}

// backends are the instances of the nodes that the Service chooses, or the pods
// there. A node of another cloud is left out: its pods get no traffic. A selector
// that cannot be read chooses nothing; wanted refuses it.
func (b *balancers) backends(ctx context.Context, svc *v1.Service, nodes []*v1.Node) (to backends, err error) {
	by, err := nodeSelector(svc)
	if err != nil {
		return to, nil //nolint:nilerr // wanted says it, with all else that is wrong
	}
	if nodes = chosen(nodes, by); byPods(svc) {
		return b.podBackends(ctx, svc, nodes)
	}
	return targetsOf(nodes), nil
}

var targetField = regexp.MustCompile(`^targets\[(\d+)\]\.(?:instance|ip)$`)

// knownTargets is targets without those that err, the cloud's answer, refuses:
// instances that are gone while their Nodes are still there. It reports false
// if err is about anything else. One dead node must not keep the others out.
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
