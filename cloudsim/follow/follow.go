// Package follow keeps a picture of the cloud: it lists, watches from there, and
// takes a watch that broke up where it ended. It knows no cloud but by the calls
// that it is given, so who runs inside the cloud and who calls it follow alike.
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

// Listed are the kinds that a list was made of, and of each the revision at its
// beginning.
type Listed map[cloudsim.ResourceKind]uint64

// Picture is what somebody makes of the cloud. Its methods are called one at a
// time.
type Picture interface {
	// List makes the picture what the cloud's lists say. The kinds that it
	// returns are watched from there.
	List(context.Context) (Listed, error)
	// Take applies an event that came after the list of its kind. What was
	// listed on a later page may come again. After an error everything is
	// listed anew.
	Take(context.Context, cloudsim.Event) error
	// Heard is called whenever the cloud said something, also that nothing
	// changed, as soon as all that was listed is of one moment. Again says that
	// it is the first time after Lost.
	Heard(again bool)
	// Lost is told why the cloud cannot be followed now; news says that it
	// could until then, or that it never could yet.
	Lost(err error, news bool)
}

// Watch is the cloud's.
type Watch = func(context.Context, cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error]

// bookmark is how long a cloud in this process may say nothing; across the wire
// the cloud chooses. Bookmarks keep a quiet watch ahead of the journal's
// compaction.
const bookmark = time.Minute

// Run keeps p as the cloud is until ctx ends. When a watch breaks it waits as
// between says, which begins anew whenever the cloud says something, and resumes;
// it lists again when the journal no longer reaches back, and after any failure
// that is more than the cloud's being away or busy.
func Run(ctx context.Context, watch Watch, p Picture, between pause.Backoff) {
	f := follower{watch: watch, picture: p, between: between}
	for ; ctx.Err() == nil; f.between.Wait(ctx) {
		err := f.read(ctx)
		if ctx.Err() != nil {
			return // the cloud is not lost, but left
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

	listed Listed // nil: list before watching
	rev    uint64 // every event up to here was handled
	lost   bool
}

// read lists, if it must, and watches until that ends; it says why it ended.
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

// hear tells the picture that it is of one moment, if it is.
func (f *follower) hear() {
	for _, at := range f.listed {
		if at > f.rev {
			return
		}
	}
	f.picture.Heard(f.lost)
	f.lost = false
}
