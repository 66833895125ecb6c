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
	// balancerDeadline bounds one call of the framework, which sets none.
	balancerDeadline = 30 * time.Second
	// retryAfter is when the framework comes back for work in progress.
	retryAfter = time.Second
	// attempts bounds how often a run begins anew because another was quicker.
	attempts = 5
	// unreported is how many polls a load balancer that is active may take to
	// say where its listeners can be reached; a cloud that runs no data plane
	// never says it.
	unreported = 6
)

// patience is how a run waits for the cloud before it hands the rest to the
// framework's queue: it polls for about three seconds. Without it, every
// Service that is being made would show a Warning about a failure; with more of
// it, one load balancer that hangs would keep a worker from the others.
var patience = wait.Backoff{Duration: 25 * time.Millisecond, Factor: 1.5, Steps: 11}

// balancers makes load balancers for Services. It is a
// cloudprovider.LoadBalancer. It keeps nothing but the region's name, and whose
// finalizers are: what is there, the cloud says, every time.
type balancers struct {
	log        *slog.Logger
	api        *client.Client
	events     record.EventRecorder
	settings   *Settings
	mirror     *mirror
	endpoints  endpoints
	whose      *claims
	patience   wait.Backoff
	unreported int

	mu     sync.Mutex
	region string

	sharing chan struct{} // holds one: who joins or leaves a shared load balancer
}

// alone waits until nobody else joins or leaves a shared load balancer.
func (b *balancers) alone(ctx context.Context) (done func(), err error) {
	select {
	case b.sharing <- struct{}{}:
		return func() { <-b.sharing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for others who share a load balancer: %w", context.Cause(ctx))
	}
}

// GetLoadBalancerName returns the name that the Service's load balancer has in
// the cloud.
func (b *balancers) GetLoadBalancerName(_ context.Context, _ string, svc *v1.Service) string {
	return loadBalancerName(svc)
}

// GetLoadBalancer reports whether any of the Service's load balancer is left:
// true while it is being deleted, because the framework lets go of the Service
// at false. One that is missing is no error, or the Service could never go; but
// for a Service whose finalizer may be another's.
func (b *balancers) GetLoadBalancer(ctx context.Context, cluster string, svc *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	lb, found, err := b.find(ctx, cluster, svc)
	switch {
	case err != nil:
		return nil, false, err
	case !found:
		return nil, false, b.whose.doubt(svc)
	}
	b.whose.set(svc, true)
	return status(svc, lb), true, nil
}

// EnsureLoadBalancer makes the Service's load balancer what the Service and the
// nodes say, creating it if need be, and returns its address once it is active.
// A run that finds everything in place changes nothing. A Service that asks for
// what the cloud does not have is refused whole, and one that is being deleted
// gets nothing new. While the cloud is at work the error is an api.RetryError.
func (b *balancers) EnsureLoadBalancer(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if svc.DeletionTimestamp != nil {
		return svc.Status.LoadBalancer.DeepCopy(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	want, err := b.want(ctx, cluster, svc, nodes)
	if err != nil {
		return nil, err
	}
	lb, err := b.converge(ctx, cluster, svc, want)
	if err != nil {
		return nil, err
	}
	if lb, err = b.active(ctx, lb); err != nil {
		return nil, err
	}
	b.tellWhere(svc, lb)
	return status(svc, lb), nil
}

// EnsureLoadBalancerDeleted deletes the Service's load balancer and waits a
// little for it to be gone. Nil means gone. Until then there is an error, which
// keeps the finalizer and so the Service. It needs nothing of the Service but
// its UID.
func (b *balancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, svc *v1.Service) error {
	ctx, cancel := context.WithTimeout(ctx, balancerDeadline)
	defer cancel()
	for range attempts {
		lb, found, err := b.find(ctx, cluster, svc)
		if err != nil || !found {
			return err
		}
		switch err := b.giveUp(ctx, lb, svc); cloudsim.KindOf(err) {
		case cloudsim.NotFound:
			return nil
		case cloudsim.Stale:
			continue // somebody joined, or left
		default:
			if err != nil {
				return fmt.Errorf("load balancer %s: deleting it: %w", lb.ID, err)
			}
		}
		if shared(lb) && len(members(lb)) > 1 {
			return nil // it stays for the others
		}
		return b.gone(ctx, lb)
	}
	return fmt.Errorf("load balancer of %s: it changes all the time", name(svc))
}

// giveUp deletes lb, or the Service's share of it. Both may be under way.
func (b *balancers) giveUp(ctx context.Context, lb cloudsim.LoadBalancer, svc *v1.Service) error {
	switch {
	case lb.State == cloudsim.LoadBalancerDeleting:
		return nil
	case shared(lb):
		done, err := b.alone(ctx)
		if err != nil {
			return err
		}
		defer done()
		return b.leave(ctx, lb, string(svc.UID))
	}
	_, err := b.api.DeleteLoadBalancer(ctx, lb.ID)
	return err
}

// find returns the Service's load balancer: its own, or the one that it shares,
// whatever its annotations ask for now. What has its name and is not its own is
// an error.
func (b *balancers) find(ctx context.Context, cluster string, svc *v1.Service) (cloudsim.LoadBalancer, bool, error) {
	lb, found, err := b.own(ctx, cluster, svc)
	if err != nil || found {
		return lb, found, err
	}
	return b.shareOf(ctx, cluster, svc)
}

// own returns the load balancer that is the Service's alone.
func (b *balancers) own(ctx context.Context, cluster string, svc *v1.Service) (cloudsim.LoadBalancer, bool, error) {
	lb, found, err := b.named(ctx, loadBalancerName(svc))
	return lb, found, errors.Join(err, checkOwner(lb, cluster, svc))
}

// shareOf returns the load balancer that the Service shares. The cloud looks at
// all of its load balancers for that.
func (b *balancers) shareOf(ctx context.Context, cluster string, svc *v1.Service) (lb cloudsim.LoadBalancer, found bool, err error) {
	l, err := b.api.ListLoadBalancers(ctx, cloudsim.ListOptions{Labels: map[string]string{
		LabelCluster: cluster, labelMemberPrefix + string(svc.UID): name(svc),
	}})
	if err != nil || len(l.Items) == 0 {
		return lb, false, err
	}
	return l.Items[0], true, nil
}

// named returns the load balancer of that name.
func (b *balancers) named(ctx context.Context, n string) (none cloudsim.LoadBalancer, found bool, err error) {
	l, err := b.api.ListLoadBalancers(ctx, cloudsim.ListOptions{Name: n})
	switch {
	case err != nil:
		return none, false, fmt.Errorf("looking for load balancer %s: %w", n, err)
	case len(l.Items) == 0:
		return none, false, nil
	case len(l.Items) > 1:
		return none, false, fmt.Errorf("%s and %s are both named %s: choose a project in the cloud configuration", l.Items[0].ID, l.Items[1].ID, n)
	case l.Items[0].Name != n:
		return none, false, fmt.Errorf("looking for load balancer %s: the cloud answered with %q", n, l.Items[0].Name)
	}
	return l.Items[0], true, nil
}

// converge brings the load balancer from whatever is there to want, beginning
// anew when somebody else changed it in between.
func (b *balancers) converge(ctx context.Context, cluster string, svc *v1.Service, want cloudsim.CreateLoadBalancer) (lb cloudsim.LoadBalancer, err error) {
	if want.Labels[LabelShared] != "" {
		done, err := b.alone(ctx)
		if err != nil {
			return lb, err
		}
		defer done()
	}
	for range attempts {
		var again bool
		if lb, again, err = b.step(ctx, cluster, svc, want); err == nil && !again {
			return lb, nil
		}
		if known, ok := knownTargets(want.Targets, err); ok {
			b.log.Warn("targets are left out", "service", name(svc), "reason", err)
			want.Targets = known
			again = true
		}
		switch cloudsim.KindOf(err) {
		case cloudsim.Exists, cloudsim.Stale, cloudsim.NotFound:
			again = true // another run, or a person, was quicker: look again
		}
		if !again {
			break
		}
	}
	if _, ok := errors.AsType[*api.RetryError](err); ok {
		return lb, err
	}
	if err == nil {
		err = errors.New("it changes all the time")
	}
	return lb, fmt.Errorf("load balancer %s: %w", want.Name, err)
}

// step looks at what is there and does one thing about it; again says that
// there is more to do.
func (b *balancers) step(ctx context.Context, cluster string, svc *v1.Service, want cloudsim.CreateLoadBalancer) (lb cloudsim.LoadBalancer, again bool, err error) {
	lb, found, err := b.own(ctx, cluster, svc)
	if err == nil && !found && !b.sharesNone(svc) {
		lb, found, err = b.shareOf(ctx, cluster, svc)
	}
	if err == nil && !found && want.Labels[LabelShared] != "" {
		lb, found, err = b.named(ctx, want.Name)
	}
	switch {
	case err != nil:
		return lb, false, err
	case !found:
		lb, err = b.create(ctx, want)
		return lb, false, err
	case lb.State == cloudsim.LoadBalancerDeleting:
		err = b.gone(ctx, lb)
		return lb, err == nil, err // when it is, there is room for its successor
	case lb.Name != want.Name:
		return lb, false, fmt.Errorf("the Service is on %s (%s), and annotation %s cannot be changed: delete the Service and create it again", lb.ID, lb.Name, AnnotationLoadBalancerShared)
	}
	if want, err = joined(lb, want, string(svc.UID)); err != nil || same(lb, want) {
		return lb, false, err
	}
	lb, err = b.update(ctx, lb, want)
	return lb, false, err
}

// sharesNone reports whether the mirror, if it may be believed, shows no load
// balancer that the Service shares: else a thousand new Services would have the
// cloud look at each other's load balancers a million times. That a share has
// come about in the instant before costs no more than the orphan that it becomes;
// where a Service would be let go at the answer, the cloud is asked.
func (b *balancers) sharesNone(svc *v1.Service) bool {
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

// create is safe to repeat: the name is unique in the cloud, and asking again
// in the same words returns the first.
func (b *balancers) create(ctx context.Context, want cloudsim.CreateLoadBalancer) (lb cloudsim.LoadBalancer, err error) {
	if want.Region, err = b.regionName(ctx); err != nil {
		return lb, err
	}
	return b.api.CreateLoadBalancer(ctx, want)
}

// update replaces the rules in place, if nobody did since lb was read, and
// keeps the labels that other people put there.
func (b *balancers) update(ctx context.Context, lb cloudsim.LoadBalancer, want cloudsim.CreateLoadBalancer) (cloudsim.LoadBalancer, error) {
	labels := map[string]string{}
	for _, from := range []map[string]string{lb.Labels, want.Labels} {
		for k, v := range from {
			labels[k] = v
		}
	}
	return b.api.UpdateLoadBalancer(ctx, lb.ID, cloudsim.UpdateLoadBalancer{
		Labels: labels, Scheme: want.Scheme, Families: want.Families, Addresses: want.Addresses, LoadBalancerSpec: want.LoadBalancerSpec,
	}, lb.Revision)
}

// active waits until lb forwards and its listeners are known.
func (b *balancers) active(ctx context.Context, lb cloudsim.LoadBalancer) (cloudsim.LoadBalancer, error) {
	polls := 0
	err := wait.ExponentialBackoffWithContext(ctx, b.patience, func(ctx context.Context) (bool, error) {
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
		return lb.Reported() || polls > b.unreported, nil
	})
	switch {
	case err != nil && !ranOut(err):
		return lb, fmt.Errorf("load balancer %s: waiting until it is active: %w", lb.ID, err)
	case lb.State == cloudsim.LoadBalancerActive, lb.State == cloudsim.LoadBalancerUpdating:
		return lb, nil
	}
	return lb, api.NewRetryError(fmt.Sprintf("load balancer %s (%s) is %s", lb.ID, lb.IP, lb.State), retryAfter)
}

// ranOut reports whether a wait has lasted long enough, though the cloud answers.
// That of a call that was not answered is a deadline too, and is a failure.
func ranOut(err error) bool {
	return wait.Interrupted(err) && cloudsim.KindOf(err) != cloudsim.Unavailable
}

// gone waits until lb is deleted.
func (b *balancers) gone(ctx context.Context, lb cloudsim.LoadBalancer) error {
	err := wait.ExponentialBackoffWithContext(ctx, b.patience, func(ctx context.Context) (bool, error) {
		_, err := b.api.GetLoadBalancer(ctx, lb.ID)
		if errors.Is(err, cloudsim.NotFound) {
			return true, nil
		}
		return false, err
	})
	switch {
	case err == nil:
		return nil
	case ranOut(err):
		return api.NewRetryError(fmt.Sprintf("load balancer %s is still being deleted", lb.ID), retryAfter)
	}
	return fmt.Errorf("load balancer %s: waiting until it is deleted: %w", lb.ID, err)
}

// mode is that of listeners whose Service does not choose one.
func (b *balancers) mode() cloudsim.ListenerMode { return modes[b.settings.Get().ipMode()] }

// regionName is the region to make load balancers in: the configured one, else
// the cloud's only one, asked for once.
func (b *balancers) regionName(ctx context.Context) (string, error) {
	if configured := b.settings.Get().Region; configured != "" {
		return configured, nil
	}
	b.mu.Lock()
	known := b.region
	b.mu.Unlock()
	if known != "" {
		return known, nil
	}
	l, err := b.api.ListRegions(ctx, cloudsim.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("looking for the cloud's region: %w", err)
	}
	if len(l.Items) != 1 {
		return "", fmt.Errorf("the cloud has %d regions: choose one in the cloud configuration (region)", len(l.Items))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.region = l.Items[0].Name
	return b.region, nil
}

func (b *balancers) forgetRegion() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.region = ""
}

// want is the load balancer that the Service asks for. The Service is told of
// what is left out of it.
func (b *balancers) want(ctx context.Context, cluster string, svc *v1.Service, nodes []*v1.Node) (cloudsim.CreateLoadBalancer, error) {
	to, err := b.backends(ctx, svc, nodes)
	if err != nil {
		return cloudsim.CreateLoadBalancer{}, err
	}
	b.tellLeft(svc, to.left)
	return wanted(cluster, svc, to, b.mode())
}

func name(svc *v1.Service) string { return svc.Namespace + "/" + svc.Name }
