package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// httpError is an error of the metadata service itself, not of the cloud that the service
// calls.
type httpError struct {
	status int
	msg    string
}

func (e *httpError) Error() string { return e.msg }

// status maps the kind of an error from the cloud to the HTTP status of the reply. If the
// cloud refuses the service's own credentials, the reply is 502, because the error is not
// in the instance's request.
var status = map[cloudsim.Kind]int{
	cloudsim.Internal:        http.StatusBadGateway,
	cloudsim.Invalid:         http.StatusBadRequest,
	cloudsim.Unauthenticated: http.StatusBadGateway,
	cloudsim.Denied:          http.StatusBadGateway,
	cloudsim.NotFound:        http.StatusNotFound,
	cloudsim.Exists:          http.StatusConflict,
	cloudsim.Conflict:        http.StatusConflict,
	cloudsim.Stale:           http.StatusConflict,
	cloudsim.Exhausted:       http.StatusTooManyRequests,
	cloudsim.Unavailable:     http.StatusServiceUnavailable,
	cloudsim.Gone:            http.StatusGone,
}

func (s *service) refuse(w http.ResponseWriter, r *http.Request, id cloudsim.InstanceID, err error) {
	code, msg := 0, err.Error()
	if e, ok := errors.AsType[*httpError](err); ok {
		code = e.status
	} else {
		kind := cloudsim.KindOf(err)
		code = status[kind]
		switch kind {
		case cloudsim.Internal, cloudsim.Unauthenticated, cloudsim.Denied, cloudsim.Unavailable:
			s.log.WarnContext(r.Context(), "cannot read the data of an instance from the cloud", "instance", id, "path", r.URL.Path, "err", err)
			msg = "the metadata service cannot read this data from the cloud: try again, or see the log of the metadata service"
		}
		if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
	}
	http.Error(w, msg, code)
}

// writeAnswer sends the answer v. It sends a string as plain text, unless the handler has set
// another content type. It sends any other value as JSON.
func writeAnswer(w http.ResponseWriter, v any) error {
	if s, ok := v.(string); ok {
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(s)) //nolint:gosec // the value is plain text, and an error means that the caller has disconnected
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(raw, '\n'))
	return nil
}
