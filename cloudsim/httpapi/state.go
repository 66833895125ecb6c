package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humamux"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// maxStateBody bounds a state that is imported; it is read into memory.
const maxStateBody = 256 << 20

// stateTimeout bounds what reads or writes a whole state.
const stateTimeout = 10 * time.Minute

// ByName is a request about a state. It is exported because huma reads embedded
// structs only when they are.
type ByName struct {
	Name string `path:"name" maxLength:"63" doc:"Name of the state"`
}

func (a *api) stateRoutes() {
	e := a.engine
	handle(a, op{id: "states.save", method: post, path: "/v1/states", summary: "Save the whole cloud as it is now", status: http.StatusCreated, access: engine.Admin},
		func(ctx context.Context, in *create[cloudsim.SaveState]) (*struct{ Body cloudsim.State }, error) {
			patient(ctx)
			return plain(e.SaveState(ctx, in.Body))
		})
	handle(a, op{id: "states.list", method: http.MethodGet, path: "/v1/states", summary: "List the states that were saved", access: engine.Admin},
		func(ctx context.Context, _ *none) (*struct{ Body cloudsim.States }, error) {
			return plain(e.ListStates(ctx))
		})
	handle(a, op{id: "states.diff", method: http.MethodGet, path: "/v1/states/diff", summary: "Compare two states, or one with the cloud as it is now", access: engine.Admin},
		func(ctx context.Context, in *struct {
			From string `query:"from" maxLength:"63" doc:"Name of a state; absent for the cloud as it is now"`
			To   string `query:"to" maxLength:"63" doc:"Name of a state; absent for the cloud as it is now"`
		}) (*struct{ Body cloudsim.StateDiff }, error) {
			patient(ctx)
			return plain(e.DiffStates(ctx, in.From, in.To))
		})
	handle(a, op{id: "states.reset", method: post, path: "/v1/states/reset", summary: "Make the cloud empty; projects and who may call stay", status: http.StatusNoContent, access: engine.Admin},
		func(ctx context.Context, _ *none) (*none, error) { return nil, e.ResetState(ctx) })
	handle(a, op{id: "states.load", method: post, path: "/v1/states/{name}/load", summary: "Make the cloud what it was when the state was saved; watches end with gone", status: http.StatusNoContent, access: engine.Admin},
		func(ctx context.Context, in *ByName) (*none, error) {
			patient(ctx)
			return nil, e.LoadState(ctx, in.Name)
		})
	handle(a, op{id: "states.delete", method: http.MethodDelete, path: "/v1/states/{name}", summary: "Forget a state", status: http.StatusNoContent, access: engine.Admin},
		func(ctx context.Context, in *ByName) (*none, error) { return nil, e.DeleteState(ctx, in.Name) })
	handle(a, op{id: "states.export", method: http.MethodGet, path: "/v1/states/{name}/export", summary: "Download a state as one file", access: engine.Admin}, a.exportState)
	handle(a, op{id: "states.import", method: http.MethodPut, path: "/v1/states/{name}", summary: "Keep a state that was exported", status: http.StatusCreated, access: engine.Admin, body: maxStateBody}, a.importState)
}

// patient gives a reply the time that a whole state takes.
func patient(ctx context.Context) {
	if reply := exchangeOf(ctx).reply; reply != nil {
		_ = reply.SetWriteDeadline(time.Now().Add(stateTimeout))
	}
}

// exportState answers with the file. It is packed before the first byte is
// sent, so that what goes wrong is an error and no half of a file.
func (a *api) exportState(ctx context.Context, in *ByName) (*huma.StreamResponse, error) {
	patient(ctx)
	var file bytes.Buffer
	if err := a.engine.ExportState(ctx, in.Name, &file); err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humamux.Unwrap(hc)
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(http.StatusOK)
		_, _ = file.WriteTo(w) // fails when the client left
	}}, nil
}

func (a *api) importState(ctx context.Context, in *struct {
	ByName
	RawBody []byte `contentType:"application/octet-stream"`
}) (*struct{ Body cloudsim.State }, error) {
	patient(ctx)
	return plain(a.engine.ImportState(ctx, in.Name, bytes.NewReader(in.RawBody)))
}
