package registry

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// injectedFault is the error of a request that a fault affects.
type injectedFault struct {
	fault *cloudsim.Fault
}

func (e *injectedFault) Error() string {
	return cmp.Or(e.fault.Effect.Message, fmt.Sprintf("fault %s (%s) changed this call", e.fault.ID, e.fault.Name))
}

// faultCodes maps the kind of an error to the error code of the reply. The OCI distribution
// specification has no code for the other kinds, so their code is UNKNOWN.
var faultCodes = map[cloudsim.Kind]string{
	cloudsim.Invalid:         "UNSUPPORTED",
	cloudsim.Unauthenticated: "UNAUTHORIZED",
	cloudsim.Denied:          "DENIED",
	cloudsim.NotFound:        "NAME_UNKNOWN",
	cloudsim.Exhausted:       "TOOMANYREQUESTS",
	cloudsim.Unavailable:     "UNAVAILABLE",
}

// writeError answers the request in the error format of the OCI distribution
// specification.
func (e *injectedFault) writeError(w http.ResponseWriter) {
	effect := e.fault.Effect
	kind := effect.ErrorKind()
	if after := effect.RetryAfter(); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	reply(w, cmp.Or(effect.Status, kind.HTTPStatus()), map[string]any{"errors": []map[string]string{{"code": cmp.Or(faultCodes[kind], "UNKNOWN"), "message": e.Error()}}})
}

// checkFaults applies the fault rules to a request. Only the first call for a request has an
// effect. Otherwise the rules would apply twice to a request that uses two repositories.
func (g *guard) checkFaults(ctx context.Context, s *session, operation, target string) error {
	if s.faultsChecked {
		return nil
	}
	s.faultsChecked = true
	hit, err := g.engine.Decide(s.caller.Context(ctx, s.requestID), engine.Subject{Operation: operation, Target: target})
	if err != nil {
		return err
	}
	if hit.Latency > 0 {
		s.clearDeadline()
		backoff.Sleep(ctx, hit.Latency)
		if err := ctx.Err(); err != nil {
			return err // the client has left, so the registry does no work for it
		}
	}
	if hit.Fault == nil {
		return nil
	}
	switch hit.Fault.Effect.Type {
	case cloudsim.FaultError, cloudsim.FaultThrottle:
		return &injectedFault{hit.Fault}
	case cloudsim.FaultHang:
		backoff.Sleep(ctx, cloudsim.MaxFaultHang) // returns earlier if the client leaves
		drop()
	case cloudsim.FaultDrop:
		drop()
	default:
		s.after = hit.Fault
	}
	return nil
}

// drop closes the connection of the request without a reply.
func drop() {
	panic(http.ErrAbortHandler) //nolint:forbidigo // only this panic closes the connection in every protocol version of net/http
}

// faultyResponse wraps a ResponseWriter. If a fault affects only the reply of the request,
// faultyResponse replaces or suppresses the reply. It also extends the write deadline before
// each write.
type faultyResponse struct {
	http.ResponseWriter
	s     *session
	wrote bool // the status is written
	done  bool // the reply of the fault is complete
}

func (w *faultyResponse) WriteHeader(code int) {
	w.s.extendDeadline()
	if w.done {
		return
	}
	w.wrote = true
	if f := w.s.after; f != nil {
		switch {
		case f.Effect.Type == cloudsim.FaultLoseReply:
			drop()
		case f.Effect.Type == cloudsim.FaultErrorAfterCommit && code < 400:
			w.done = true
			for _, name := range []string{"Content-Length", "Docker-Content-Digest", "Location"} {
				w.Header().Del(name) // describes the answer that the fault replaces
			}
			(&injectedFault{f}).writeError(w.ResponseWriter)
			return
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *faultyResponse) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	if w.done {
		return len(p), nil
	}
	w.s.extendDeadline()
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *faultyResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }
