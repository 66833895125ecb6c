package hcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// failure is the HTTP status and the code of an error in Hetzner's API.
type failure struct {
	status int
	code   string
}

// failures maps each error kind of this cloud to the status and code in Hetzner's API.
var failures = map[cloudsim.Kind]failure{
	cloudsim.Internal:        {http.StatusInternalServerError, "server_error"},
	cloudsim.Invalid:         {http.StatusUnprocessableEntity, "invalid_input"},
	cloudsim.Unauthenticated: {http.StatusUnauthorized, "unauthorized"},
	cloudsim.Denied:          {http.StatusForbidden, "forbidden"},
	cloudsim.NotFound:        {http.StatusNotFound, "not_found"},
	cloudsim.Exists:          {http.StatusConflict, "uniqueness_error"},
	cloudsim.Conflict:        {http.StatusLocked, "locked"},
	cloudsim.Stale:           {http.StatusConflict, "conflict"},
	cloudsim.Exhausted:       {http.StatusForbidden, "resource_limit_exceeded"},
	cloudsim.Unavailable:     {http.StatusServiceUnavailable, "unavailable"},
	cloudsim.Gone:            {http.StatusNotFound, "not_found"},
}

// codedError is an error with a code of Hetzner's API for which this cloud has no error
// kind.
type codedError struct {
	failure
	msg string
}

func (e codedError) Error() string { return e.msg }

// Is reports that a codedError is an Invalid error, because the request cannot succeed
// without a change.
func (e codedError) Is(err error) bool { return err == cloudsim.Invalid } //nolint:errorlint // Kind is comparable

func coded(code, msg string) error {
	return codedError{failure{http.StatusUnprocessableEntity, code}, msg}
}

// errUnknown is the error of a request that refers to a resource that does not exist.
func errUnknown(field string, reference any) error {
	return cloudsim.InvalidField(field, fmt.Sprintf("names %.80q, which does not exist", fmt.Sprint(reference)))
}

// failureOf returns the HTTP status and the code for an error.
func failureOf(err error) failure {
	if e, ok := errors.AsType[codedError](err); ok {
		return e.failure
	}
	if _, ok := errors.AsType[dialect.Unsupported](err); ok {
		return failure{http.StatusNotImplemented, "unsupported_error"}
	}
	if _, ok := errors.AsType[dialect.NotJSON](err); ok {
		return failure{http.StatusBadRequest, "json_error"}
	}
	if e, ok := errors.AsType[*cloudsim.Error](err); ok && e.Kind == cloudsim.Exhausted && e.RetryAfter > 0 {
		return failure{http.StatusTooManyRequests, "rate_limit_exceeded"}
	}
	return failures[cloudsim.KindOf(err)]
}

// refuse writes an error in Hetzner's format. It hides the details of internal errors.
func refuse(w http.ResponseWriter, r *dialect.Request, err error) {
	f := failureOf(err)
	body := errorBody{Code: f.code, Message: err.Error()}
	if f == failures[cloudsim.Internal] {
		body.Message = "internal error; the cloud's log has request " + r.ID
	}
	if e, ok := errors.AsType[*cloudsim.Error](err); ok {
		body.Details = details(e.Fields)
		if e.RetryAfter > 0 {
			seconds := int(math.Ceil(e.RetryAfter.Seconds()))
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			w.Header().Set("RateLimit-Remaining", "0")
			w.Header().Set("RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+int64(seconds), 10))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(errorReply{body}) // an error means that the client has disconnected
}

// details lists the invalid fields. It returns nil if no field is invalid.
func details(fields []cloudsim.FieldError) *errorDetails {
	if len(fields) == 0 {
		return nil
	}
	d := &errorDetails{}
	for _, f := range fields {
		d.Fields = append(d.Fields, errorField{Name: f.Field, Messages: []string{f.Reason}})
	}
	return d
}
