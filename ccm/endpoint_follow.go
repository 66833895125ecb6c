package ccm

import (
	"context"
	"errors"
	"log/slog"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/cloudsim-dev/allinone/internal/queue"
)

// podBatch is the time for which the CCM collects changes of a Service's pods
// before it makes one call. During a rollout, the CCM therefore does not make
// one call for each pod.
const podBatch = 500 * time.Millisecond

// podFollower updates the targets of a load balancer when the pods of its
// Service change. It handles only Services whose targets are pods. Upstream's
// service controller does not watch pods.
type podFollower struct {
	log      *slog.Logger
	p        *Provider
	services corelisters.ServiceLister
	nodes    corelisters.NodeLister
	cluster  string
	synced   []cache.DoneChecker // report the end of the first list of each informer
	queue    queue.Interface
}

func newPodFollower(p *Provider, services coreinformers.ServiceInformer, nodes coreinformers.NodeInformer, slices discoveryinformers.EndpointSliceInformer, cluster string) (*podFollower, error) {
	f := &podFollower{
		log: p.log, p: p, services: services.Lister(), nodes: nodes.Lister(), cluster: cluster,
		synced: []cache.DoneChecker{services.Informer().HasSyncedChecker(), nodes.Informer().HasSyncedChecker(), slices.Informer().HasSyncedChecker()},
		queue:  queue.New("service-lb-endpoint", time.Second, 5*time.Minute),
	}
	_, err := slices.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f.changed,
		UpdateFunc: f.updated,
		DeleteFunc: f.changed,
	})
	return f, err
}

func (f *podFollower) run(ctx context.Context) {
	drainSynced(ctx, ServiceEndpointController, f.synced, f.queue, 2, func(ctx context.Context, key string) (time.Duration, error) {
		wait, err := f.sync(ctx, key)
		if err != nil && ctx.Err() == nil {
			f.log.Warn("targets of a load balancer not updated after a change of the Service's pods", "service", key, "err", err)
		}
		return wait, err
	})
}

// updated handles an update event of the informer. It ignores the events of a resync, because these
// events report no change.
func (f *podFollower) updated(before, after any) {
	if before.(*discoveryv1.EndpointSlice).ResourceVersion != after.(*discoveryv1.EndpointSlice).ResourceVersion {
		f.changed(after)
	}
}

func (f *podFollower) changed(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok && s.Labels[discoveryv1.LabelServiceName] != "" {
		f.queue.AddAfter(s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName], podBatch)
	}
}

// sync sets the targets of a Service's load balancer to the current pods. If the load balancer does
// not exist, the method does nothing, because upstream's controller creates the load balancer with
// the current pods. If wait is positive, the queue calls sync again after this time.
func (f *podFollower) sync(ctx context.Context, key string) (wait time.Duration, err error) {
	ns, n, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return 0, nil //nolint:nilerr // a retry does not repair an invalid key
	}
	svc, err := f.services.Services(ns).Get(n)
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, err
	case !isManaged(svc), !byPods(svc):
		return 0, nil
	}
	nodes, err := f.nodes.List(labels.Everything())
	if err != nil {
		return 0, err
	}
	err = f.p.loadBalancers.UpdateLoadBalancer(ctx, f.cluster, svc, eligibleNodes(nodes))
	if retry, ok := errors.AsType[*cloudapi.RetryError](err); ok {
		return retry.RetryAfter(), nil
	}
	if errors.Is(err, errMissing) {
		return 0, nil
	}
	return 0, err
}
