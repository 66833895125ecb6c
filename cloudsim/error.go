package cloudsim

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Kind is the class of a failure. Kind implements error, so that callers can write
// errors.Is(err, cloudsim.NotFound). This expression is also true for wrapped errors
// and for errors that a client received from the API. The JSON form of a kind is its
// name. New kinds must be at the end of the list, so that the values of the existing
// constants stay the same.
type Kind uint8

const (
	Internal        Kind = iota // an error without a class; the cloud logs the details and does not send them
	Invalid                     // the request can never succeed as written
	Unauthenticated             // no token, or a token that is unknown or expired
	Denied                      // the token is valid but has no permission for the operation
	NotFound                    // the resource does not exist
	Exists                      // another resource already has the name
	Conflict                    // the resource's state does not allow this verb
	Stale                       // the revision in If-Match is not the current revision
	Exhausted                   // a quota, a rate or an address range is used up
	Unavailable                 // try again later
	Gone                        // the journal no longer contains the requested revision; the caller must list again
	numKinds
)

var kindNames = [numKinds]string{
	"internal", "invalid", "unauthenticated", "denied", "not_found", "exists",
	"conflict", "stale", "exhausted", "unavailable", "gone",
}

func (k Kind) Error() string { return kindNames[k] }

var kindStatus = [numKinds]int{
	Internal:        http.StatusInternalServerError,
	Invalid:         http.StatusBadRequest,
	Unauthenticated: http.StatusUnauthorized,
	Denied:          http.StatusForbidden,
	NotFound:        http.StatusNotFound,
	Exists:          http.StatusConflict,
	Conflict:        http.StatusConflict,
	Stale:           http.StatusPreconditionFailed,
	Exhausted:       http.StatusTooManyRequests,
	Unavailable:     http.StatusServiceUnavailable,
	Gone:            http.StatusGone,
}

// HTTPStatus returns the HTTP status with which the cloud's API answers an error of kind k.
func (k Kind) HTTPStatus() int { return kindStatus[k] }

// MarshalText writes a kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(kindNames[k]), nil }

// UnmarshalText reads a kind's name. An unknown name, e.g. from a newer cloud,
// becomes Internal.
func (k *Kind) UnmarshalText(b []byte) error {
	*k, _ = ParseKind(string(b))
	return nil
}

// ParseKind returns the kind with the given name. It returns Internal and false
// for an unknown name.
func ParseKind(name string) (Kind, bool) {
	i := slices.Index(kindNames[:], name)
	return Kind(max(i, 0)), i >= 0
}

// Kinds lists every Kind.
func Kinds() []Kind {
	ks := make([]Kind, numKinds)
	for i := range ks {
		ks[i] = Kind(i)
	}
	return ks
}

// FieldError describes the error in one field of a request.
type FieldError struct {
	Field  string `json:"field" doc:"Path of the field in the request, e.g. listeners[0].port" example:"listeners[0].port"`
	Reason string `json:"reason" doc:"Reason why the field is invalid" example:"must be between 1 and 65535, got 0"`
}

// Error is an error with a kind.
type Error struct {
	Kind   Kind
	Msg    string       // text for the caller, without internal details
	Fields []FieldError // the invalid fields, if Kind is Invalid
	// RetryAfter is the time after which a retry may succeed. It is 0 if this time is
	// unknown.
	RetryAfter time.Duration
	Err        error // cause; for the log only
}

func (e *Error) Error() string { return e.Msg }
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the kind of e.
func (e *Error) Is(target error) bool { k, ok := target.(Kind); return ok && k == e.Kind }

// Errorf returns an Error of kind k. If format has one verb %w, its operand becomes the field Err.
func Errorf(k Kind, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// InvalidField returns an error of kind Invalid about one field.
func InvalidField(field, reason string) error {
	return &Error{Kind: Invalid, Msg: field + " " + reason, Fields: []FieldError{{field, reason}}}
}

// KindOf returns the kind of err. It returns Internal for an error without a kind.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if k, ok := errors.AsType[Kind](err); ok {
		return k
	}
	return Internal
}

// OneOrMany returns nil if errs is empty, and the error itself if errs contains one error. For
// several errors it returns the result of errors.Join.
func OneOrMany(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// Joined returns the errors that errors.Join combined in err. It returns nil if
// err is not the result of errors.Join.
func Joined(err error) []error {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(many.Unwrap()...).Error() {
		return nil
	}
	return many.Unwrap()
}

// Misuse converts err to an error of kind Invalid. Callers use Misuse for
// errors about a user's input. If err is the result of errors.Join, Misuse
// converts each of the joined errors. An error that already has a kind keeps
// its kind.
func Misuse(err error) error {
	if many := Joined(err); many != nil {
		all := make([]error, len(many))
		for i, err := range many {
			all[i] = Misuse(err)
		}
		return errors.Join(all...)
	}
	if err == nil || KindOf(err) != Internal {
		return err
	}
	return Errorf(Invalid, "%w", err)
}

// checks is a list of the errors in all fields of a request. With this list, one answer reports all
// of these errors.
type checks []FieldError

// tenYears is the maximum, in seconds, of several durations in requests.
const tenYears = 10 * 365 * 24 * 3600

func (c *checks) addf(field, format string, args ...any) {
	*c = append(*c, FieldError{field, fmt.Sprintf(format, args...)})
}

// err returns nil if c is empty. Otherwise it returns one Invalid error that names every
// field in c.
func (c checks) err() error {
	if len(c) == 0 {
		return nil
	}
	all := make([]string, len(c))
	for i, f := range c {
		all[i] = f.Field + " " + f.Reason
	}
	return &Error{Kind: Invalid, Msg: strings.Join(all, "; "), Fields: c}
}

// Problem is the body of an HTTP error reply. Its format is
// application/problem+json (RFC 9457), with the extension members kind, errors
// and requestId.
type Problem struct {
	Type      string       `json:"type" doc:"Always about:blank. The class of the error is in kind" example:"about:blank"`
	Title     string       `json:"title" doc:"The HTTP status in words" example:"Not Found"`
	Status    int          `json:"status" doc:"The HTTP status" example:"404"`
	Detail    string       `json:"detail" doc:"Description of the error for people" example:"no instance i-000009"`
	Kind      Kind         `json:"kind" doc:"Class of the failure, for programs" enum:"internal,invalid,unauthenticated,denied,not_found,exists,conflict,stale,exhausted,unavailable,gone"`
	Errors    []FieldError `json:"errors,omitempty" doc:"Invalid fields, for kind invalid"`
	RequestID string       `json:"requestId,omitempty" doc:"Id of the request, as in the cloud's log and in the audit trail"`
}
