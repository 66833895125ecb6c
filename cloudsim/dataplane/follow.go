package dataplane

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// follower reads the cloud's lists and journal, and tells the plane.
type follower struct {
	plane *plane
	rev   uint64 // every event up to here was handled
	// listed is the revision from which a kind is known by its list: events
	// up to it may be of resources that were gone when it was listed.
	listed map[cloudsim.ResourceKind]uint64
	stale  bool // no journal leads on from rev: list before watching
	known  bool // the cloud was listed once
	lost   bool // and cannot be followed now
	again  backoff
}

// follow keeps the plane as the cloud's records say until ctx ends.
func (p *plane) follow(ctx context.Context) error {
	f := &follower{plane: p, stale: true, again: backoff{first: 50 * time.Millisecond, most: 5 * time.Second}}
	for ; ctx.Err() == nil; f.again.wait(ctx) {
		err := f.read(ctx)
		kind := cloudsim.KindOf(err)
		if kind != cloudsim.Unavailable { // Gone, or something that a fresh look may get around
			f.stale = true
		}
		refused := kind == cloudsim.Invalid || kind == cloudsim.Unauthenticated || kind == cloudsim.Denied
		switch {
		case ctx.Err() != nil: // not lost, but left
		case refused && !f.known:
			return fmt.Errorf("data plane: %w", err)
		case !f.lost:
			p.log.Warn("cannot follow the cloud; forwarding goes on by what is known", "error", err)
			f.lost = true
		}
	}
	return nil
}

// read lists, if it must, and watches until that ends; it says why it ended.
func (f *follower) read(ctx context.Context) error {
	if f.stale {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	return f.watch(ctx)
}

// found notes that the cloud answers.
func (f *follower) found() {
	if f.lost {
		f.plane.log.Info("following the cloud again", "revision", f.rev)
	}
	f.known, f.lost = true, false
	f.again.reset()
}

// list makes the plane what the cloud's lists say. What is no longer listed is
// stopped before anything starts, because its ports may be in new hands.
func (f *follower) list(ctx context.Context) error {
	p := f.plane
	zones, zonesAt, err := all(ctx, p.cloud.ListZones)
	if err != nil {
		return fmt.Errorf("listing zones: %w", err)
	}
	instances, instancesAt, err := all(ctx, p.cloud.ListInstances)
	if err != nil {
		return fmt.Errorf("listing instances: %w", err)
	}
	lbs, lbsAt, err := all(ctx, p.cloud.ListLoadBalancers)
	if err != nil {
		return fmt.Errorf("listing load balancers: %w", err)
	}
	for _, id := range missing(p.balancers, lbs, func(lb cloudsim.LoadBalancer) cloudsim.LoadBalancerID { return lb.ID }) {
		p.deleteLoadBalancer(id)
	}
	for _, id := range missing(p.machines, instances, func(i cloudsim.Instance) cloudsim.InstanceID { return i.ID }) {
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
	f.rev = min(zonesAt, instancesAt, lbsAt)
	f.listed = map[cloudsim.ResourceKind]uint64{
		cloudsim.KindInstance: instancesAt, cloudsim.KindLoadBalancer: lbsAt, cloudsim.KindZone: zonesAt,
	}
	f.stale = false
	f.found()
	return nil
}

// all reads every page of a list, and the revision of the first.
func all[T any](ctx context.Context, page func(context.Context, cloudsim.ListOptions) (cloudsim.List[T], error)) ([]T, uint64, error) {
	l, err := page(ctx, cloudsim.ListOptions{})
	items, rev := l.Items, l.Revision
	for err == nil && l.Next != "" {
		l, err = page(ctx, cloudsim.ListOptions{After: l.Next})
		items = append(items, l.Items...)
	}
	return items, rev, err
}

// missing returns the keys of have that no item of list has.
func missing[K comparable, V, T any](have map[K]V, list []T, key func(T) K) []K {
	gone := maps.Clone(have)
	for _, item := range list {
		delete(gone, key(item))
	}
	return slices.Collect(maps.Keys(gone))
}

// watch handles events until they end, and says why they did.
func (f *follower) watch(ctx context.Context) error {
	for e, err := range f.plane.cloud.Watch(ctx, cloudsim.WatchOptions{
		Since: f.rev, Kinds: []cloudsim.ResourceKind{cloudsim.KindLoadBalancer, cloudsim.KindInstance, cloudsim.KindZone},
		Bookmark: time.Minute, // so that compaction does not overtake a quiet watch
	}) {
		if err != nil {
			return err
		}
		if e.Rev > f.listed[e.Kind] {
			if err := f.plane.handle(ctx, e); err != nil {
				return err
			}
		}
		f.rev = e.Rev
		f.found()
	}
	return cloudsim.Errorf(cloudsim.Unavailable, "the watch ended")
}

func (p *plane) handle(ctx context.Context, e cloudsim.Event) error {
	switch e.Kind {
	case cloudsim.KindInstance:
		if e.Type == cloudsim.EventDelete {
			p.deleteInstance(ctx, cloudsim.InstanceID(e.ID))
			return nil
		}
		return take(ctx, e, p.putInstance)
	case cloudsim.KindZone:
		if e.Type == cloudsim.EventDelete {
			return nil // a cloud that is emptied makes its zones anew
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
		return cloudsim.Errorf(cloudsim.Internal, "event %d, %s %s: %w", e.Rev, e.Kind, e.ID, err)
	}
	put(ctx, v)
	return nil
}

// backoff is a pause that doubles from first to most.
type backoff struct{ first, most, next time.Duration }

func (r *backoff) reset() { r.next = 0 }

func (r *backoff) wait(ctx context.Context) {
	r.next = min(max(r.first, 2*r.next), r.most)
	pause(ctx, r.next)
}

// pause waits for d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
