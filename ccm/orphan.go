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

// sweepPeriod is the time between two searches of the sweeper for orphans.
const sweepPeriod = time.Minute

// sweeper finds load balancers of this cluster that no Service requests. These
// load balancers are called orphans. For example, a load balancer becomes an
// orphan if a person removes the finalizer of its Service, or forces the
// deletion of the namespace. No other controller deletes orphans. The sweeper
// reports each orphan. If the setting DeleteOrphans is true, it deletes the
// orphan after the time OrphanGrace.
type sweeper struct {
	log     *slog.Logger
	p       *Provider
	kube    kubernetes.Interface
	cluster string

	since map[orphan]time.Time // the time when the sweeper first found each orphan
}

// orphan identifies a load balancer and a Service that no longer requests it.
// Other Services may still use the load balancer if it is shared.
type orphan struct {
	lb cloudsim.LoadBalancerID
	member
}

func newSweeper(p *Provider, kube kubernetes.Interface, cluster string) *sweeper {
	return &sweeper{log: p.log, p: p, kube: kube, cluster: cluster, since: map[orphan]time.Time{}}
}

func (s *sweeper) run(ctx context.Context) {
	for tick := time.NewTicker(sweepPeriod); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot find, check or delete load balancers that have no Service", "err", err)
		}
	}
}

// sweep searches for orphans once. If the mirror is not up to date, sweep does
// nothing and returns nil. If the API server does not answer, sweep handles no
// orphans and returns an error.
func (s *sweeper) sweep(ctx context.Context) error {
	all, fresh := s.p.mirror.allBalancers()
	if !fresh {
		return nil
	}
	orphans := map[orphan]cloudsim.LoadBalancer{}
	for lb := range all {
		if lb.Labels[LabelCluster] != s.cluster || lb.State == cloudsim.LoadBalancerDeleting {
			continue
		}
		for _, m := range membersOf(lb) {
			if m.uid != "" {
				orphans[orphan{lb.ID, m}] = lb
			}
		}
	}
	// sweep must read the mirror before it lists the Services. A Service exists before its load
	// balancer. So if the mirror contains a load balancer and the later list does not contain its
	// Service, a user has probably deleted the Service.
	services, err := s.kube.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	byUID := map[string]*v1.Service{}
	for i, svc := range services.Items {
		byUID[string(svc.UID)] = &services.Items[i]
	}
	maps.DeleteFunc(orphans, func(o orphan, lb cloudsim.LoadBalancer) bool {
		svc, ok := byUID[o.uid]
		return ok && s.mayHave(svc, lb)
	})
	var errs []error
	for o, lb := range orphans {
		errs = append(errs, s.handleOrphan(ctx, o, lb))
	}
	maps.DeleteFunc(s.since, func(o orphan, _ time.Time) bool {
		_, isOrphan := orphans[o]
		return !isOrphan
	})
	orphanedBalancers.Set(float64(len(s.since)))
	return errors.Join(errs...)
}

// mayHave reports whether the sweeper must keep lb for the Service svc:
//   - If svc does not have the type LoadBalancer, the result is true while svc has the load
//     balancer finalizer.
//   - If svc has the type LoadBalancer and this CCM serves svc, the result is true.
//   - If svc has the type LoadBalancer and this CCM does not serve svc, svc may still use lb. For
//     example, another CCM in the project may serve svc. The result is true while the status of svc
//     contains an address of lb. While lb is not active, the status may lack the address, so the
//     result is true.
func (s *sweeper) mayHave(svc *v1.Service, lb cloudsim.LoadBalancer) bool {
	cfg := s.p.settings.Get()
	switch {
	case svc.Spec.Type != v1.ServiceTypeLoadBalancer:
		return servicehelpers.HasLBFinalizer(svc)
	case isServed(svc, cfg.LoadBalancerClass, !cfg.OnlyLoadBalancerClass), lb.State != cloudsim.LoadBalancerActive:
		return true
	}
	return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool {
		return slices.ContainsFunc(lb.Addresses, func(a cloudsim.LoadBalancerAddress) bool { return a.IP == in.IP })
	})
}

// handleOrphan reports an orphan when the sweeper finds it for the first time. If the setting
// DeleteOrphans is true, handleOrphan deletes the orphan when the time OrphanGrace has passed since
// the report.
func (s *sweeper) handleOrphan(ctx context.Context, o orphan, lb cloudsim.LoadBalancer) error {
	cfg := s.p.settings.Get()
	since, known := s.since[o]
	of := &v1.ObjectReference{Kind: "Service", APIVersion: "v1", Namespace: o.namespace, Name: o.name, UID: types.UID(o.uid)}
	resource, hasOthers := fmt.Sprintf("the load balancer %s", lb.ID), len(membersOf(lb)) > 1
	if hasOthers {
		resource = fmt.Sprintf("the ports of this Service on the shared load balancer %s", lb.ID)
	}
	if !known {
		s.since[o] = time.Now()
		todo := "run the cloud controller manager with --delete-orphans."
		switch {
		case cfg.DeleteOrphans:
			todo = fmt.Sprintf("The cloud controller manager deletes %s in %s, unless this Service (same UID) uses it again.", resource, cfg.orphanGrace())
		case hasOthers:
			todo = "To delete the ports of this Service, " + todo
		default:
			todo = "Delete the load balancer in the cloud, or " + todo
		}
		s.log.Warn("the Service of a load balancer does not exist, or does not use the load balancer any more", "loadBalancer", lb.ID, "ip", lb.IP, "service", of.Namespace+"/"+of.Name)
		s.p.events.Eventf(of, v1.EventTypeWarning, "OrphanedLoadBalancer", "The load balancer %s (%s) belongs to this Service, but the Service does not exist, or does not use it any more. %s", lb.ID, lb.IP, todo)
		return nil
	}
	if !cfg.DeleteOrphans || time.Since(since) < cfg.orphanGrace() {
		return nil
	}
	// The cloud cannot restore a deleted load balancer. So before the deletion
	// the sweeper reads the Service again from the API server.
	switch svc, err := s.kube.CoreV1().Services(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{}); {
	case err == nil && svc.UID == of.UID && s.mayHave(svc, lb):
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("reading the Service of load balancer %s: %w", lb.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	gone := &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: of.UID}}
	if err := s.p.loadBalancers.releaseBalancer(ctx, lb, gone); err != nil && !errors.Is(err, cloudsim.NotFound) {
		return fmt.Errorf("deleting load balancer %s, which has no Service: %w", lb.ID, err)
	}
	orphansDeletedTotal.Inc()
	s.p.events.Eventf(of, v1.EventTypeNormal, "DeletedOrphan", "Deleted %s, because for %s the Service did not exist, or did not use the load balancer", resource, time.Since(since).Round(time.Second))
	return nil
}
