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

// maxStateBody bounds a state that is imported: its records, and its data with
// the offsets of its blocks.
const maxStateBody = 256<<20 + cloudsim.MaxStateData + cloudsim.MaxStateData/cloudsim.StateBlock*8

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
		func(ctx context.Context, _ *none) (*none, error) {
			patient(ctx)
			return nil, e.ResetState(ctx)
		})
	handle(a, op{id: "states.load", method: post, path: "/v1/states/{name}/load", summary: "Make the cloud what it was when the state was saved; watches end with gone", status: http.StatusNoContent, access: engine.Admin},
		func(ctx context.Context, in *struct {
			ByName
			RecordsOnly bool `query:"recordsOnly" doc:"Leave the data of disks as it is; without it, a state with data is not loaded while a disk is attached"`
		}) (*none, error) {
			patient(ctx)
			return nil, e.LoadState(ctx, in.Name, cloudsim.LoadState{RecordsOnly: in.RecordsOnly})
		})
	handle(a, op{id: "states.delete", method: http.MethodDelete, path: "/v1/states/{name}", summary: "Forget a state", status: http.StatusNoContent, access: engine.Admin},
		func(ctx context.Context, in *ByName) (*none, error) { return nil, e.DeleteState(ctx, in.Name) })
	handle(a, op{id: "states.export", method: http.MethodGet, path: "/v1/states/{name}/export", summary: "Download a state as one file", access: engine.Admin}, a.exportState)
	handle(a, op{id: "states.import", method: http.MethodPut, path: "/v1/states/{name}", summary: "Keep a state that was exported", status: http.StatusCreated, access: engine.Admin, upload: "application/octet-stream"}, a.importState)
}

// patient gives a reply the time that a whole state takes.
func patient(ctx context.Context) {
	if reply := exchangeOf(ctx).reply; reply != nil {
		end := time.Now().Add(stateTimeout)
		_, _ = reply.SetWriteDeadline(end), reply.SetReadDeadline(end)
	}
}

// exportState answers with the file as it is read: it may be larger than memory.
// What goes wrong before its first byte is an error, and after that a connection
// that ends too soon.
func (a *api) exportState(ctx context.Context, in *ByName) (*huma.StreamResponse, error) {
	patient(ctx)
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		out := &begun{hc: hc}
		switch err := a.engine.ExportState(ctx, in.Name, out); {
		case err == nil:
		case out.w == nil:
			a.refuseHuma(hc, err) //nolint:contextcheck // hc has it
		default:
			drop()
		}
	}}, nil
}

// begun writes a file, and knows whether it has begun to.
type begun struct {
	hc huma.Context
	w  io.Writer
}

func (b *begun) Write(p []byte) (int, error) {
	if b.w == nil {
		b.hc.SetHeader("Content-Type", "application/octet-stream")
		b.hc.SetStatus(http.StatusOK)
		b.w = b.hc.BodyWriter()
	}
	return b.w.Write(p)
}

// Upload is a request whose body is read as it comes. It is exported because
// huma reads embedded structs only when they are.
type Upload struct{ in io.Reader }

// Resolve takes the body before anybody reads it.
func (u *Upload) Resolve(hc huma.Context) []error {
	r, w := humamux.Unwrap(hc)
	u.in = http.MaxBytesReader(w, r.Body, maxStateBody)
	return nil
}

func (a *api) importState(ctx context.Context, in *struct {
	ByName
	Upload
}) (*struct{ Body cloudsim.State }, error) {
	patient(ctx)
	s, err := a.engine.ImportState(ctx, in.Name, in.in)
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = cloudsim.Errorf(cloudsim.Invalid, "the state is longer than %d bytes", tooLong.Limit)
	}
	return plain(s, err)
}
