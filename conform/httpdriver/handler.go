package httpdriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/cloudsim-dev/allinone/conform"
)

// Handler serves the driver d over HTTP.
func Handler(d conform.Driver) http.Handler {
	mux := http.NewServeMux()
	serve := func(pattern string, call func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			out, err := call(r)
			answer(w, out, err)
		})
	}
	// named serves a call that has the last variable of the path as its only argument.
	named := func(pattern, variable string, call func(context.Context, string) error) {
		serve(pattern, func(r *http.Request) (any, error) { return nil, call(r.Context(), r.PathValue(variable)) })
	}
	serve("GET /capabilities", func(r *http.Request) (any, error) { return d.Capabilities(r.Context()) })
	serve("POST /machines", func(r *http.Request) (any, error) { return withBody(r, d.CreateMachine) })
	serve("GET /machines/{name}", func(r *http.Request) (any, error) { return d.GetMachine(r.Context(), r.PathValue("name")) })
	named("POST /machines/{name}/stop", "name", d.StopMachine)
	named("POST /machines/{name}/start", "name", d.StartMachine)
	named("DELETE /machines/{name}", "name", d.DeleteMachine)
	serve("GET /load-balancers", func(r *http.Request) (any, error) { return d.ListLoadBalancers(r.Context()) })
	named("DELETE /load-balancers/{id}", "id", d.DeleteLoadBalancer)
	serve("GET /routes", func(r *http.Request) (any, error) { return d.ListRoutes(r.Context()) })
	serve("POST /routes", func(r *http.Request) (any, error) { return withBody(r, d.CreateRoute) })
	named("DELETE /routes/{id}", "id", d.DeleteRoute)
	serve("PUT /fault", func(r *http.Request) (any, error) {
		return withBody(r, func(ctx context.Context, f conform.Fault) (any, error) { return nil, d.SetFault(ctx, f) })
	})
	serve("DELETE /fault", func(r *http.Request) (any, error) { return nil, d.ClearFault(r.Context()) })
	serve("GET /calls", func(r *http.Request) (any, error) { return d.Calls(r.Context()) })
	return mux
}

// errBody means that the body of a request is not valid.
var errBody = errors.New("the body is not valid")

// withBody decodes the body of a request and calls a method of the driver with it.
func withBody[In, Out any](r *http.Request, call func(context.Context, In) (Out, error)) (any, error) {
	var in In
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	return call(r.Context(), in)
}

// answer writes the result of a call.
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
		_ = json.NewEncoder(w).Encode(out) // the caller notices a lost connection
	}
}
