package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// These limits apply to how often all watches of an owner together read the
// journal. Each commit wakes all watches. If hundreds of watches read after each commit,
// every other caller waits for the processor. An owner with few watches is not
// limited. With more watches, each watch reads later and gets more events at
// once.
const (
	fewWatches     = 8
	readsPerSecond = 1000
)

// watchShares limits the watches of each owner. The owner is the project of a
// caller that has roles only in projects, else the caller.
type watchShares struct {
	mu sync.Mutex
	by map[watchOwner]*watchShare
}

type watchOwner struct {
	project cloudsim.ProjectID
	caller  cloudsim.TokenID
}

type watchShare struct {
	reads   *rate.Limiter
	watches atomic.Int32
}

// join returns the share of the caller's owner. The caller calls leave when its
// watch ends.
func (w *watchShares) join(ctx context.Context) (share *watchShare, leave func()) {
	call, _ := CallOf(ctx)
	owner := watchOwner{caller: call.tokenOrAccount()}
	if p, bound := call.boundTo(); bound {
		owner = watchOwner{project: p}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if share = w.by[owner]; share == nil {
		share = &watchShare{reads: rate.NewLimiter(readsPerSecond, fewWatches)}
		if w.by == nil {
			w.by = map[watchOwner]*watchShare{}
		}
		w.by[owner] = share
	}
	share.watches.Add(1)
	return share, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if share.watches.Add(-1) == 0 {
			delete(w.by, owner)
		}
	}
}

// wait waits until the watch may read. It returns an error if ctx ends first.
func (s *watchShare) wait(ctx context.Context) error {
	if s.watches.Load() <= fewWatches {
		return nil
	}
	return s.reads.Wait(ctx)
}

// boundTo returns the project of a caller that has no role in all projects.
// Such callers of a project share the limits of the project.
func (c Call) boundTo() (cloudsim.ProjectID, bool) {
	return c.home, c.home != "" && !c.everywhere()
}

// BoundTo returns the project of the limits that apply to a call. It returns
// false for a caller that has a role in all projects.
func BoundTo(ctx context.Context) (cloudsim.ProjectID, bool) {
	c, _ := CallOf(ctx)
	return c.boundTo()
}
