package ccm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// sweepPeriod is how often the cloud is swept for orphans.
const sweepPeriod = time.Minute

// sweeper looks for load balancers of this cluster whose Service is gone, or wants
// none or another's: one whose finalizer somebody removed by hand, or of a
// namespace that was forced away. Nobody would ever delete them, and they cost
// money in a real cloud. It reports them; only if told to, it deletes them once
// they have been orphans for the grace.
type sweeper struct {
	log     *slog.Logger
	p       *Provider
	kube    kubernetes.Interface
	cluster string

	since map[orphan]time.Time // the orphans, and since when
}

// orphan is a load balancer, or a share of one, that no Service wants.
type orphan struct {
	lb cloudsim.LoadBalancerID
	member
}

func newSweeper(p *Provider, kube kubernetes.Interface, cluster string) *sweeper {
	return &sweeper{log: p.log, p: p, kube: kube, cluster: cluster, since: map[orphan]time.Time{}}
}

// run sweeps until ctx ends.
func (s *sweeper) run(ctx context.Context) {
	for tick := time.NewTicker(sweepPeriod); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("the cloud is not swept for orphans", "err", err)
		}
	}
}

// sweep looks once. A cloud that cannot be watched, or an API server that does
// not answer, has no orphans: nothing is known.
func (s *sweeper) sweep(ctx context.Context) error {
	all, fresh := s.p.mirror.allBalancers()
	if !fresh {
		return nil
	}
	alone := map[orphan]cloudsim.LoadBalancer{}
	for lb := range all {
		if lb.Labels[LabelCluster] != s.cluster || lb.State == cloudsim.LoadBalancerDeleting {
			continue
		}
		for _, m := range members(lb) {
			if m.uid != "" {
				alone[orphan{lb.ID, m}] = lb
			}
		}
	}
	// The mirror was read before the API server: a Service that was made in
	// between is there, and one that is not there had its load balancer before.
	services, err := s.kube.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	there := map[string]*v1.Service{}
	for i, svc := range services.Items {
		there[string(svc.UID)] = &services.Items[i]
	}
	maps.DeleteFunc(alone, func(o orphan, lb cloudsim.LoadBalancer) bool {
		svc, ok := there[o.uid]
		return ok && s.mayHave(svc, lb)
	})
	var errs []error
	for o, lb := range alone {
		errs = append(errs, s.meet(ctx, o, lb))
	}
	maps.DeleteFunc(s.since, func(o orphan, _ time.Time) bool {
		_, still := alone[o]
		return !still
	})
	orphanedBalancers.Set(float64(len(s.since)))
	return errors.Join(errs...)
}

// mayHave reports whether a Service wants lb, or has a finalizer that says that lb
// is yet to be deleted. One of a class that is not served here has it while its
// status shows it: another manager of ours may serve that class in the same
// project, and this one did if its configuration was changed.
func (s *sweeper) mayHave(svc *v1.Service, lb cloudsim.LoadBalancer) bool {
	cfg := s.p.settings.Get()
	switch {
	case svc.Spec.Type != v1.ServiceTypeLoadBalancer:
		return servicehelpers.HasLBFinalizer(svc)
	case wantsOurs(svc, cfg.LoadBalancerClass, !cfg.OnlyLoadBalancerClass), lb.State != cloudsim.LoadBalancerActive:
		return true
	}
	return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool {
		return slices.ContainsFunc(lb.Addresses, func(a cloudsim.LoadBalancerAddress) bool { return a.IP == in.IP })
	})
}

// meet reports an orphan when it is new, and deletes it when it is old enough.
func (s *sweeper) meet(ctx context.Context, o orphan, lb cloudsim.LoadBalancer) error {
	cfg := s.p.settings.Get()
	since, known := s.since[o]
	of := &v1.ObjectReference{Kind: "Service", APIVersion: "v1", Namespace: o.namespace, Name: o.name, UID: types.UID(o.uid)}
	if !known {
		s.since[o] = time.Now()
		todo := "delete it in the cloud, or run the cloud controller manager with --delete-orphans"
		if cfg.DeleteOrphans {
			todo = fmt.Sprintf("it is deleted in %s unless the Service is there again and wants it", cfg.orphanGrace())
		}
		s.log.Warn("a load balancer is an orphan", "loadBalancer", lb.ID, "ip", lb.IP, "service", of.Namespace+"/"+of.Name)
		s.p.events.Eventf(of, v1.EventTypeWarning, "OrphanedLoadBalancer", "The load balancer %s (%s) belongs to this Service, which is gone or wants none: %s", lb.ID, lb.IP, todo)
		return nil
	}
	if !cfg.DeleteOrphans || time.Since(since) < cfg.orphanGrace() {
		return nil
	}
	// Once more, of the API server alone: what follows cannot be taken back.
	switch svc, err := s.kube.CoreV1().Services(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{}); {
	case err == nil && svc.UID == of.UID && s.mayHave(svc, lb):
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("orphan %s: %w", lb.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	gone := &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: of.UID}}
	if err := s.p.balancers.giveUp(ctx, lb, gone); err != nil && !errors.Is(err, cloudsim.NotFound) {
		return fmt.Errorf("orphan %s: deleting it: %w", lb.ID, err)
	}
	orphansDeletedTotal.Inc()
	s.p.events.Eventf(of, v1.EventTypeNormal, "DeletedOrphan", "Deleted the load balancer %s, which no Service wanted for %s", lb.ID, time.Since(since).Round(time.Second))
	return nil
}
