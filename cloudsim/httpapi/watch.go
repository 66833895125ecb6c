package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humamux"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	// bookmarkEvery is how often an idle watch says how far it is, after it said
	// so once when it had caught up.
	bookmarkEvery = 15 * time.Second
	// lineTimeout is how long a watcher may take to read what was written.
	lineTimeout = 10 * time.Second
)

type eventsInput struct {
	Since uint64                  `query:"since" doc:"Events after this revision; 0 for all that the journal has"`
	Kind  []cloudsim.ResourceKind `query:"kind,explode" maxItems:"16" doc:"Only events of this kind; may be given many times"`
}

func (in eventsInput) options() cloudsim.WatchOptions {
	return cloudsim.WatchOptions{Since: in.Since, Kinds: in.Kind}
}

func (a *api) listEvents(ctx context.Context, in *eventsInput) (*listed[cloudsim.Event], error) {
	l, err := a.engine.ListEvents(ctx, in.options())
	if err != nil {
		return nil, err
	}
	return &listed[cloudsim.Event]{l}, nil
}

// watch streams events. What is wrong at the start is an error reply; what
// goes wrong later is a last line {"problem": …}.
func (a *api) watch(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	o := in.options()
	if _, err := a.engine.ListEvents(ctx, o); err != nil {
		return nil, err
	}
	o.Bookmark = bookmarkEvery
	return &huma.StreamResponse{Body: func(hc huma.Context) {
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
		for ev, err := range a.engine.Watch(ctx, o) {
			if err != nil {
				line(struct {
					Problem *problem `json:"problem"`
				}{a.problem(ctx, err)})
				return
			}
			if !line(ev) {
				return // the watcher left
			}
		}
	}}, nil
}
