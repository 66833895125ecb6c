package dataplane

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/informer"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// follower is the informer's handler. It applies the cloud's lists and events to the plane.
type follower struct {
	*plane
	known   bool  // true after the first complete list
	refused error // the cloud's refusal before the first list
	leave   context.CancelFunc
}

// follow applies the cloud's records to the plane until ctx ends. It returns an error if the cloud
// refuses the first list calls (see OnError).
func (p *plane) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &follower{plane: p, leave: cancel}
	informer.Run(ctx, p.cloud.Watch, f, backoff.Backoff{First: 50 * time.Millisecond, Most: 5 * time.Second})
	return f.refused
}

// OnSync logs that the cloud answers again after an outage.
func (f *follower) OnSync(recovered bool) {
	if recovered {
		f.log.Info("the watch of the cloud works again")
	}
}

// OnError logs the first error of an outage. The plane continues with its last known state. If the
// cloud answers Invalid, Unauthenticated or Denied before the first complete list, OnError ends the
// informer.
func (f *follower) OnError(err error, news bool) {
	switch kind := cloudsim.KindOf(err); {
	case !f.known && (kind == cloudsim.Invalid || kind == cloudsim.Unauthenticated || kind == cloudsim.Denied):
		f.refused = fmt.Errorf("data plane: %w", err)
		f.leave()
	case news:
		f.log.Warn("the watch of the cloud failed; forwarding continues with the known load balancers", "error", err)
	}
}

// List applies the cloud's lists to the plane. It stops removed load balancers
// before it starts new load balancers, because a new load balancer may have a
// port of a removed load balancer.
func (f *follower) List(ctx context.Context) (informer.Listed, error) {
	p := f.plane
	zones, zonesAt, err := cloudsim.All(ctx, p.cloud.ListZones, cloudsim.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing zones: %w", err)
	}
	instances, instancesAt, err := cloudsim.All(ctx, p.cloud.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	lbs, lbsAt, err := cloudsim.All(ctx, p.cloud.ListLoadBalancers, cloudsim.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	for _, id := range notListed(p.balancers, lbs, func(lb cloudsim.LoadBalancer) cloudsim.LoadBalancerID { return lb.ID }) {
		p.deleteLoadBalancer(id)
	}
	for _, id := range notListed(p.machines, instances, func(i cloudsim.Instance) cloudsim.InstanceID { return i.ID }) {
		p.deleteInstance(ctx, id)
	}
	p.forgetRevisions()
	for _, z := range zones {
		p.putZone(ctx, z)
	}
	for _, i := range instances {
		p.putInstance(ctx, i)
	}
	for _, lb := range lbs {
		p.putLoadBalancer(ctx, lb)
	}
	f.known = true
	return informer.Listed{cloudsim.KindInstance: instancesAt, cloudsim.KindLoadBalancer: lbsAt, cloudsim.KindZone: zonesAt}, nil
}

// notListed returns the keys of the map named known, without the keys of the items in list.
func notListed[K comparable, V, T any](known map[K]V, list []T, key func(T) K) []K {
	missing := maps.Clone(known)
	for _, item := range list {
		delete(missing, key(item))
	}
	return slices.Collect(maps.Keys(missing))
}

// Take applies an event.
func (f *follower) Take(ctx context.Context, e cloudsim.Event) error {
	p := f.plane
	switch e.Kind {
	case cloudsim.KindInstance:
		if e.Type == cloudsim.EventDelete {
			p.deleteInstance(ctx, cloudsim.InstanceID(e.ID))
			return nil
		}
		return take(ctx, e, p.putInstance)
	case cloudsim.KindZone:
		if e.Type == cloudsim.EventDelete {
			return nil // a cloud that deletes its records creates its zones again
		}
		return take(ctx, e, p.putZone)
	case cloudsim.KindLoadBalancer:
		if e.Type == cloudsim.EventDelete {
			p.deleteLoadBalancer(cloudsim.LoadBalancerID(e.ID))
			return nil
		}
		return take(ctx, e, p.putLoadBalancer)
	}
	return nil
}

func take[T any](ctx context.Context, e cloudsim.Event, put func(context.Context, T)) error {
	var v T
	if err := json.Unmarshal(e.Object, &v); err != nil {
		return err
	}
	put(ctx, v)
	return nil
}
