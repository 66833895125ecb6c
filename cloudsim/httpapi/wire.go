package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// problem is a cloudsim.Problem that implements huma's error interfaces.
type problem struct {
	cloudsim.Problem
	retryAfter int // seconds; 0 for none
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders returns the headers of the error reply. Huma calls this method.
func (p *problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	return h
}

// The library huma creates the errors of decoding and validation itself. With the two functions
// below, huma instead creates the API's problem documents. ValidateStrictCasing makes member names
// case sensitive: "name" is a known field, and "Name" is an unknown field.
func init() {
	huma.ValidateStrictCasing = true
	huma.NewErrorWithContext = func(hc huma.Context, code int, msg string, errs ...error) huma.StatusError {
		return decodeProblem(exchangeOf(hc.Context()).requestID, code, msg, errs)
	}
	huma.NewError = func(code int, msg string, errs ...error) huma.StatusError {
		return decodeProblem("", code, msg, errs)
	}
}

// decodeProblem returns the problem for a request that huma could not read. It replaces the
// status 422 with 400, so that an invalid field and invalid JSON get the same status.
func decodeProblem(requestID string, code int, msg string, errs []error) *problem {
	if code == http.StatusUnprocessableEntity {
		code = http.StatusBadRequest
	}
	p := newProblem(code, cloudsim.Invalid, msg, requestID)
	if code >= 500 {
		p.Kind = cloudsim.Internal
	}
	var all []string
	for _, err := range errs {
		var d *huma.ErrorDetail
		if !errors.As(err, &d) {
			all = append(all, err.Error())
			continue
		}
		f := cloudsim.FieldError{Field: strings.TrimPrefix(strings.TrimPrefix(d.Location, "body"), "."), Reason: d.Message}
		if name, ok := missingField(d.Message); ok {
			f = cloudsim.FieldError{Field: strings.TrimPrefix(f.Field+"."+name, "."), Reason: "is required"}
		}
		if f.Field == "" {
			f.Field = "body"
		}
		p.Errors = append(p.Errors, f)
		all = append(all, f.Field+": "+f.Reason)
	}
	if len(all) > 0 {
		p.Detail = strings.Join(all, "; ")
	}
	return p
}

// missingField extracts the name of a missing field from huma's message. Huma reports the
// error for the parent object, and names the field only in the message.
func missingField(msg string) (name string, ok bool) {
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	if name, ok = strings.CutPrefix(msg, before); !ok {
		return "", false
	}
	return strings.CutSuffix(name, after)
}

func newProblem(code int, kind cloudsim.Kind, detail, requestID string) *problem {
	return &problem{Problem: cloudsim.Problem{
		Type: "about:blank", Title: http.StatusText(code), Status: code,
		Detail: detail, Kind: kind, RequestID: requestID,
	}}
}

// toProblem converts an error of the engine to the error reply. It logs an
// internal error, and hides the details of an internal error from the caller.
func (a *api) toProblem(ctx context.Context, err error) *problem {
	x := exchangeOf(ctx)
	if p, ok := errors.AsType[*problem](err); ok {
		x.outcome, x.throttled = p.Kind.Error(), p.Status == http.StatusTooManyRequests
		return p
	}
	kind, detail := cloudsim.KindOf(err), err.Error()
	code := kind.HTTPStatus()
	if errors.Is(err, context.Canceled) {
		kind, code, detail = cloudsim.Unavailable, http.StatusServiceUnavailable, "the request was cancelled"
	}
	if kind == cloudsim.Internal {
		a.log.ErrorContext(ctx, "request failed", "operation", x.operation, "requestId", x.requestID, "err", err)
		detail = "internal error: the cloud's log contains the cause, under the request id " + x.requestID
	}
	p := newProblem(code, kind, detail, x.requestID)
	x.outcome = kind.Error()
	if over, ok := errors.AsType[engine.OverQuota](err); ok {
		x.overQuota = over.Name
	}
	if e, ok := errors.AsType[*cloudsim.Error](err); ok {
		p.Errors = e.Fields
		p.retryAfter = int(math.Ceil(e.RetryAfter.Seconds()))
	}
	return p
}

// refuse writes the error reply for err. Handlers outside of huma use this method.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := a.toProblem(r.Context(), err)
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the client has disconnected
}

func (a *api) refuseHuma(hc huma.Context, err error) {
	p := a.toProblem(hc.Context(), err)
	if p.Kind == cloudsim.Unauthenticated {
		hc.SetHeader("WWW-Authenticate", `Bearer realm="cloudsim"`)
	}
	if p.retryAfter > 0 {
		exchangeOf(hc.Context()).throttled = p.Status == http.StatusTooManyRequests
		hc.SetHeader("Retry-After", strconv.Itoa(p.retryAfter))
	}
	hc.SetHeader("Content-Type", p.ContentType(""))
	hc.SetStatus(p.Status)
	_ = json.NewEncoder(hc.BodyWriter()).Encode(p)
}

func bearer(header string) string {
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// revision parses the value of an If-Match header. If the header is missing or its value is *,
// revision returns 0. Any value except * and a quoted revision causes an error of kind Invalid.
func revision(header string) (uint64, error) {
	if header == "" || header == "*" {
		return 0, nil
	}
	s, err := strconv.Unquote(header)
	if err == nil {
		var rev uint64
		if rev, err = strconv.ParseUint(s, 10, 64); err == nil && rev > 0 {
			return rev, nil
		}
	}
	return 0, cloudsim.InvalidField("header.If-Match", fmt.Sprintf("must be one quoted revision, as in ETag, got %.80s", header))
}
