package cloudsim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is the class of a failure. It is itself an error, so callers write
// errors.Is(err, cloudsim.NotFound) whatever wrapped it on the way, in this
// process or on the far side of the API. Kinds travel by name; new ones are
// appended.
type Kind uint8

const (
	Internal        Kind = iota // unclassified: details are logged, never sent
	Invalid                     // the request can never succeed as written
	Unauthenticated             // no token, or one that is not known or has expired
	Denied                      // the token is known but may not do this
	NotFound                    // no such resource
	Exists                      // the name is taken by a resource that differs
	Conflict                    // the resource is in the wrong state for this verb
	Stale                       // If-Match names a revision that is no longer current
	Exhausted                   // a quota, a rate or an address range is used up
	Unavailable                 // try again later
	Gone                        // the journal no longer reaches back to that revision: list again
	numKinds
)

var kindNames = [numKinds]string{
	"internal", "invalid", "unauthenticated", "denied", "not_found", "exists",
	"conflict", "stale", "exhausted", "unavailable", "gone",
}

func (k Kind) Error() string { return kindNames[k] }

// MarshalText writes a kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(kindNames[k]), nil }

// UnmarshalText reads a kind's name; a name from a newer cloud is Internal.
func (k *Kind) UnmarshalText(b []byte) error {
	*k, _ = ParseKind(string(b))
	return nil
}

// ParseKind returns the kind of this name. It returns Internal and false for a
// name that is unknown.
func ParseKind(name string) (Kind, bool) {
	i := slices.Index(kindNames[:], name)
	return Kind(max(i, 0)), i >= 0
}

// Kinds lists every Kind; the tables at the edges are tested against it.
func Kinds() []Kind {
	ks := make([]Kind, numKinds)
	for i := range ks {
		ks[i] = Kind(i)
	}
	return ks
}

// FieldError says what is wrong with one field of a request.
type FieldError struct {
	Field  string `json:"field" doc:"Path of the field in the request, e.g. listeners[0].port" example:"listeners[0].port"`
	Reason string `json:"reason" doc:"What is wrong with it" example:"must be between 1 and 65535, got 0"`
}

// Error is a failure that a caller may act on.
type Error struct {
	Kind   Kind
	Msg    string       // for the caller; safe to send
	Fields []FieldError // what is wrong where, for Invalid
	// RetryAfter is when asking again may help; 0 when nobody knows.
	RetryAfter time.Duration
	Err        error // cause; for the log only
}

func (e *Error) Error() string { return e.Msg }
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is e's kind.
func (e *Error) Is(target error) bool { k, ok := target.(Kind); return ok && k == e.Kind }

// Errorf makes an Error; a %w verb sets its cause.
func Errorf(k Kind, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// InvalidField makes an Invalid error about one field.
func InvalidField(field, reason string) error {
	return &Error{Kind: Invalid, Msg: field + " " + reason, Fields: []FieldError{{field, reason}}}
}

// KindOf reports the kind of err: Internal when nobody classified it.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if k, ok := errors.AsType[Kind](err); ok {
		return k
	}
	return Internal
}

// Joined are the errors that errors.Join made one of; nil if it did not.
func Joined(err error) []error {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(many.Unwrap()...).Error() {
		return nil
	}
	return many.Unwrap()
}

// Misuse is err, which says what is wrong with what somebody asked for, as Invalid:
// each of what errors.Join made one, unless it has a kind of its own.
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

// checks collects what is wrong with a request, so that its author fixes it
// once and not seven times.
type checks []FieldError

func (c *checks) addf(field, format string, args ...any) {
	*c = append(*c, FieldError{field, fmt.Sprintf(format, args...)})
}

// err is nil, or one Invalid error that names every field.
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

// Problem is an error on the wire: RFC 9457, application/problem+json, with
// the members kind, errors and requestId as extensions.
type Problem struct {
	Type      string       `json:"type" doc:"Always about:blank: kind tells the class" example:"about:blank"`
	Title     string       `json:"title" doc:"The HTTP status in words" example:"Not Found"`
	Status    int          `json:"status" doc:"The HTTP status" example:"404"`
	Detail    string       `json:"detail" doc:"What went wrong, for a person" example:"no instance i-000009"`
	Kind      Kind         `json:"kind" doc:"The class of the failure; programs decide by this" enum:"internal,invalid,unauthenticated,denied,not_found,exists,conflict,stale,exhausted,unavailable,gone"`
	Errors    []FieldError `json:"errors,omitempty" doc:"What is wrong where, for kind invalid"`
	RequestID string       `json:"requestId,omitempty" doc:"Quote it when asking what happened"`
}
