package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// How often the watches of one owner read the journal together. Each commit wakes
// all watches. If hundreds read after each commit, every other caller waits for
// the processor. An owner with few watches is not limited. With more, each watch
// reads later and gets more events at once.
const (
	fewWatches     = 8
	readsPerSecond = 1000
)

// watchShares limits the watches of each owner: of a project, for callers whose
// roles are all in projects, else of the caller.
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

// join returns the share of the caller's owner. Call leave at the end.
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

// wait returns when the watch may read, or the error of ctx.
func (s *watchShare) wait(ctx context.Context) error {
	if s.watches.Load() <= fewWatches {
		return nil
	}
	return s.reads.Wait(ctx)
}

// boundTo returns the project of a caller whose roles are all in projects. Such
// callers of a project share its limits.
func (c Call) boundTo() (cloudsim.ProjectID, bool) {
	return c.home, c.home != "" && !c.everywhere()
}

// BoundTo returns the project whose limits a call counts against; false for a
// caller that has a role in all projects.
func BoundTo(ctx context.Context) (cloudsim.ProjectID, bool) {
	c, _ := CallOf(ctx)
	return c.boundTo()
}
