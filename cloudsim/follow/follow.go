// Package follow keeps a copy of the cloud's resources up to date. It lists the
// resources, watches from the list's revision on, and resumes a watch that broke.
// It gets the calls to the cloud as functions, so it works inside the cloud and
// in clients.
package follow

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/pause"
)

// Listed contains the kinds of a list and, for each kind, the revision at the
// beginning of its list.
type Listed map[cloudsim.ResourceKind]uint64

// Picture is a consumer of the cloud's resources. Run calls its methods one at a
// time.
type Picture interface {
	// List reads the lists of the cloud into the picture. Run then watches the
	// returned kinds from the returned revisions on.
	List(context.Context) (Listed, error)
	// Take applies an event that is newer than the list of its kind. A resource
	// from a later page of the list may come again. After an error Run lists
	// everything again.
	Take(context.Context, cloudsim.Event) error
	// Heard is called when the picture is consistent and the cloud has sent an
	// event, a bookmark or a list. A picture is consistent when the watch has
	// reached the list revision of every kind. The argument again is true for the
	// first call after Lost.
	Heard(again bool)
	// Lost is called with the reason when Run cannot follow the cloud. The
	// argument news is true for the first failure after a success, and for the
	// very first failure.
	Lost(err error, news bool)
}

// Watch is the type of the client's Watch method.
type Watch = func(context.Context, cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error]

// bookmark is the longest time without a message from a cloud in the same
// process. A remote cloud chooses this time itself. Bookmarks advance a quiet
// watch, so that the journal's compaction does not overtake it.
const bookmark = time.Minute

// Run keeps p up to date until ctx ends. When a watch breaks, Run waits according
// to the backoff between and resumes the watch. Every event of the watch resets
// the backoff. Run lists everything again if the journal no longer contains the
// revision, and after every error other than Unavailable and Exhausted.
func Run(ctx context.Context, watch Watch, p Picture, between pause.Backoff) {
	f := follower{watch: watch, picture: p, between: between}
	for ; ctx.Err() == nil; f.between.Wait(ctx) {
		err := f.read(ctx)
		if ctx.Err() != nil {
			return // the caller ended Run, so this is no loss
		}
		if kind := cloudsim.KindOf(err); kind != cloudsim.Unavailable && kind != cloudsim.Exhausted {
			f.listed = nil
		}
		news := !f.lost
		f.lost = true
		p.Lost(err, news)
	}
}

type follower struct {
	watch   Watch
	picture Picture
	between pause.Backoff

	listed Listed // nil means that a list is needed before the watch
	rev    uint64 // revision of the last handled event
	lost   bool
}

// read lists if necessary and watches until the watch ends. It always returns an
// error with the reason.
func (f *follower) read(ctx context.Context) error {
	if f.listed == nil {
		listed, err := f.picture.List(ctx)
		if err != nil {
			return err
		}
		f.listed, f.rev = listed, slices.Min(slices.Collect(maps.Values(listed)))
		f.hear()
	}
	for e, err := range f.watch(ctx, cloudsim.WatchOptions{Since: f.rev, Kinds: slices.Sorted(maps.Keys(f.listed)), Bookmark: bookmark}) {
		if err != nil {
			return err
		}
		f.between.Reset()
		if e.Type != cloudsim.EventBookmark && e.Rev > f.listed[e.Kind] {
			if err := f.picture.Take(ctx, e); err != nil {
				return cloudsim.Errorf(cloudsim.Internal, "event %d, %s %s: %w", e.Rev, e.Kind, e.ID, err)
			}
		}
		f.rev = e.Rev
		f.hear()
	}
	return cloudsim.Errorf(cloudsim.Unavailable, "the watch ended")
}

// hear calls Heard if the watch has reached the list revision of every kind.
func (f *follower) hear() {
	for _, at := range f.listed {
		if at > f.rev {
			return
		}
	}
	f.picture.Heard(f.lost)
	f.lost = false
}
