package aws

import (
	"encoding/xml"
	"errors"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// failures maps each error kind of this cloud to an HTTP status and an error code of AWS.
var failures = map[cloudsim.Kind]dialect.Failure{
	cloudsim.Internal:        {Status: http.StatusInternalServerError, Code: "InternalError"},
	cloudsim.Invalid:         {Status: http.StatusBadRequest, Code: "InvalidParameterValue"},
	cloudsim.Unauthenticated: {Status: http.StatusUnauthorized, Code: "AuthFailure"},
	cloudsim.Denied:          {Status: http.StatusForbidden, Code: "UnauthorizedOperation"},
	cloudsim.NotFound:        {Status: http.StatusBadRequest, Code: "InvalidParameterValue"},
	cloudsim.Exists:          {Status: http.StatusBadRequest, Code: "InvalidParameterValue"},
	cloudsim.Conflict:        {Status: http.StatusBadRequest, Code: "IncorrectState"},
	cloudsim.Stale:           {Status: http.StatusBadRequest, Code: "IncorrectState"},
	cloudsim.Exhausted:       {Status: http.StatusBadRequest, Code: "ResourceLimitExceeded"},
	cloudsim.Unavailable:     {Status: http.StatusServiceUnavailable, Code: "Unavailable"},
	cloudsim.Gone:            {Status: http.StatusBadRequest, Code: "InvalidParameterValue"},
}

// signatureFailures maps the wrong part of a signature to an HTTP status and an error code of AWS.
// The key is the first field of the cloud's error. This field names the wrong part.
var signatureFailures = map[string]dialect.Failure{
	cloudsim.SignatureKeyField:     {Status: http.StatusForbidden, Code: "InvalidClientTokenId"},
	cloudsim.SignatureTimeField:    {Status: http.StatusBadRequest, Code: "RequestExpired"},
	cloudsim.SignatureValueField:   {Status: http.StatusForbidden, Code: "SignatureDoesNotMatch"},
	cloudsim.SignatureSessionField: {Status: http.StatusForbidden, Code: "InvalidClientTokenId"},
	cloudsim.SignatureExpiryField:  {Status: http.StatusBadRequest, Code: "ExpiredToken"},
}

func coded(status int, code, msg string) error {
	return dialect.CodedError{Failure: dialect.Failure{Status: status, Code: code}, Msg: msg}
}

func failureOf(err error) dialect.Failure {
	if e, ok := errors.AsType[dialect.CodedError](err); ok {
		return e.Failure
	}
	if _, ok := errors.AsType[dialect.Unsupported](err); ok {
		return dialect.Failure{Status: http.StatusBadRequest, Code: "UnsupportedOperation"} // not 501, because the SDK repeats a request if the status is 500 or more
	}
	if e, ok := errors.AsType[*cloudsim.Error](err); ok {
		if e.Kind == cloudsim.Exhausted && e.RetryAfter > 0 {
			return dialect.Failure{Status: http.StatusServiceUnavailable, Code: "RequestLimitExceeded"}
		}
		if f, ok := signatureFailures[firstField(e)]; ok && e.Kind == cloudsim.Unauthenticated {
			return f
		}
	}
	return failures[cloudsim.KindOf(err)]
}

func firstField(e *cloudsim.Error) string {
	if len(e.Fields) == 0 {
		return ""
	}
	return e.Fields[0].Field
}

// ec2Error is the body of EC2's answer to a request that fails.
type ec2Error struct {
	Code    string `xml:"Errors>Error>Code"`
	Message string `xml:"Errors>Error>Message"`
	ID      string `xml:"RequestID"`
}

// queryError is the body of the answer of STS or Elastic Load Balancing to a request that fails.
type queryError struct {
	Type    string `xml:"Error>Type"`
	Code    string `xml:"Error>Code"`
	Message string `xml:"Error>Message"`
	ID      string `xml:"RequestId"`
}

// refuse answers a request with an error, in the format of the requested service. The answer does
// not contain the details of internal errors.
func refuse(w http.ResponseWriter, r *dialect.Request, err error) {
	f := failureOf(err)
	message := dialect.Message(r, err)
	s := serviceOf(r)
	if s.namespace == "" {
		refuseJSON(w, f, err, message)
		return
	}
	if s.name == "ec2" {
		writeXML(w, f.Status, xml.Name{Local: "Response"}, ec2Error{Code: f.Code, Message: message, ID: r.ID})
		return
	}
	kind := "Sender"
	if f.Status >= http.StatusInternalServerError {
		kind = "Receiver"
	}
	writeXML(w, f.Status, xml.Name{Space: s.namespace, Local: "ErrorResponse"}, queryError{Type: kind, Code: f.Code, Message: message, ID: r.ID})
}

func recode(err error, code string) error {
	e, ok := errors.AsType[dialect.CodedError](err)
	if !ok {
		return err
	}
	e.Code = code
	return e
}
