package dialect

import (
	"errors"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Failure is the HTTP status and the code of an error in the API of another cloud.
type Failure struct {
	Status int
	Code   string
}

// CodedError is an error with an error code of another cloud, e.g. AWS. A dialect uses CodedError
// if the code matches no error kind of this cloud.
type CodedError struct {
	Failure
	Msg string
}

func (e CodedError) Error() string { return e.Msg }

// Unwrap returns the error kind Invalid, which means that the same request would fail again.
func (e CodedError) Unwrap() error { return cloudsim.Invalid }

// Message returns the text of an error for the caller. If the error is internal, the text contains
// no details.
func Message(r *Request, err error) string {
	if isInternal(err) {
		return "internal error: the log of the dialect contains the cause, under the request id " + r.ID
	}
	return err.Error()
}

// isInternal reports whether the dialect or the cloud, and not the request, caused the error.
func isInternal(err error) bool {
	_, unsupported := errors.AsType[Unsupported](err)
	_, notJSON := errors.AsType[NotJSON](err)
	return cloudsim.KindOf(err) == cloudsim.Internal && !unsupported && !notJSON
}
