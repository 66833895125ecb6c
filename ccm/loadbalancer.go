package ccm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/cloud-provider/api"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

const (
	// balancerDeadline is the time limit for one call that the framework makes. It is necessary,
	// because the framework sets no deadline.
	balancerDeadline = 30 * time.Second
	// retryAfter is the time after which the framework repeats a call that
	// returned a RetryError.
	retryAfter = time.Second
	// maxAttempts is the largest number of attempts of an operation. An attempt
	// fails if another caller changes the same object at the same time.
	maxAttempts = 5
	// After maxUnreported polls, the CCM no longer waits for the endpoints of
	// an active load balancer. This limit is necessary, because a cloud without
	// a data plane never reports endpoints.
	maxUnreported = 6
)

// retryBackoff is the backoff while the CCM waits for the cloud. The wait takes
// at most about three seconds in total. After this time the CCM returns an
// error, and the framework later calls the provider again. Without this wait,
// every new Service would get a Warning event about a failure. With a longer
// wait, a load balancer that does not become active would block a worker of the
// queue.
var retryBackoff = wait.Backoff{Duration: 25 * time.Millisecond, Factor: 1.5, Steps: 11}

// cloudRegion is the only region of a cloud, with the part of the configuration that selects the
// cloud.
type cloudRegion struct{ url, project, tokenFile, name string }

func (r cloudRegion) isOf(cfg Config) bool {
	return r.name != "" && r.url == cfg.URL && r.project == cfg.Project && r.tokenFile == cfg.TokenFile
}

// loadBalancers is a cloudprovider.LoadBalancer. It creates load balancers for Services. Each call
// reads the state of the load balancer from the cloud or from the mirror. loadBalancers itself
// stores only the region and a list of the finalizers that belong to this provider.
type loadBalancers struct {
	log           *slog.Logger
	api           *client.Client
	events        record.EventRecorder
	settings      *Settings
	mirror        *mirror
	endpoints     endpointReader
	finalizers    *finalizerOwners
	backoff       wait.Backoff
	maxUnreported int

	mu     sync.Mutex
	region cloudRegion

	sharedSlot chan struct{} // has one slot; a goroutine holds the slot while it changes the members of a shared load balancer
}

// lockShared waits until no other goroutine changes the members of a shared load balancer, and then
// takes the only slot of the channel sharedSlot. The caller must call release to free the slot. If
// ctx ends first, lockShared returns an error.
func (b *loadBalancers) lockShared(ctx context.Context) (release func(), err error) {
	select {
	case b.sharedSlot <- struct{}{}:
		return func() { <-b.sharedSlot }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for other Services that share a load balancer: %w", context.Cause(ctx))
	}
}

// GetLoadBalancerName returns the name of the Service's own load balancer in
// the cloud. It ignores shared load balancers.
func (b *loadBalancers) GetLoadBalancerName(_ context.Context, _ string, svc *v1.Service) string {
	return loadBalancerName(svc)
}

// GetLoadBalancer reports whether the Service still has a load balancer in the cloud. If the result
// is false, the framework removes the finalizer of the Service. The result is therefore true while
// the cloud is deleting the load balancer. If the load balancer does not exist, the error is
// usually nil, because Kubernetes could otherwise never delete the Service. But if the finalizer of
// the Service may belong to another controller, GetLoadBalancer returns an error. The framework
// then keeps the finalizer.
func (b *loadBalancers) GetLoadBalancer(ctx context.Context, cluster string, svc *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	lb, found, err := b.find(ctx, cluster, svc)
	switch {
	case err != nil:
		return nil, false, err
	case !found:
		return nil, false, b.finalizers.checkRemoval(svc)
	}
	b.finalizers.set(svc, true)
	return status(svc, lb), true, nil
}

// EnsureLoadBalancer creates or updates the Service's load balancer according
// to the Service and the nodes. When the load balancer is active,
// EnsureLoadBalancer returns its addresses. If the load balancer is already
// correct, or if the Service has a deletion timestamp, EnsureLoadBalancer
// changes nothing. If the cloud does not support a part of the request,
// EnsureLoadBalancer refuses the whole Service. If the cloud needs too long to
// create the load balancer, or to delete an earlier one, the error is an
// api.RetryError.
func (b *loadBalancers) EnsureLoadBalancer(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if svc.DeletionTimestamp != nil {
		return svc.Status.LoadBalancer.DeepCopy(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	desired, err := b.wantedBalancer(ctx, cluster, svc, nodes)
	if err != nil {
		return nil, err
	}
	lb, err := b.converge(ctx, cluster, svc, desired)
	if err != nil {
		return nil, err
	}
	if lb, err = b.awaitActive(ctx, lb); err != nil {
		return nil, err
	}
	b.recordPorts(svc, lb)
	return status(svc, lb), nil
}

// EnsureLoadBalancerDeleted deletes the Service's load balancer and waits a short time for the
// deletion. If other Services also use the load balancer, the method only removes the Service from
// the load balancer. If the Service has no load balancer, the method returns nil. After an error
// the framework keeps the finalizer of the Service. The method does not read the spec or the
// annotations of the Service.
func (b *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, svc *v1.Service) error {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	for range maxAttempts {
		lb, found, err := b.find(ctx, cluster, svc)
		if err != nil || !found {
			return err
		}
		switch err := b.releaseBalancer(ctx, lb, svc); cloudsim.KindOf(err) {
		case cloudsim.NotFound:
			return nil
		case cloudsim.Stale:
			continue // another Service joined or left the load balancer
		default:
			if err != nil {
				return fmt.Errorf("deleting load balancer %s: %w", lb.ID, err)
			}
		}
		if isShared(lb) && len(membersOf(lb)) > 1 && lb.State != cloudsim.LoadBalancerDeleting {
			return nil // the load balancer stays for the other Services
		}
		return b.awaitDeletion(ctx, lb)
	}
	return fmt.Errorf("deleting the load balancer of %s: the load balancer changed during every attempt", name(svc))
}

// releaseBalancer deletes the load balancer lb. If other Services share lb, the
// method removes only the Service svc from lb. If the cloud is already deleting
// lb, the method does nothing. If a shared lb has changed since the caller read
// it, the error has the kind Stale.
func (b *loadBalancers) releaseBalancer(ctx context.Context, lb cloudsim.LoadBalancer, svc *v1.Service) error {
	switch {
	case lb.State == cloudsim.LoadBalancerDeleting:
		return nil
	case isShared(lb):
		release, err := b.lockShared(ctx)
		if err != nil {
			return err
		}
		defer release()
		// Another Service may have joined lb before lockShared returned. If
		// lb has a newer revision in the cloud, the caller must read lb again.
		now, err := b.api.GetLoadBalancer(ctx, lb.ID)
		if err != nil {
			return err
		}
		if now.Revision != lb.Revision {
			return cloudsim.Errorf(cloudsim.Stale, "load balancer %s has changed", lb.ID)
		}
		return b.removeMember(ctx, lb, string(svc.UID))
	}
	_, err := b.api.DeleteLoadBalancer(ctx, lb.ID)
	return err
}

// find returns the load balancer that belongs to the Service. If the Service
// has no load balancer of its own, find returns the shared load balancer that
// the Service uses. It does not read the annotations of the Service, because a
// user may have changed these annotations. It returns an error if another
// cluster or Service owns the load balancer with the name
// loadBalancerName(svc).
func (b *loadBalancers) find(ctx context.Context, cluster string, svc *v1.Service) (cloudsim.LoadBalancer, bool, error) {
	lb, found, err := b.ownLoadBalancer(ctx, cluster, svc)
	if err != nil || found {
		return lb, found, err
	}
	return b.shareOf(ctx, cluster, svc)
}

// ownLoadBalancer returns the load balancer that belongs to this Service
// only.
func (b *loadBalancers) ownLoadBalancer(ctx context.Context, cluster string, svc *v1.Service) (cloudsim.LoadBalancer, bool, error) {
	lb, found, err := b.findByName(ctx, loadBalancerName(svc))
	return lb, found, errors.Join(err, checkOwner(lb, cluster, svc))
}

// shareOf returns the shared load balancer of which the Service is a member.
// This call is slow, because the cloud searches all of its load balancers.
func (b *loadBalancers) shareOf(ctx context.Context, cluster string, svc *v1.Service) (lb cloudsim.LoadBalancer, found bool, err error) {
	l, err := b.api.ListLoadBalancers(ctx, cloudsim.ListOptions{Labels: map[string]string{
		LabelCluster: cluster, labelMemberPrefix + string(svc.UID): name(svc),
	}})
	if err != nil || len(l.Items) == 0 {
		return lb, false, err
	}
	return l.Items[0], true, nil
}

// findByName returns the load balancer with the name n. It returns an error if
// several load balancers have this name.
func (b *loadBalancers) findByName(ctx context.Context, n string) (none cloudsim.LoadBalancer, found bool, err error) {
	l, err := b.api.ListLoadBalancers(ctx, cloudsim.ListOptions{Name: n})
	switch {
	case err != nil:
		return none, false, fmt.Errorf("looking for load balancer %s: %w", n, err)
	case len(l.Items) == 0:
		return none, false, nil
	case len(l.Items) > 1:
		return none, false, fmt.Errorf("load balancers %s and %s are both named %s: choose a project in the cloud configuration", l.Items[0].ID, l.Items[1].ID, n)
	case l.Items[0].Name != n:
		return none, false, fmt.Errorf("looking for load balancer %s: the cloud returned load balancer %q, which has another name", n, l.Items[0].Name)
	}
	return l.Items[0], true, nil
}

// converge creates the Service's load balancer, or updates the existing load
// balancer. It leaves out the targets that the cloud refuses. If another caller
// changes the load balancer at the same time, the method starts again.
func (b *loadBalancers) converge(ctx context.Context, cluster string, svc *v1.Service, desired cloudsim.CreateLoadBalancer) (lb cloudsim.LoadBalancer, err error) {
	if desired.Labels[LabelShared] != "" {
		release, err := b.lockShared(ctx)
		if err != nil {
			return lb, err
		}
		defer release()
	}
	for range maxAttempts {
		var mustRepeat bool
		if lb, mustRepeat, err = b.stepOnce(ctx, cluster, svc, desired); err == nil && !mustRepeat {
			return lb, nil
		}
		if known, ok := knownTargets(desired.Targets, err); ok {
			b.log.Warn("targets are left out, because the cloud refused them", "service", name(svc), "reason", err)
			desired.Targets = known
			mustRepeat = true
		}
		switch cloudsim.KindOf(err) {
		case cloudsim.Exists, cloudsim.Stale, cloudsim.NotFound:
			mustRepeat = true // a concurrent run or a person changed the load balancer
		}
		if !mustRepeat {
			break
		}
	}
	if _, ok := errors.AsType[*api.RetryError](err); ok {
		return lb, err
	}
	if err == nil {
		err = errors.New("the load balancer changed during every attempt")
	}
	return lb, fmt.Errorf("load balancer %s: %w", desired.Name, err)
}

// stepOnce reads the current state of the load balancer and makes at most one
// change. If mustRepeat is true, the caller must call stepOnce again.
func (b *loadBalancers) stepOnce(ctx context.Context, cluster string, svc *v1.Service, desired cloudsim.CreateLoadBalancer) (lb cloudsim.LoadBalancer, mustRepeat bool, err error) {
	lb, found, err := b.ownLoadBalancer(ctx, cluster, svc)
	if err == nil && !found && !b.sharesNone(svc) {
		lb, found, err = b.shareOf(ctx, cluster, svc)
	}
	if err == nil && !found && desired.Labels[LabelShared] != "" {
		lb, found, err = b.findByName(ctx, desired.Name)
	}
	switch {
	case err != nil:
		return lb, false, err
	case !found:
		lb, err = b.create(ctx, desired)
		return lb, false, err
	case lb.State == cloudsim.LoadBalancerDeleting:
		err = b.awaitDeletion(ctx, lb)
		return lb, err == nil, err // after the deletion, the next step creates a new load balancer
	case lb.Name != desired.Name:
		return lb, false, fmt.Errorf("the Service uses the load balancer %s (%s), and annotation %s cannot be changed: restore the annotation, or delete the Service and create it again", lb.ID, lb.Name, AnnotationLoadBalancerShared)
	}
	if desired, err = mergeMembers(lb, desired, string(svc.UID)); err != nil || isEqual(lb, desired) {
		return lb, false, err
	}
	lb, err = b.updateBalancer(ctx, lb, desired)
	return lb, false, err
}

// sharesNone reports whether the mirror is up to date and has no shared load balancer with this
// Service as a member. If the result is true, the caller does not call shareOf. Without sharesNone,
// a thousand new Services would cause a thousand calls, and for each call the cloud would search
// all load balancers.
//
// The mirror may not have the latest change of a shared load balancer yet, so the result can be
// wrong for a short time. The CCM may then create a second load balancer for the Service.
// EnsureLoadBalancerDeleted does not use sharesNone, but always asks the cloud.
func (b *loadBalancers) sharesNone(svc *v1.Service) bool {
	all, fresh := b.mirror.allBalancers()
	if !fresh {
		return false
	}
	for lb := range all {
		if _, member := lb.Labels[labelMemberPrefix+string(svc.UID)]; member {
			return false
		}
	}
	return true
}

// create creates the load balancer. The call is idempotent, because the name of
// the load balancer is unique. If the load balancer exists, the same request
// returns the existing load balancer.
func (b *loadBalancers) create(ctx context.Context, desired cloudsim.CreateLoadBalancer) (lb cloudsim.LoadBalancer, err error) {
	if desired.Region, err = b.regionName(ctx); err != nil {
		return lb, err
	}
	return b.api.CreateLoadBalancer(ctx, desired)
}

// updateBalancer changes lb in the cloud to the desired load balancer. It
// returns an error if lb has changed in the cloud since the CCM read it. It
// keeps the labels of lb that the desired load balancer does not have.
func (b *loadBalancers) updateBalancer(ctx context.Context, lb cloudsim.LoadBalancer, desired cloudsim.CreateLoadBalancer) (cloudsim.LoadBalancer, error) {
	labels := map[string]string{}
	for _, from := range []map[string]string{lb.Labels, desired.Labels} {
		for k, v := range from {
			labels[k] = v
		}
	}
	return b.api.UpdateLoadBalancer(ctx, lb.ID, cloudsim.UpdateLoadBalancer{
		Labels: labels, Scheme: desired.Scheme, Families: desired.Families, Addresses: desired.Addresses, LoadBalancerSpec: desired.LoadBalancerSpec,
	}, lb.Revision)
}

// awaitActive polls until lb is active and its status contains the endpoints
// of its listeners. After b.maxUnreported polls, it no longer waits for the
// endpoints. It returns a RetryError if lb does not become active in time.
func (b *loadBalancers) awaitActive(ctx context.Context, lb cloudsim.LoadBalancer) (cloudsim.LoadBalancer, error) {
	polls := 0
	err := wait.ExponentialBackoffWithContext(ctx, b.backoff, func(ctx context.Context) (bool, error) {
		if polls > 0 {
			now, err := b.api.GetLoadBalancer(ctx, lb.ID)
			if err != nil {
				return false, err
			}
			lb = now
		}
		polls++
		if lb.State == cloudsim.LoadBalancerProvisioning {
			return false, nil
		}
		return lb.Reported() || polls > b.maxUnreported, nil
	})
	switch {
	case err != nil && !isTimeout(err):
		return lb, fmt.Errorf("waiting until load balancer %s is active: %w", lb.ID, err)
	case lb.State == cloudsim.LoadBalancerActive, lb.State == cloudsim.LoadBalancerUpdating:
		return lb, nil
	}
	return lb, api.NewRetryError(fmt.Sprintf("load balancer %s (%s) is %s", lb.ID, lb.IP, lb.State), retryAfter)
}

// isTimeout reports whether err means that a wait reached its time limit, or that the context ended
// during the wait. If err means that the cloud did not answer a call, the result is
// false.
func isTimeout(err error) bool {
	return wait.Interrupted(err) && cloudsim.KindOf(err) != cloudsim.Unavailable
}

// awaitDeletion waits until the cloud has deleted lb. It returns a RetryError
// if the deletion takes too long.
func (b *loadBalancers) awaitDeletion(ctx context.Context, lb cloudsim.LoadBalancer) error {
	err := wait.ExponentialBackoffWithContext(ctx, b.backoff, func(ctx context.Context) (bool, error) {
		_, err := b.api.GetLoadBalancer(ctx, lb.ID)
		if errors.Is(err, cloudsim.NotFound) {
			return true, nil
		}
		return false, err
	})
	switch {
	case err == nil:
		return nil
	case isTimeout(err):
		return api.NewRetryError(fmt.Sprintf("load balancer %s is still being deleted", lb.ID), retryAfter)
	}
	return fmt.Errorf("waiting until load balancer %s is deleted: %w", lb.ID, err)
}

// defaultMode returns the mode of listeners for Services that do not choose a mode.
func (b *loadBalancers) defaultMode() cloudsim.ListenerMode {
	return listenerModes[b.settings.Get().ipMode()]
}

// regionName returns the region for new load balancers. If the configuration
// has no region, regionName returns the only region of the cloud. If the cloud
// does not have exactly one region, the result is an error. regionName reads
// the region from the cloud once for each configuration.
func (b *loadBalancers) regionName(ctx context.Context) (string, error) {
	cfg := b.settings.Get()
	if cfg.Region != "" {
		return cfg.Region, nil
	}
	b.mu.Lock()
	known := b.region
	b.mu.Unlock()
	if known.isOf(cfg) {
		return known.name, nil
	}
	l, err := b.api.ListRegions(ctx, cloudsim.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing the regions of the cloud: %w", err)
	}
	if len(l.Items) != 1 {
		return "", fmt.Errorf("the cloud has %d regions: choose one in the cloud configuration (region)", len(l.Items))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.region = cloudRegion{cfg.URL, cfg.Project, cfg.TokenFile, l.Items[0].Name}
	return b.region.name, nil
}

// wantedBalancer returns the load balancer that the Service requests. For
// backends that get no traffic, it emits events on the Service.
func (b *loadBalancers) wantedBalancer(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) (cloudsim.CreateLoadBalancer, error) {
	backends, err := b.backendsOf(ctx, svc, nodes)
	if err != nil {
		return cloudsim.CreateLoadBalancer{}, err
	}
	b.reportSkipped(svc, backends.skipped)
	return requestedBalancer(cluster, svc, backends, b.defaultMode())
}

func name(svc *v1.Service) string { return svc.Namespace + "/" + svc.Name }
