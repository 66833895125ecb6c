package engine

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Watch yields the events that the caller may see and that come after the
// revision o.Since. It yields them in the order of their revisions, until ctx
// ends. It yields an error at most once, as the last item:
//   - Gone: the journal no longer has the events after o.Since, or LoadState
//     or ResetState has replaced the cloud's contents after o.Since.
//   - Unauthenticated: the caller's credential is no longer valid.
//   - Denied: the caller may no longer watch.
//
// After each commit and before each bookmark, Watch checks whether the caller may still watch.
func (e *Engine) Watch(ctx context.Context, o cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error] {
	return func(yield func(cloudsim.Event, error) bool) {
		rev, epoch := o.Since, uint64(0)
		read := func() (evs []cloudsim.Event, more bool, err error) {
			evs, next, end, err := e.readEvents(ctx, rev, &epoch, o)
			if err == nil {
				rev = next
			}
			return evs, next < end, err
		}
		mark := func() cloudsim.Event { return cloudsim.Event{Rev: rev, Type: cloudsim.EventBookmark} }
		watch(ctx, &e.watchShares, o.Bookmark, e.store.Changed, read, mark)(yield)
	}
}

// watch repeatedly calls readItems and yields the items that readItems returns, until ctx ends. If
// readItems returns an error, watch yields the error as the last item. If readItems reports that
// more items follow, watch calls readItems again at once. Otherwise watch waits until a change
// closes the channel from changedChan, or until the period ends.
//
// watch yields a bookmark before its first wait, and then one in each period. Before each bookmark,
// it calls readItems. If period is 0, watch yields no bookmarks.
func watch[T any](ctx context.Context, shares *watchShares, period time.Duration, changedChan func() <-chan struct{}, readItems func() (items []T, more bool, err error), newBookmark func() T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var idle <-chan time.Time // nil if the watch has no bookmarks; nothing ever arrives on a nil channel
		if period > 0 {
			t := time.NewTicker(period)
			defer t.Stop()
			idle = t.C
		}
		bookmarkSent := period == 0 // watch has sent a bookmark since the last tick, or bookmarks are off
		share, leave := shares.join(ctx)
		defer leave()
		for {
			next := changedChan() // this call must precede the read: see Store.Changed
			if share.wait(ctx) != nil {
				return // ctx ended
			}
			items, more, err := readItems()
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if more {
				continue
			}
			if !bookmarkSent {
				if bookmarkSent = true; !yield(newBookmark(), nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-next:
			case <-idle:
				bookmarkSent = false // the next round checks the permissions and then sends a bookmark
			}
		}
	}
}

// sameEpoch returns Gone if LoadState or ResetState has replaced the contents of the store since
// the reader began. The epoch of the store is the revision of the last replacement. For a new
// reader, *readerEpoch is 0, and sameEpoch stores the present epoch in *readerEpoch.
//
// A new reader can begin at revision 0, at the epoch, or at a later revision. A reader that begins
// at revision 0 also reads the journal that LoadState has loaded. If a new reader begins at a
// revision between 0 and the epoch, sameEpoch returns Gone, because this revision can belong to the
// replaced journal.
func sameEpoch(tx *store.Tx, rev uint64, readerEpoch *uint64) error {
	now := tx.Epoch()
	if *readerEpoch == 0 && (rev == 0 || rev >= now) {
		*readerEpoch = max(now, 1) // 1 means that the contents were never replaced
	}
	if *readerEpoch != max(now, 1) {
		return cloudsim.Errorf(cloudsim.Gone, "a saved state or a reset replaced the contents of the cloud at revision %d, which is after the requested revision %d: list the resources again, and watch from the revision of that list", now, rev)
	}
	return nil
}

// ListEvents returns a page of the events that the caller may see and that come after the revision
// o.Since. The Revision of the list is the last revision that ListEvents has read. ListEvents
// returns Gone in the same cases as Watch, and Invalid for an unknown kind in o.Kinds.
//
// LoadState also loads the journal of the saved state. ListEvents returns only the first page of
// these loaded events. For a later page, it returns Gone, because each call counts as a new reader
// (see sameEpoch). A watch counts as one reader, so a watch from revision 0 can read all loaded
// events.
func (e *Engine) ListEvents(ctx context.Context, o cloudsim.WatchOptions) (l cloudsim.List[cloudsim.Event], err error) {
	if err := cloudsim.CheckKinds(o.Kinds); err != nil {
		return l, err
	}
	l.Items, l.Revision, _, err = e.readEvents(ctx, o.Since, new(uint64), o)
	if l.Items == nil {
		l.Items = []cloudsim.Event{}
	}
	return l, err
}

// ListNewestEvents returns a page of the events that the caller may see, newest first. The field
// Next of the result is the value of o.Before for the next page. ListNewestEvents reads the journal
// backwards until the page is full. It returns Invalid for an unknown kind in o.Kinds.
func (e *Engine) ListNewestEvents(ctx context.Context, o cloudsim.EventOptions) (l cloudsim.List[cloudsim.Event], err error) {
	if err := cloudsim.CheckKinds(o.Kinds); err != nil {
		return l, err
	}
	call, err := callOf(ctx)
	if err != nil {
		return l, err
	}
	limit := o.Limit
	if limit <= 0 {
		limit = cloudsim.DefaultPageSize
	}
	limit = min(limit, cloudsim.MaxPageSize)
	var words []string // texts that each selected event has in its JSON
	for _, word := range []string{o.ID, o.RequestID} {
		if word != "" {
			words = append(words, word)
		}
	}
	l.Items = []cloudsim.Event{}
	err = e.store.View(func(tx *store.Tx) error {
		l.Revision = tx.Revision()
		hears := call.eventFilter()
		return tx.Newest(o.Before, words, func(ev cloudsim.Event) bool {
			switch {
			case !hears(ev), o.ID != "" && ev.ID != o.ID, o.RequestID != "" && ev.RequestID != o.RequestID,
				len(o.Kinds) > 0 && !slices.Contains(o.Kinds, ev.Kind):
				return true
			case len(l.Items) == limit:
				l.Next = strconv.FormatUint(l.Items[limit-1].Rev, 10)
				return false
			}
			l.Items = append(l.Items, ev)
			return true
		})
	})
	return l, err
}

// readEvents returns a page of the events after revision rev that the caller may see. It also
// returns the last revision that it has read, and the newest revision in the journal. In the same
// transaction, readEvents checks the epoch (see sameEpoch) and the caller's permissions.
func (e *Engine) readEvents(ctx context.Context, rev uint64, epoch *uint64, o cloudsim.WatchOptions) (evs []cloudsim.Event, next, end uint64, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		// The check of the epoch must come first. After a load, the caller's token may be missing,
		// or its id may belong to another token. The check of the permissions could then return
		// Unauthenticated or Denied instead of Gone.
		if err := sameEpoch(tx, rev, epoch); err != nil {
			return err
		}
		if err := call.stillMay(tx); err != nil {
			return err
		}
		if rev == 0 {
			rev = tx.Floor() // read all events of the journal
		}
		end = tx.Revision()
		if evs, next, err = tx.Since(rev, cloudsim.DefaultPageSize, o.Kinds...); err != nil {
			return err
		}
		if next, err = overGap(tx, next); err != nil {
			return err
		}
		hears := call.eventFilter()
		evs = slices.DeleteFunc(evs, func(ev cloudsim.Event) bool { return !hears(ev) || o.ID != "" && ev.ID != o.ID })
		return nil
	})
	return evs, next, end, err
}

// overGap returns the revision at which a reader continues after lastRead. The journal has no
// events between the last event of a loaded state and the epoch (see sameEpoch). If the reader has
// read this last event, overGap returns the epoch. Otherwise it returns lastRead.
//
// A client that later continues from the returned revision counts as a new reader. So from a
// revision between 0 and the epoch, the client would get Gone.
func overGap(tx *store.Tx, lastRead uint64) (uint64, error) {
	epoch := tx.Epoch()
	if lastRead >= epoch {
		return lastRead, nil
	}
	_, at, err := tx.Since(lastRead, 1)
	if err == nil && (at == lastRead || at >= epoch) {
		return epoch, nil
	}
	return lastRead, err
}

// eventFilter returns a function that reports whether the call may see an event. The call must have
// permission to read the resource of the event. For events of tokens without a project, the rules
// of GetToken apply.
func (c Call) eventFilter() func(cloudsim.Event) bool {
	may := map[cloudsim.ResourceKind]bool{}
	allTokens := c.mayEverywhere("tokens.get", Manage)
	return func(ev cloudsim.Event) bool {
		ok, known := may[ev.Kind]
		if !known {
			ok = c.mayRead(ev.Kind)
			may[ev.Kind] = ok
		}
		if ev.Kind == cloudsim.KindToken && ev.Project == "" && ev.ID != string(c.Token) && !allTokens {
			return false
		}
		return ok && c.canSee(&cloudsim.Meta{Project: ev.Project})
	}
}
