package hcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

var kindFailures = map[cloudsim.Kind]dialect.Failure{
	cloudsim.Internal:        {Status: http.StatusInternalServerError, Code: "server_error"},
	cloudsim.Invalid:         {Status: http.StatusUnprocessableEntity, Code: "invalid_input"},
	cloudsim.Unauthenticated: {Status: http.StatusUnauthorized, Code: "unauthorized"},
	cloudsim.Denied:          {Status: http.StatusForbidden, Code: "forbidden"},
	cloudsim.NotFound:        {Status: http.StatusNotFound, Code: "not_found"},
	cloudsim.Exists:          {Status: http.StatusConflict, Code: "uniqueness_error"},
	cloudsim.Conflict:        {Status: http.StatusLocked, Code: "locked"},
	cloudsim.Stale:           {Status: http.StatusConflict, Code: "conflict"},
	cloudsim.Exhausted:       {Status: http.StatusForbidden, Code: "resource_limit_exceeded"},
	cloudsim.Unavailable:     {Status: http.StatusServiceUnavailable, Code: "unavailable"},
	cloudsim.Gone:            {Status: http.StatusNotFound, Code: "not_found"},
}

func coded(code, msg string) error {
	return dialect.CodedError{Failure: dialect.Failure{Status: http.StatusUnprocessableEntity, Code: code}, Msg: msg}
}

// errUnknown returns the error of a request in which a field refers to a resource that does not
// exist.
func errUnknown(field string, reference any) error {
	return cloudsim.InvalidField(field, fmt.Sprintf("%.80q does not exist", fmt.Sprint(reference)))
}

func failureOf(err error) dialect.Failure {
	if e, ok := errors.AsType[dialect.CodedError](err); ok {
		return e.Failure
	}
	if _, ok := errors.AsType[dialect.Unsupported](err); ok {
		return dialect.Failure{Status: http.StatusNotImplemented, Code: "unsupported_error"}
	}
	if _, ok := errors.AsType[dialect.NotJSON](err); ok {
		return dialect.Failure{Status: http.StatusBadRequest, Code: "json_error"}
	}
	if e, ok := errors.AsType[*cloudsim.Error](err); ok && e.Kind == cloudsim.Exhausted && e.RetryAfter > 0 {
		return dialect.Failure{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded"}
	}
	return kindFailures[cloudsim.KindOf(err)]
}

func refuse(w http.ResponseWriter, r *dialect.Request, err error) {
	f := failureOf(err)
	body := errorBody{Code: f.Code, Message: dialect.Message(r, err)}
	if e, ok := errors.AsType[*cloudsim.Error](err); ok {
		body.Details = invalidFields(e.Fields)
		if e.RetryAfter > 0 {
			seconds := int(math.Ceil(e.RetryAfter.Seconds()))
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			if f.Status == http.StatusTooManyRequests {
				noCallsRemain(w.Header(), seconds)
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(errorReply{body}) // an error means that the client has disconnected
}

// These headers describe the rate limit of the caller. They have the same meaning in Hetzner's API
// and in this cloud's API.
const (
	headerLimit     = "RateLimit-Limit"
	headerRemaining = "RateLimit-Remaining"
	headerReset     = "RateLimit-Reset"
)

// noCallsRemain changes the headers of an answer with the status 429, so that the caller seems to
// have no remaining calls. The parameter retryAfter is the number of seconds until the client may
// repeat the call. If a fault refused the call, the headers from the cloud contain the real rate
// limit of the caller, or no rate limit. Without this change, these headers would not match the
// status 429.
func noCallsRemain(h http.Header, retryAfter int) {
	if h.Get(headerRemaining) == "0" {
		return
	}
	h.Set(headerRemaining, "0")
	if now, err := http.ParseTime(h.Get("Date")); err == nil { // the time on the cloud's clock
		h.Set(headerReset, strconv.FormatInt(now.Unix()+int64(retryAfter), 10))
	}
}

func invalidFields(fields []cloudsim.FieldError) *errorDetails {
	if len(fields) == 0 {
		return nil
	}
	d := &errorDetails{}
	for _, f := range fields {
		d.Fields = append(d.Fields, errorField{Name: f.Field, Messages: []string{f.Reason}})
	}
	return d
}
