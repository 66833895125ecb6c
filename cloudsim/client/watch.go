package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// maxSilence is how long a watch may say nothing. The cloud says every fifteen
// seconds that it is there, unless a fault holds the answer back.
const maxSilence = 90 * time.Second

var errSilent = cloudsim.Errorf(cloudsim.Unavailable, "watch: the cloud said nothing for %s", maxSilence)

// Watch yields the events after o.Since, in order, until ctx ends, the server
// leaves, or the caller breaks. It yields an error once, last: Gone when the
// journal no longer reaches back to o.Since or a state was loaded, Unavailable
// when the connection broke or hangs, Unauthenticated or Denied when the caller's
// token or its right to watch ended meanwhile. Resume with Since set to the Rev
// handled last; nothing is lost or repeated. It ends without an error when ctx
// ends.
func (c *Client) Watch(ctx context.Context, o cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error] {
	return func(yield func(cloudsim.Event, error) bool) {
		q := url.Values{"since": {strconv.FormatUint(o.Since, 10)}}
		for _, k := range o.Kinds {
			q.Add("kind", string(k))
		}
		heard, hangUp := context.WithCancelCause(ctx)
		defer hangUp(nil)
		silent := time.AfterFunc(maxSilence, func() { hangUp(errSilent) })
		defer silent.Stop()
		resp, err := c.do(heard, c.patient().HTTP, http.MethodGet, "/v1/watch?"+q.Encode(), nil)
		if err != nil {
			if ctx.Err() == nil {
				yield(cloudsim.Event{}, err)
			}
			return
		}
		defer resp.Body.Close()
		d := json.NewDecoder(resp.Body)
		for {
			var e watchLine
			silent.Reset(maxSilence) // what the caller did meanwhile is no silence
			err := d.Decode(&e)
			silent.Stop()
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && heard.Err() != nil:
				yield(cloudsim.Event{}, context.Cause(heard))
				return
			case errors.Is(err, io.EOF):
				yield(cloudsim.Event{}, cloudsim.Errorf(cloudsim.Unavailable, "watch: the cloud closed the connection"))
				return
			case err != nil:
				yield(cloudsim.Event{}, cloudsim.Errorf(cloudsim.Unavailable, "watch: %w", err))
				return
			}
			if e.Problem != nil {
				yield(cloudsim.Event{}, errorOf(*e.Problem))
				return
			}
			if e.Type == cloudsim.EventBookmark && o.Bookmark == 0 {
				continue // it also shows that the connection lives
			}
			if !yield(e.Event, nil) {
				return
			}
		}
	}
}

// watchLine is one line of the stream: an event or, last, what ended it.
type watchLine struct {
	cloudsim.Event
	Problem *cloudsim.Problem `json:"problem"`
}

// ListEvents returns a page of the events after o.Since. Revision is how far
// it read: pass it as Since to read on. It is Gone as a watch is; see AllEvents.
func (c *Client) ListEvents(ctx context.Context, o cloudsim.WatchOptions) (cloudsim.List[cloudsim.Event], error) {
	q := url.Values{"since": {strconv.FormatUint(o.Since, 10)}}
	for _, k := range o.Kinds {
		q.Add("kind", string(k))
	}
	return call[cloudsim.List[cloudsim.Event]](ctx, c, http.MethodGet, "/v1/events?"+q.Encode(), nil)
}

// AllEvents returns all events after o.Since that there are now. It reads page by
// page. Who asks for the page after one from before a load of a state is told
// Gone, like those who were there then; from 0 a watch reads it all.
func (c *Client) AllEvents(ctx context.Context, o cloudsim.WatchOptions) ([]cloudsim.Event, error) {
	var all []cloudsim.Event
	for from := o.Since; ; {
		page, err := c.ListEvents(ctx, o)
		switch {
		case errors.Is(err, cloudsim.Gone) && from == 0 && o.Since > 0:
			return c.untilNow(ctx, cloudsim.WatchOptions{Kinds: o.Kinds})
		case err != nil:
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Revision <= o.Since {
			return all, nil
		}
		o.Since = page.Revision
	}
}

// untilNow returns what a watch yields until it has caught up, which it says by a
// bookmark.
func (c *Client) untilNow(ctx context.Context, o cloudsim.WatchOptions) (all []cloudsim.Event, err error) {
	o.Bookmark = time.Minute // the cloud chooses how long; see WatchOptions
	for e, err := range c.Watch(ctx, o) {
		if err != nil || e.Type == cloudsim.EventBookmark {
			return all, err
		}
		all = append(all, e)
	}
	return all, ctx.Err()
}
