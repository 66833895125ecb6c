package ccm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudapi "k8s.io/cloud-provider/api"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/queue"
)

const (
	// repairSettle is the time for which a Service must be unchanged before the
	// repairer checks its load balancer. During this time upstream's controller
	// can act.
	repairSettle = 2 * time.Second
	// repairPeriod is the time between two checks of a load balancer if no
	// object changes.
	repairPeriod = 5 * time.Minute
)

// repairer corrects differences that upstream's service controller ignores. Upstream's controller
// acts when a Service changes, when a Node appears or disappears, and when a label excludes a Node
// from load balancers. Upstream's controller ignores these changes:
//   - A person changes or deletes a load balancer in the cloud.
//   - A person removes the status of a Service.
//   - The labels of a Node change, and a Service selects its nodes with
//     AnnotationLoadBalancerNodeSelector.
//
// When a Service, a Node or a load balancer changes, the repairer compares the requested load
// balancer with the load balancer in the mirror, a local copy. If the mirror has the load balancer,
// this comparison needs no call to the cloud. To correct a difference, the repairer calls
// EnsureLoadBalancer, as upstream does. Concurrent calls of upstream and the repairer are safe.
type repairer struct {
	log      *slog.Logger
	p        *Provider
	kube     kubernetes.Interface
	services corelisters.ServiceLister
	nodes    corelisters.NodeLister
	cluster  string
	settle   time.Duration
	synced   []cache.DoneChecker // report the end of the first list of each informer
	queue    queue.Interface

	mu      sync.Mutex
	changed map[string]time.Time // time of the last change of each Service for which isManaged returns true
}

func newRepairer(p *Provider, kube kubernetes.Interface, services coreinformers.ServiceInformer, nodes coreinformers.NodeInformer, cluster string) (*repairer, error) {
	r := &repairer{
		log: p.log, p: p, kube: kube, services: services.Lister(), nodes: nodes.Lister(), cluster: cluster, settle: repairSettle,
		synced:  []cache.DoneChecker{services.Informer().HasSyncedChecker(), nodes.Informer().HasSyncedChecker()},
		queue:   queue.New("service-lb-repair", 5*time.Second, 5*time.Minute),
		changed: map[string]time.Time{},
	}
	_, err1 := services.Informer().AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.serviceChanged,
		UpdateFunc: r.serviceUpdated,
		DeleteFunc: r.serviceGone,
	}, repairPeriod)
	_, err2 := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if nodeMatters(before.(*v1.Node), after.(*v1.Node)) {
				r.all()
			}
		},
	})
	p.mirror.subscribe(r.balancerChanged, r.all)
	return r, errors.Join(err1, err2)
}

func (r *repairer) run(ctx context.Context) {
	drainSynced(ctx, ServiceRepairController, r.synced, r.queue, 1, func(ctx context.Context, key string) (time.Duration, error) {
		wait, err := r.sync(ctx, key)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("load balancer not repaired", "service", key, "err", err)
		}
		return wait, err
	})
}

// drainSynced waits until the informers of a controller have listed all objects. Then it calls
// queue.Drain, which handles the names in the queue q until ctx ends. Without the wait, the list of
// Nodes could be incomplete, and the controller would remove targets from working load balancers.
func drainSynced(ctx context.Context, controller string, synced []cache.DoneChecker, q queue.Interface, workers int, workFn func(context.Context, string) (time.Duration, error)) {
	if !cache.WaitFor(ctx, "caches of "+controller, synced...) {
		q.ShutDown()
		return
	}
	queue.Drain(ctx, q, workers, workFn)
}

// serviceUpdated handles an update event of the informer. In the periodic
// resync, oldObj and newObj are the same object, and the repairer checks the
// load balancer at once. After a real change, the repairer first waits for
// upstream's controller.
func (r *repairer) serviceUpdated(oldObj, newObj any) {
	if oldObj == newObj {
		r.enqueue(newObj, 0)
		return
	}
	r.serviceChanged(newObj)
}

func (r *repairer) serviceChanged(obj any) {
	svc, ok := obj.(*v1.Service)
	if !ok || !isManaged(svc) {
		r.serviceGone(obj)
		if ok && hasOldPortsCondition(svc) {
			r.enqueue(svc, 0)
		}
		return
	}
	r.mu.Lock()
	r.changed[name(svc)] = time.Now()
	r.mu.Unlock()
	r.enqueue(svc, r.settle)
}

func (r *repairer) serviceGone(obj any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.changed, key)
	}
}

func (r *repairer) balancerChanged(lb cloudsim.LoadBalancer) {
	if lb.Labels[LabelCluster] != r.cluster {
		return
	}
	for _, m := range membersOf(lb) {
		r.queue.AddAfter(m.namespace+"/"+m.name, r.settle)
	}
}

func (r *repairer) all() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.changed {
		r.queue.AddAfter(key, r.settle)
	}
}

func (r *repairer) enqueue(obj any, after time.Duration) {
	if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
		r.queue.AddAfter(key, after)
	}
}

// isManaged reports whether upstream's controller manages a load balancer for the Service. The
// argument must come from the informer cache. For each Service that this provider serves, the
// function classView has removed the load balancer class in this cache. A Service that still has a
// class belongs to another provider, so isManaged returns false for it.
func isManaged(svc *v1.Service) bool {
	return svc.Spec.Type == v1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil &&
		svc.DeletionTimestamp == nil && servicehelpers.HasLBFinalizer(svc)
}

// sync checks the load balancer of one Service and repairs it if necessary. It
// also sets or removes the condition LoadBalancerPortsError of the Service. If
// sync returns a positive time, the queue calls sync again after that time.
func (r *repairer) sync(ctx context.Context, key string) (wait time.Duration, err error) {
	ns, n, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return 0, nil //nolint:nilerr // a retry does not repair an invalid key
	}
	svc, err := r.services.Services(ns).Get(n)
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, err
	case hasOldPortsCondition(svc):
		return 0, r.tellPorts(svc, nil)
	case !isManaged(svc):
		return 0, nil
	}
	r.mu.Lock()
	left := r.settle - time.Since(r.changed[key])
	r.mu.Unlock()
	if left > 0 {
		return left, nil
	}
	nodes, err := r.nodes.List(labels.Everything())
	if err != nil {
		return 0, err
	}
	nodes = eligibleNodes(nodes)
	why, err := r.findDrift(ctx, svc, nodes)
	no, isNo := errors.AsType[permanentError](err)
	if err != nil && !isNo {
		return 0, err
	}
	if err := r.tellPorts(svc, no.error); err != nil || why == "" {
		return 0, err
	}
	return r.repair(ctx, svc, nodes, why)
}

// findDrift compares the load balancer of a Service with the load balancer that the Service
// requests. It returns a description of the difference, or "" if there is no difference. While the
// load balancer is not active, or if upstream's controller has not yet created it, the result is
// "". If a repair cannot help until a person changes the Service or the cloud, the error is a
// permanentError.
func (r *repairer) findDrift(ctx context.Context, svc *v1.Service, nodes []*v1.Node) (string, error) {
	backends, err := r.p.loadBalancers.backendsOf(ctx, svc, nodes)
	if err != nil {
		return "", err
	}
	backends.targets = r.existingTargets(backends.targets)
	desired, err := requestedBalancer(r.cluster, svc, backends, r.p.loadBalancers.defaultMode())
	if err != nil {
		return "", permanentError{err}
	}
	lb, known := r.p.mirror.balancerNamed(desired.Name)
	if !known {
		ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
		defer cancel()
		if lb, known, err = r.p.loadBalancers.find(ctx, r.cluster, svc); err != nil {
			return "", err
		}
	} else if err := checkOwner(lb, r.cluster, svc); err != nil {
		return "", permanentError{err}
	}
	if desired, err = mergeMembers(lb, desired, string(svc.UID)); err != nil {
		return "", permanentError{err}
	}
	switch {
	case !known && len(svc.Status.LoadBalancer.Ingress) == 0:
		return "", nil // upstream's controller is still creating the load balancer
	case !known:
		return "it was deleted in the cloud", nil
	case lb.State != cloudsim.LoadBalancerActive:
		return "", nil // the next change of lb triggers a new check
	case !isEqual(lb, desired):
		return "its settings or targets did not match the Service and the nodes", nil
	case !servicehelpers.LoadBalancerStatusEqual(&svc.Status.LoadBalancer, status(svc, lb)):
		return "the status of the Service was wrong", nil
	}
	return "", nil
}

// existingTargets omits a target if the mirror lacks the target's instance, or if this instance is
// terminated. The cloud refuses these targets. If the mirror is not up to date, the method returns
// all targets.
func (r *repairer) existingTargets(targets []cloudsim.Target) []cloudsim.Target {
	if !r.p.mirror.isFresh() {
		return targets
	}
	kept := make([]cloudsim.Target, 0, len(targets))
	for _, t := range targets {
		if i, ok := r.p.mirror.instance(t.Instance); ok && i.State != cloudsim.InstanceTerminated {
			kept = append(kept, t)
		}
	}
	return kept
}

// repair corrects the load balancer and the status of a Service. If wait is positive, the caller
// must repeat the repair after this time. The method first reads the Service again. If a user has
// deleted the Service, the method does nothing, because it must not create a load balancer for a
// deleted Service.
func (r *repairer) repair(ctx context.Context, svc *v1.Service, nodes []*v1.Node, why string) (wait time.Duration, err error) {
	switch now, err := r.kube.CoreV1().Services(svc.Namespace).Get(ctx, svc.Name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err) || err == nil && (now.UID != svc.UID || now.DeletionTimestamp != nil):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("reading the Service before the repair: %w", err)
	}
	st, err := r.p.loadBalancers.EnsureLoadBalancer(ctx, r.cluster, svc, nodes)
	if retry, ok := errors.AsType[*cloudapi.RetryError](err); ok {
		return retry.RetryAfter(), nil
	}
	if err != nil {
		r.p.events.Eventf(svc, v1.EventTypeWarning, "RepairLoadBalancerFailed", "The load balancer needs repair (%s), but the repair failed: %v", why, err)
		return 0, err
	}
	if !servicehelpers.LoadBalancerStatusEqual(&svc.Status.LoadBalancer, st) {
		after := svc.DeepCopy()
		after.Status.LoadBalancer = *st
		if _, err := servicehelpers.PatchService(r.kube.CoreV1(), svc, after); err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("writing the status of the Service: %w", err)
		}
	}
	repairsTotal.Inc()
	r.p.events.Eventf(svc, v1.EventTypeNormal, "RepairedLoadBalancer", "Repaired the load balancer: %s", why)
	return 0, nil
}
