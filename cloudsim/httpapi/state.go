package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humamux"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// maxStateBody is the largest size of an imported state in bytes. It is the maximum size of all
// disk data in a saved state, plus 512 MiB for compressed records.
const maxStateBody = cloudsim.MaxStateData + 512<<20

// stateTimeout is the longest time for a call that reads or writes a whole saved state.
const stateTimeout = 10 * time.Minute

// ByName contains the path parameter of a request about a saved state. It is
// exported because huma reads only exported embedded structs.
type ByName struct {
	Name string `path:"name" maxLength:"63" doc:"Name of the state"`
}

func (a *api) stateRoutes() {
	e := a.engine
	handle(a, op{id: "states.save", method: post, path: "/v1/states", summary: "Save the state of the whole cloud", status: http.StatusCreated, access: engine.Admin},
		func(ctx context.Context, in *create[cloudsim.SaveState]) (*struct{ Body cloudsim.State }, error) {
			extendDeadlines(ctx)
			return withoutETag(e.SaveState(ctx, in.Body))
		})
	handle(a, op{id: "states.list", method: http.MethodGet, path: "/v1/states", summary: "List saved states", access: engine.Admin},
		func(ctx context.Context, _ *none) (*struct{ Body cloudsim.States }, error) {
			return withoutETag(e.ListStates(ctx))
		})
	handle(a, op{id: "states.diff", method: http.MethodGet, path: "/v1/states/diff", summary: "Compare two states, or a state with the running cloud", access: engine.Admin},
		func(ctx context.Context, in *struct {
			From string `query:"from" maxLength:"63" doc:"Name of a state; absent for the running cloud"`
			To   string `query:"to" maxLength:"63" doc:"Name of a state; absent for the running cloud"`
		}) (*struct{ Body cloudsim.StateDiff }, error) {
			extendDeadlines(ctx)
			return withoutETag(e.DiffStates(ctx, in.From, in.To))
		})
	handle(a, op{id: "states.reset", method: post, path: "/v1/states/reset", summary: "Delete all resources of the cloud, except projects, roles, role bindings, service accounts, tokens, access keys and workload trusts. Quotas, rate limits and durations get their default values. Watches end with the error gone", status: http.StatusNoContent, access: engine.Admin},
		func(ctx context.Context, _ *none) (*none, error) {
			extendDeadlines(ctx)
			return nil, e.ResetState(ctx)
		})
	handle(a, op{id: "states.load", method: post, path: "/v1/states/{name}/load", summary: "Replace the contents of the cloud by a saved state. Watches end with an error of the kind gone", status: http.StatusNoContent, access: engine.Admin},
		func(ctx context.Context, in *struct {
			ByName
			RecordsOnly bool `query:"recordsOnly" doc:"Do not change the data of disks. Without this parameter, the cloud refuses to load a state with disk data while a disk is attached"`
		}) (*none, error) {
			extendDeadlines(ctx)
			return nil, e.LoadState(ctx, in.Name, cloudsim.LoadState{RecordsOnly: in.RecordsOnly})
		})
	handle(a, op{id: "states.delete", method: http.MethodDelete, path: "/v1/states/{name}", summary: "Delete a state", status: http.StatusNoContent, access: engine.Admin},
		func(ctx context.Context, in *ByName) (*none, error) { return nil, e.DeleteState(ctx, in.Name) })
	handle(a, op{id: "states.export", method: http.MethodGet, path: "/v1/states/{name}/export", summary: "Download a state as one file", access: engine.Admin}, a.exportState)
	handle(a, op{id: "states.import", method: http.MethodPut, path: "/v1/states/{name}", summary: "Import an exported state", status: http.StatusCreated, access: engine.Admin, upload: "application/octet-stream"}, a.importState)
}

func extendDeadlines(ctx context.Context) {
	if reply := exchangeOf(ctx).reply; reply != nil {
		end := time.Now().Add(stateTimeout)
		_, _ = reply.SetWriteDeadline(end), reply.SetReadDeadline(end)
	}
}

// exportState streams the file of a saved state. If a read of the file fails, exportState
// closes the connection in the middle of the answer.
func (a *api) exportState(ctx context.Context, in *ByName) (*huma.StreamResponse, error) {
	extendDeadlines(ctx)
	f, err := a.engine.ExportState(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer func() { _ = f.Close() }() // the file was only read
		hc.SetHeader("Content-Type", "application/octet-stream")
		hc.SetStatus(http.StatusOK)
		if _, err := io.Copy(hc.BodyWriter(), f); err != nil {
			drop()
		}
	}}, nil
}

// Upload is a request with a streamed body. Upload is exported because huma reads only
// exported embedded structs.
type Upload struct{ in io.Reader }

// Resolve stores a reader of the request body in u, so that the handler can stream the body. If the
// body has more than maxStateBody bytes, the reader returns an error.
func (u *Upload) Resolve(hc huma.Context) []error {
	r, w := humamux.Unwrap(hc)
	u.in = http.MaxBytesReader(w, r.Body, maxStateBody)
	return nil
}

func (a *api) importState(ctx context.Context, in *struct {
	ByName
	Upload
}) (*struct{ Body cloudsim.State }, error) {
	extendDeadlines(ctx)
	s, err := a.engine.ImportState(ctx, in.Name, in.in)
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = cloudsim.Errorf(cloudsim.Invalid, "the state has more than %d bytes", tooLong.Limit)
	}
	return withoutETag(s, err)
}
