package aws

import (
	"encoding/xml"
	"errors"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// failure is the HTTP status and the code of an error in AWS's API.
type failure struct {
	status int
	code   string
}

// failures maps each error kind of this cloud to the status and code in AWS's API.
var failures = map[cloudsim.Kind]failure{
	cloudsim.Internal:        {http.StatusInternalServerError, "InternalError"},
	cloudsim.Invalid:         {http.StatusBadRequest, "InvalidParameterValue"},
	cloudsim.Unauthenticated: {http.StatusUnauthorized, "AuthFailure"},
	cloudsim.Denied:          {http.StatusForbidden, "UnauthorizedOperation"},
	cloudsim.NotFound:        {http.StatusBadRequest, "InvalidParameterValue"},
	cloudsim.Exists:          {http.StatusBadRequest, "InvalidParameterValue"},
	cloudsim.Conflict:        {http.StatusBadRequest, "IncorrectState"},
	cloudsim.Stale:           {http.StatusBadRequest, "IncorrectState"},
	cloudsim.Exhausted:       {http.StatusBadRequest, "ResourceLimitExceeded"},
	cloudsim.Unavailable:     {http.StatusServiceUnavailable, "Unavailable"},
	cloudsim.Gone:            {http.StatusBadRequest, "InvalidParameterValue"},
}

// signatureFailures maps the field of an error about a signature to the status and code in
// AWS's API.
var signatureFailures = map[string]failure{
	cloudsim.SignatureKeyField:   {http.StatusForbidden, "InvalidClientTokenId"},
	cloudsim.SignatureTimeField:  {http.StatusBadRequest, "RequestExpired"},
	cloudsim.SignatureValueField: {http.StatusForbidden, "SignatureDoesNotMatch"},
}

// codedError is an error with a code of AWS's API for which this cloud has no error kind.
type codedError struct {
	failure
	msg string
}

func (e codedError) Error() string { return e.msg }

// Unwrap returns the kind of the error: the request cannot succeed without a change.
func (e codedError) Unwrap() error { return cloudsim.Invalid }

func coded(status int, code, msg string) error { return codedError{failure{status, code}, msg} }

func failureOf(err error) failure {
	if e, ok := errors.AsType[codedError](err); ok {
		return e.failure
	}
	if _, ok := errors.AsType[dialect.Unsupported](err); ok {
		return failure{http.StatusBadRequest, "UnsupportedOperation"} // the SDK repeats requests with a status of 500 and more
	}
	if e, ok := errors.AsType[*cloudsim.Error](err); ok {
		if e.Kind == cloudsim.Exhausted && e.RetryAfter > 0 {
			return failure{http.StatusServiceUnavailable, "RequestLimitExceeded"}
		}
		if f, ok := signatureFailures[field(e)]; ok && e.Kind == cloudsim.Unauthenticated {
			return f
		}
	}
	return failures[cloudsim.KindOf(err)]
}

// field returns the name of the first field in an error, or "" for none.
func field(e *cloudsim.Error) string {
	if len(e.Fields) == 0 {
		return ""
	}
	return e.Fields[0].Field
}

// ec2Error is the body of an error of EC2.
type ec2Error struct {
	Code    string `xml:"Errors>Error>Code"`
	Message string `xml:"Errors>Error>Message"`
	ID      string `xml:"RequestID"`
}

// queryError is the body of an error of the other services.
type queryError struct {
	Type    string `xml:"Error>Type"`
	Code    string `xml:"Error>Code"`
	Message string `xml:"Error>Message"`
	ID      string `xml:"RequestId"`
}

// refuse writes an error in the format of the requested service. It hides the details of
// internal errors.
func refuse(w http.ResponseWriter, r *dialect.Request, err error) {
	f := failureOf(err)
	message := err.Error()
	if f == failures[cloudsim.Internal] {
		message = "internal error; the cloud's log has request " + r.ID
	}
	s := serviceOf(r)
	if s.name == "ec2" {
		writeXML(w, f.status, xml.Name{Local: "Response"}, ec2Error{Code: f.code, Message: message, ID: r.ID})
		return
	}
	kind := "Sender"
	if f.status >= http.StatusInternalServerError {
		kind = "Receiver"
	}
	writeXML(w, f.status, xml.Name{Space: s.namespace, Local: "ErrorResponse"}, queryError{Type: kind, Code: f.code, Message: message, ID: r.ID})
}
