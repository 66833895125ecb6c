// Package informer keeps a copy of the cloud's resources up to date. It lists the resources, and
// then watches them from the revision of the list. If the watch ends, the package resumes the watch
// from the last revision, or lists the resources again. The caller passes the functions that call
// the cloud, so the package works inside the cloud and in clients.
package informer

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// Listed contains a revision for each listed kind. This is the revision of the
// cloud at the start of the call that listed this kind.
type Listed map[cloudsim.ResourceKind]uint64

// Handler keeps a copy of the cloud's resources. Run calls the methods of a Handler one at a time.
type Handler interface {
	// List calls the list methods of the cloud, and replaces the content of the handler's copy with
	// the results. Run then watches the returned kinds from the returned revisions. The result must
	// contain at least one kind.
	List(context.Context) (Listed, error)
	// Take applies an event that is newer than the list of its kind. The revision of a list is the
	// revision of its first page. A later page of the list can already contain the event's change,
	// so Take must accept an event that changes nothing. If Take returns an error, Run calls List
	// again.
	Take(context.Context, cloudsim.Event) error
	// OnSync tells the handler that its copy is consistent. After each list, event or bookmark, Run
	// calls OnSync if the watch has reached the revision of each list. The parameter recovered is
	// true for the first call after OnError.
	OnSync(recovered bool)
	// Run calls OnError with the reason when it cannot watch the cloud. The parameter news is true
	// for the first failure of Run, and for the first failure after each call of OnSync.
	OnError(err error, news bool)
}

// Watch is the type of the client's Watch method.
type Watch = func(context.Context, cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error]

// bookmark is the time between two bookmarks of a watch. It applies only if the cloud runs in the
// same process, because a remote cloud chooses this time itself. A bookmark advances the revision
// of a watch that gets no events. Without bookmarks, the cloud's journal could drop the events
// after this revision. Run could then not resume the watch.
const bookmark = time.Minute

// Run keeps the handler's copy of the resources up to date until ctx ends. When a watch ends with
// the error Unavailable or Exhausted, Run waits and then resumes the watch. After any other error,
// for example Gone, Run waits and then lists everything again. The parameter between is the backoff
// for these waits. Every event of the watch resets the backoff.
func Run(ctx context.Context, watch Watch, h Handler, between backoff.Backoff) {
	r := reader{watch: watch, handler: h, between: between}
	for ; ctx.Err() == nil; r.between.Wait(ctx) {
		err := r.listAndWatch(ctx)
		if ctx.Err() != nil {
			return // the caller ended Run, so this is no failure
		}
		if kind := cloudsim.KindOf(err); kind != cloudsim.Unavailable && kind != cloudsim.Exhausted {
			r.listed = nil
		}
		news := !r.lost
		r.lost = true
		h.OnError(err, news)
	}
}

type reader struct {
	watch   Watch
	handler Handler
	between backoff.Backoff

	listed Listed // nil means that listAndWatch must list the resources before it watches them
	rev    uint64 // revision from which the next watch starts
	lost   bool
}

// listAndWatch lists the resources, unless a list of an earlier call is still valid. Then it
// watches the resources until the watch ends. It always returns an error, which contains the reason
// for the end.
func (r *reader) listAndWatch(ctx context.Context) error {
	if r.listed == nil {
		listed, err := r.handler.List(ctx)
		if err != nil {
			return err
		}
		r.listed, r.rev = listed, slices.Min(slices.Collect(maps.Values(listed)))
		r.sync()
	}
	for e, err := range r.watch(ctx, cloudsim.WatchOptions{Since: r.rev, Kinds: slices.Sorted(maps.Keys(r.listed)), Bookmark: bookmark}) {
		if err != nil {
			return err
		}
		r.between.Reset()
		if e.Type != cloudsim.EventBookmark && e.Rev > r.listed[e.Kind] {
			if err := r.handler.Take(ctx, e); err != nil {
				return cloudsim.Errorf(cloudsim.Internal, "cannot process event %d (%s %s): %w", e.Rev, e.Kind, e.ID, err)
			}
		}
		r.rev = e.Rev
		r.sync()
	}
	return cloudsim.Errorf(cloudsim.Unavailable, "the watch ended")
}

// sync calls OnSync if the watch has reached the revision of each list.
func (r *reader) sync() {
	for _, at := range r.listed {
		if at > r.rev {
			return
		}
	}
	r.handler.OnSync(r.lost)
	r.lost = false
}
