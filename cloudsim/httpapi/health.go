package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"

	"github.com/gorilla/mux"

	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// healthRoutes adds the routes for probes, with the names that Kubernetes uses. The route
// /livez reports whether the process answers. The route /healthz reports whether the process
// can do its work. The route /readyz reports whether the process is ready for requests. The
// routes need no token.
func (a *api) healthRoutes(router *mux.Router) {
	for name, checks := range map[string]func() []engine.Check{
		"livez": func() []engine.Check { return nil }, "healthz": a.engine.Healthy, "readyz": a.engine.Ready,
	} {
		router.HandleFunc("/"+name, func(w http.ResponseWriter, r *http.Request) {
			answerChecks(w, r, name, append([]engine.Check{{Name: "ping"}}, checks()...))
		}).Methods(http.MethodGet)
	}
}

// answerChecks answers with status 200 if all checks pass, or else with status 503. If the query
// parameter exclude contains the name of a check, answerChecks ignores the result of this check.
// The answer lists the checks if a check fails, or if the query has the parameter verbose.
func answerChecks(w http.ResponseWriter, r *http.Request, name string, checks []engine.Check) {
	excluded := r.URL.Query()["exclude"]
	var out bytes.Buffer
	failed := false
	for _, c := range checks {
		switch {
		case slices.Contains(excluded, c.Name):
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.Name)
		case c.Err != nil:
			failed = true
			fmt.Fprintf(&out, "[-]%s failed: %v\n", c.Name, c.Err)
		default:
			fmt.Fprintf(&out, "[+]%s ok\n", c.Name)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case failed:
		fmt.Fprintf(&out, "%s check failed\n", name)
		w.WriteHeader(http.StatusServiceUnavailable)
	case !r.URL.Query().Has("verbose"):
		out.Reset()
		out.WriteString("ok\n")
	default:
		fmt.Fprintf(&out, "%s check passed\n", name)
	}
	_, _ = out.WriteTo(w) // fails if the client has disconnected
}
