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

// maxSilence is the longest time without data on a watch. After this time, the watch ends with
// Unavailable. The cloud sends a bookmark every fifteen seconds, unless a fault delays the answer.
const maxSilence = 90 * time.Second

var errSilent = cloudsim.Errorf(cloudsim.Unavailable, "watch: the cloud sent nothing for %s", maxSilence)

// Watch yields the events after the revision o.Since, in the order of their revisions. If
// o.Bookmark is not 0, it also yields bookmarks. It ends without an error when ctx ends, or when
// the caller leaves the loop. In all other cases, the last item is an error, for example:
//   - Gone: the journal no longer contains all events after o.Since, or LoadState or ResetState has
//     replaced the contents of the cloud after the revision o.Since.
//   - Unavailable: the connection ended or hangs.
//   - Unauthenticated: the token is no longer valid.
//   - Denied: the caller does not have the permission to watch.
//   - Exhausted: too many watches are open.
//
// To resume, set Since to the Rev of the last handled event. Then the watcher misses no event, and
// gets no event twice.
func (c *Client) Watch(ctx context.Context, o cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error] {
	return func(yield func(cloudsim.Event, error) bool) {
		for l, err := range readLines[watchLine](ctx, c, "/v1/watch?"+watchQuery(o).Encode()) {
			if l.Type == cloudsim.EventBookmark && o.Bookmark == 0 {
				continue // a bookmark also shows that the connection is alive
			}
			if !yield(l.Event, err) {
				return
			}
		}
	}
}

// WatchAudit yields entries of the audit trail, in the order of their numbers. It yields each entry
// that o selects and that has a higher number than o.After. It ignores o.Limit. If o.After is 0, it
// begins with the oldest entry in the cloud's memory. The caller must have the permission
// audit.watch in all projects. To resume, set After to the Number of the last handled entry.
//
// WatchAudit ends, and yields errors, in the same cases as Watch. Only Gone has other causes:
//   - The next entry is no longer in memory, e.g. after a restart.
//   - o.After is higher than the number of the newest entry.
func (c *Client) WatchAudit(ctx context.Context, o cloudsim.AuditOptions) iter.Seq2[cloudsim.AuditEntry, error] {
	return func(yield func(cloudsim.AuditEntry, error) bool) {
		o.Limit = 0
		for l, err := range readLines[auditLine](ctx, c, "/v1/audit/watch"+auditQuery(o)) {
			switch {
			case err != nil:
				yield(cloudsim.AuditEntry{}, err)
				return
			case l.AuditEntry != nil && !yield(*l.AuditEntry, nil):
				return
			}
		}
	}
}

// readLines yields the lines of the watch at a path. The iteration ends without an error when ctx
// ends, or when the caller leaves the loop. In all other cases, for example if the server closes
// the connection, the last item is an error.
func readLines[L interface{ failure() *cloudsim.Problem }](ctx context.Context, c *Client, path string) iter.Seq2[L, error] {
	return func(yield func(L, error) bool) {
		var none L
		watchCtx, hangUp := context.WithCancelCause(ctx)
		defer hangUp(nil)
		silent := time.AfterFunc(maxSilence, func() { hangUp(errSilent) })
		defer silent.Stop()
		resp, err := c.do(watchCtx, c.withoutTimeout().HTTP, http.MethodGet, path, nil)
		if err != nil {
			if ctx.Err() == nil {
				yield(none, err)
			}
			return
		}
		defer resp.Body.Close()
		d := json.NewDecoder(resp.Body)
		for {
			var l L
			silent.Reset(maxSilence) // the time in which the caller handled a line does not count as silence
			err := d.Decode(&l)
			silent.Stop()
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && watchCtx.Err() != nil:
				yield(none, context.Cause(watchCtx))
				return
			case errors.Is(err, io.EOF):
				yield(none, cloudsim.Errorf(cloudsim.Unavailable, "watch: the cloud closed the connection"))
				return
			case err != nil:
				yield(none, cloudsim.Errorf(cloudsim.Unavailable, "watch: %w", err))
				return
			}
			if p := l.failure(); p != nil {
				yield(none, errorOf(*p))
				return
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// problemLine is the last line of a stream that ends with an error.
type problemLine struct {
	Problem *cloudsim.Problem `json:"problem"`
}

func (l problemLine) failure() *cloudsim.Problem { return l.Problem }

type watchLine struct {
	cloudsim.Event
	problemLine
}

type auditLine struct {
	cloudsim.AuditLine
	problemLine
}

func watchQuery(o cloudsim.WatchOptions) url.Values {
	q := url.Values{"since": {strconv.FormatUint(o.Since, 10)}}
	for _, k := range o.Kinds {
		q.Add("kind", string(k))
	}
	if o.ID != "" {
		q.Set("id", o.ID)
	}
	return q
}

// ListNewestEvents returns a page of the newest events, newest first. For the next page, set
// o.Before to the number in the field Next of this page.
func (c *Client) ListNewestEvents(ctx context.Context, o cloudsim.EventOptions) (cloudsim.List[cloudsim.Event], error) {
	q := url.Values{}
	for _, k := range o.Kinds {
		q.Add("kind", string(k))
	}
	for key, n := range map[string]uint64{"before": o.Before, "limit": uint64(max(o.Limit, 0))} {
		if n != 0 {
			q.Set(key, strconv.FormatUint(n, 10))
		}
	}
	for key, word := range map[string]string{"id": o.ID, "requestId": o.RequestID} {
		if word != "" {
			q.Set(key, word)
		}
	}
	return call[cloudsim.List[cloudsim.Event]](ctx, c, http.MethodGet, "/v1/events/newest?"+q.Encode(), nil)
}

// ListEvents returns a page of the events after o.Since. For the next page, set o.Since to
// the Revision of this page. ListEvents returns Gone in the same cases as Watch. The method
// AllEvents reads all pages.
func (c *Client) ListEvents(ctx context.Context, o cloudsim.WatchOptions) (cloudsim.List[cloudsim.Event], error) {
	q := watchQuery(o)
	return call[cloudsim.List[cloudsim.Event]](ctx, c, http.MethodGet, "/v1/events?"+q.Encode(), nil)
}

// AllEvents returns all events after the revision o.Since. If o.Since is 0, it returns all events
// in the journal. It returns Gone in the same cases as Watch.
//
// AllEvents reads the events page by page. But after LoadState, ListEvents returns only the first
// page of the loaded events, and returns Gone for later pages of them. A watch from revision 0
// yields all loaded events. So if o.Since is 0 and ListEvents returns Gone for a later page,
// AllEvents reads the whole journal with a watch.
func (c *Client) AllEvents(ctx context.Context, o cloudsim.WatchOptions) ([]cloudsim.Event, error) {
	var all []cloudsim.Event
	for from := o.Since; ; {
		page, err := c.ListEvents(ctx, o)
		switch {
		case errors.Is(err, cloudsim.Gone) && from == 0 && o.Since > 0:
			return c.untilNow(ctx, cloudsim.WatchOptions{Kinds: o.Kinds, ID: o.ID})
		case err != nil:
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Revision < o.Since+cloudsim.DefaultPageSize { // a full page contains at least this number of revisions
			return all, nil
		}
		o.Since = page.Revision
	}
}

// untilNow returns the events of a watch up to its first bookmark. This bookmark means that the
// watch has read the whole journal.
func (c *Client) untilNow(ctx context.Context, o cloudsim.WatchOptions) (all []cloudsim.Event, err error) {
	o.Bookmark = time.Minute // any value enables bookmarks: the cloud chooses the interval; see WatchOptions
	for e, err := range c.Watch(ctx, o) {
		if err != nil || e.Type == cloudsim.EventBookmark {
			return all, err
		}
		all = append(all, e)
	}
	return all, ctx.Err()
}
