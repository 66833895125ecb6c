package engine

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Watch yields the events after o.Since that the call may see, in order, until
// ctx ends. It yields an error once, last: Gone when o.Since was compacted, or is
// from before a state was loaded; Unauthenticated when the caller's token is no
// longer good, and Denied when it may no longer watch. Both are asked whenever
// something happened, and as often as bookmarks come.
func (e *Engine) Watch(ctx context.Context, o cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error] {
	return func(yield func(cloudsim.Event, error) bool) {
		rev, epoch := o.Since, uint64(0)
		var idle <-chan time.Time // never, without bookmarks
		if o.Bookmark > 0 {
			t := time.NewTicker(o.Bookmark)
			defer t.Stop()
			idle = t.C
		}
		told := o.Bookmark == 0 // that it has caught up
		share, leave := e.watchShares.join(ctx)
		defer leave()
		for {
			changed := e.store.Changed() // before reading: see Changed
			if share.wait(ctx) != nil {
				return // ctx ended
			}
			evs, next, end, err := e.events(ctx, rev, &epoch, o.Kinds)
			if err != nil {
				yield(cloudsim.Event{}, err)
				return
			}
			for _, ev := range evs {
				if !yield(ev, nil) {
					return
				}
			}
			rev = next
			if rev < end {
				continue
			}
			if !told {
				if told = true; !yield(cloudsim.Event{Rev: rev, Type: cloudsim.EventBookmark}, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-idle:
				told = false // once it was seen that the call still may hear it
			}
		}
	}
}

// sameEpoch is Gone when the contents of the file were replaced since the reader
// began, or since it last read: its revisions are of a life that is over. Epoch
// is 0 for who begins; who begins at 0 reads what was loaded too.
func sameEpoch(tx *store.Tx, rev uint64, epoch *uint64) error {
	now := tx.Epoch()
	if *epoch == 0 && (rev == 0 || rev >= now) {
		*epoch = max(now, 1) // 1 is a cloud whose contents never were replaced
	}
	if *epoch != max(now, 1) {
		return cloudsim.Errorf(cloudsim.Gone, "a state was loaded at revision %d, and revision %d is from before: list again and watch from there", now, rev)
	}
	return nil
}

// ListEvents returns a page of the events after o.Since that the call may see.
// Revision is how far it read. Gone is as for Watch; each page is a reader that
// begins, so only a watch reads on through what a load brought.
func (e *Engine) ListEvents(ctx context.Context, o cloudsim.WatchOptions) (l cloudsim.List[cloudsim.Event], err error) {
	if err := cloudsim.CheckKinds(o.Kinds); err != nil {
		return l, err
	}
	l.Items, l.Revision, _, err = e.events(ctx, o.Since, new(uint64), o.Kinds)
	if l.Items == nil {
		l.Items = []cloudsim.Event{}
	}
	return l, err
}

// events returns a page of events after rev, the revision that it read up to, and
// the revision of the newest event.
// All that it says is of one moment: the events, the life that they are of (see
// sameEpoch), and who may hear them.
func (e *Engine) events(ctx context.Context, rev uint64, epoch *uint64, kinds []cloudsim.ResourceKind) (evs []cloudsim.Event, next, end uint64, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		// First, because a load may have made the caller another token.
		if err := sameEpoch(tx, rev, epoch); err != nil {
			return err
		}
		if err := call.stillMay(tx); err != nil {
			return err
		}
		if rev == 0 {
			rev = tx.Floor() // all that the journal has
		}
		end = tx.Revision()
		if evs, next, err = tx.Since(rev, cloudsim.DefaultPageSize, kinds...); err != nil {
			return err
		}
		if next, err = overGap(tx, next); err != nil {
			return err
		}
		hears := call.hears()
		evs = slices.DeleteFunc(evs, func(ev cloudsim.Event) bool { return !hears(ev) })
		return nil
	})
	return evs, next, end, err
}

// overGap is the epoch for who has read all that was loaded: nothing is between,
// and who reads on from there is of this life.
func overGap(tx *store.Tx, read uint64) (uint64, error) {
	epoch := tx.Epoch()
	if read >= epoch {
		return read, nil
	}
	_, at, err := tx.Since(read, 1)
	if err == nil && (at == read || at >= epoch) {
		return epoch, nil
	}
	return read, err
}

// hears returns what reports whether the call may see an event: it must be
// permitted to read what the event is about.
func (c Call) hears() func(cloudsim.Event) bool {
	may := map[cloudsim.ResourceKind]bool{}
	return func(ev cloudsim.Event) bool {
		ok, known := may[ev.Kind]
		if !known {
			ok = c.mayRead(ev.Kind)
			may[ev.Kind] = ok
		}
		return ok && c.sees(&cloudsim.Meta{Project: ev.Project})
	}
}
