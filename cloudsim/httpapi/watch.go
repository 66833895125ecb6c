package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humamux"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

const (
	// bookmarkEvery is the interval between the bookmarks of a watch. The cloud sends the first
	// bookmark after all events that are already in the journal.
	bookmarkEvery = 15 * time.Second
	// lineTimeout is the longest time that a watcher may take to read a line. If a watcher takes
	// longer, the cloud ends the watch.
	lineTimeout = 10 * time.Second
)

// Paths of watches.
const (
	watchPath      = "/v1/watch"
	auditWatchPath = "/v1/audit/watch"
)

func isWatchPath(path string) bool { return slices.Contains([]string{watchPath, auditWatchPath}, path) }

// These constants limit the number of open watches. The first limit is for the whole cloud. The
// second limit is for each caller with a role in all projects. All other callers of a project share
// the third limit. Without these limits, the watches of a project could use the processor time of
// other projects, because each change wakes every watch.
const (
	maxWatches        = 2048
	maxWatchesEach    = 512
	maxWatchesProject = 64
)

type watchCounter struct {
	mu   sync.Mutex
	open int
	by   map[string]int // by project, or by the caller's id
}

// addWatch counts a new watch. It returns Exhausted if too many watches are open. The caller must
// call the function leave when the watch ends.
func (w *watchCounter) addWatch(ctx context.Context) (leave func(), err error) {
	id, owner := engine.Principal(ctx)
	most := maxWatchesEach
	if p, bound := engine.BoundTo(ctx); bound {
		id, owner, most = "project "+string(p), "project "+string(p), maxWatchesProject
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.by[id] >= most:
		return nil, &cloudsim.Error{Kind: cloudsim.Exhausted, RetryAfter: bookmarkEvery, Msg: fmt.Sprintf("%s has %d open watches, which is the limit: use one watch for all kinds", owner, most)}
	case w.open >= maxWatches:
		return nil, &cloudsim.Error{Kind: cloudsim.Exhausted, RetryAfter: bookmarkEvery, Msg: fmt.Sprintf("%d watches are open, which is the limit of the cloud: use one watch for all kinds", maxWatches)}
	}
	if w.by == nil {
		w.by = map[string]int{}
	}
	w.open++
	w.by[id]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open--
		if w.by[id]--; w.by[id] == 0 {
			delete(w.by, id)
		}
	}, nil
}

type eventsInput struct {
	Since uint64                  `query:"since" doc:"Only events after this revision; 0 for all events in the journal"`
	Kind  []cloudsim.ResourceKind `query:"kind,explode" maxItems:"16" doc:"Only events of this kind; may be repeated"`
	ID    string                  `query:"id" maxLength:"128" doc:"Only events of the resource with this id"`
}

func (in eventsInput) options() cloudsim.WatchOptions {
	return cloudsim.WatchOptions{Since: in.Since, Kinds: in.Kind, ID: in.ID}
}

type newestEventsInput struct {
	Kind      []cloudsim.ResourceKind `query:"kind,explode" maxItems:"16" doc:"Only events of this kind; may be repeated"`
	ID        string                  `query:"id" maxLength:"128" doc:"Only events of the resource with this id"`
	RequestID string                  `query:"requestId" maxLength:"128" doc:"Only events that this request caused"`
	Before    uint64                  `query:"before" doc:"Only events before this revision: the value of next in the previous page; 0 or absent for the newest events"`
	Limit     int                     `query:"limit" minimum:"0" maximum:"5000" doc:"Page size; 0 or absent for 500"`
}

func (a *api) listNewestEvents(ctx context.Context, in *newestEventsInput) (*listed[cloudsim.Event], error) {
	l, err := a.engine.ListNewestEvents(ctx, cloudsim.EventOptions{Kinds: in.Kind, ID: in.ID, RequestID: in.RequestID, Before: in.Before, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	return &listed[cloudsim.Event]{l}, nil
}

func (a *api) listEvents(ctx context.Context, in *eventsInput) (*listed[cloudsim.Event], error) {
	l, err := a.engine.ListEvents(ctx, in.options())
	if err != nil {
		return nil, err
	}
	return &listed[cloudsim.Event]{l}, nil
}

// watchEvents streams events. If an error occurs before the stream begins, the answer is an
// error reply. streamItems handles later errors.
func (a *api) watchEvents(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	o := in.options()
	if _, err := a.engine.ListEvents(ctx, o); err != nil {
		return nil, err
	}
	o.Bookmark = bookmarkEvery
	return streamItems(ctx, a, a.engine.Watch(ctx, o)), nil
}

// streamItems writes the items of a watch, one line of JSON each. If the watch ends with an error,
// the last line of the stream contains this error: {"problem": …}.
func streamItems[T any](ctx context.Context, a *api, items iter.Seq2[T, error]) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		leave, err := a.watches.addWatch(ctx)
		if err != nil {
			a.refuseHuma(hc, err) //nolint:contextcheck // hc contains the context
			return
		}
		defer leave()
		_, w := humamux.Unwrap(hc)
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.WriteHeader(http.StatusOK)
		out, rc := json.NewEncoder(w), http.NewResponseController(w)
		line := func(v any) bool {
			_ = rc.SetWriteDeadline(time.Now().Add(lineTimeout))
			return out.Encode(v) == nil && rc.Flush() == nil
		}
		if rc.Flush() != nil {
			return
		}
		for item, err := range items {
			if err != nil {
				line(struct {
					Problem *problem `json:"problem"`
				}{a.toProblem(ctx, err)})
				return
			}
			if !line(item) {
				return // the watcher has disconnected
			}
		}
	}}
}
