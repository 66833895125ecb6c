package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// These constants limit how often all watches of one owner together read the journal (see
// watchShares). Each commit wakes all watches. Without the limit, hundreds of watches could read
// the journal after each commit, and all other callers would wait for the processor. No limit
// applies to an owner with at most fewWatches watches. If an owner has more watches, each watch
// waits before it reads the journal, and then reads several events in one call.
const (
	fewWatches     = 8
	readsPerSecond = 1000
)

// watchShares limits the watches of each owner. The owner of a watch is the project of the caller.
// If the caller has no project, or has a role in all projects, the owner is the caller.
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

// join counts a new watch of the caller in ctx. It returns the limits that this watch shares with
// all other watches of the same owner. Call leave when the watch ends.
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

// wait blocks until a watch may read the journal. It returns an error if ctx ends first.
func (s *watchShare) wait(ctx context.Context) error {
	if s.watches.Load() <= fewWatches {
		return nil
	}
	return s.reads.Wait(ctx)
}

// boundTo returns the project of the caller. It returns false for a caller without a project, and
// for a caller with a role in all projects. All callers for which boundTo returns the same project
// share the limits of this project.
func (c Call) boundTo() (cloudsim.ProjectID, bool) {
	return c.callerProject, c.callerProject != "" && !c.inAllProjects()
}

// BoundTo returns the project of the caller in ctx. The limits of this project apply to the call.
// BoundTo returns false for a caller without a project, and for a caller with a role in all
// projects.
func BoundTo(ctx context.Context) (cloudsim.ProjectID, bool) {
	c, _ := CallOf(ctx)
	return c.boundTo()
}
