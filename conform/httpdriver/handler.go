package httpdriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
)

// Handler serves the driver d over HTTP.
func Handler(d conform.Driver) http.Handler {
	m := newMux(d)
	m.serve("GET /capabilities", func(r *http.Request) (any, error) { return d.Capabilities(r.Context()) })
	m.serve("POST /machines", func(r *http.Request) (any, error) { return withBody(r, d.CreateMachine) })
	m.serve("GET /machines", func(r *http.Request) (any, error) { return d.ListMachines(r.Context()) })
	m.serve("GET /machines/{name}", func(r *http.Request) (any, error) { return d.GetMachine(r.Context(), r.PathValue("name")) })
	m.serveNamed("POST /machines/{name}/stop", "name", d.StopMachine)
	m.serveNamed("POST /machines/{name}/start", "name", d.StartMachine)
	m.serveNamed("DELETE /machines/{name}", "name", d.DeleteMachine)
	m.serve("GET /load-balancers", func(r *http.Request) (any, error) { return d.ListLoadBalancers(r.Context()) })
	m.serveNamed("DELETE /load-balancers/{id}", "id", d.DeleteLoadBalancer)
	m.serve("GET /routes", func(r *http.Request) (any, error) { return d.ListRoutes(r.Context()) })
	m.serve("POST /routes", func(r *http.Request) (any, error) { return withBody(r, d.CreateRoute) })
	m.serveNamed("DELETE /routes/{id}", "id", d.DeleteRoute)
	return m
}

// FaultHandler serves only the paths /fault, /calls and /recording. A driver uses these paths to
// control a recording proxy.
func FaultHandler(f conform.Faults) http.Handler { return newMux(f) }

// mux is an http.ServeMux whose handlers return errors.
type mux struct{ *http.ServeMux }

func newMux(f conform.Faults) mux {
	m := mux{http.NewServeMux()}
	m.serve("PUT /fault", func(r *http.Request) (any, error) {
		return withBody(r, func(ctx context.Context, fault conform.Fault) (any, error) { return nil, f.SetFault(ctx, fault) })
	})
	m.serve("DELETE /fault", func(r *http.Request) (any, error) { return nil, f.ClearFault(r.Context()) })
	m.serve("GET /calls", func(r *http.Request) (any, error) { return f.Calls(r.Context()) })
	m.serve("GET /recording", func(r *http.Request) (any, error) {
		recorder, ok := f.(conform.Recorder)
		if !ok {
			return nil, conform.ErrUnsupported
		}
		var after time.Time
		if text := r.URL.Query().Get("after"); text != "" {
			if err := after.UnmarshalText([]byte(text)); err != nil {
				return nil, fmt.Errorf("%w: the query parameter \"after\": %w", errBody, err)
			}
		}
		return recorder.Recording(r.Context(), after)
	})
	return m
}

func (m mux) serve(pattern string, call func(*http.Request) (any, error)) {
	m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		out, err := call(r)
		answer(w, out, err)
	})
}

// serveNamed serves a call with one argument. It reads the argument from the given variable of the
// request's path.
func (m mux) serveNamed(pattern, variable string, call func(context.Context, string) error) {
	m.serve(pattern, func(r *http.Request) (any, error) { return nil, call(r.Context(), r.PathValue(variable)) })
}

// errBody means that the body or the query of a request is not valid.
var errBody = errors.New("the request is not valid")

// withBody decodes the body of a request. It calls a method of the driver with the decoded value.
func withBody[In, Out any](r *http.Request, call func(context.Context, In) (Out, error)) (any, error) {
	var in In
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	return call(r.Context(), in)
}

func answer(w http.ResponseWriter, out any, err error) {
	status := http.StatusOK
	switch {
	case errors.Is(err, conform.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, conform.ErrUnsupported):
		status = http.StatusNotImplemented
	case errors.Is(err, errBody):
		status = http.StatusBadRequest
	case err != nil:
		status = http.StatusInternalServerError
	case out == nil:
		status = http.StatusNoContent
	}
	if err != nil {
		out = problem{err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if out != nil {
		_ = json.NewEncoder(w).Encode(out) // ignores the error, because the caller itself notices a lost connection
	}
}
