package aws

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// contentTypeJSON is the content type of requests and answers in AWS's protocol JSON 1.1.
const contentTypeJSON = "application/x-amz-json-1.1"

// jsonServices maps the first part of the header X-Amz-Target to a service with the protocol
// JSON 1.1.
var jsonServices = map[string]service{
	"AmazonEC2ContainerRegistry_V20150921": ecr,
}

// isJSON reports whether a request uses the protocol JSON 1.1. All other requests use the query
// protocol.
func isJSON(r *dialect.Request) bool {
	return r.Header.Get("X-Amz-Target") != "" || mediaType(r) == contentTypeJSON
}

func mediaType(r *dialect.Request) string {
	t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // for an invalid header, t is ""
	return t
}

// jsonService returns the service that the header X-Amz-Target names. If the header names no known
// service, jsonService returns ECR.
func jsonService(r *dialect.Request) service {
	name, _, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if s, ok := jsonServices[name]; ok {
		return s
	}
	return ecr
}

// selectJSON returns the name of the call in the header X-Amz-Target, e.g.
// "ecr.GetAuthorizationToken".
func selectJSON(r *dialect.Request) (string, error) {
	if mediaType(r) != contentTypeJSON {
		return "", coded(http.StatusBadRequest, "SerializationException", "the header Content-Type must be "+contentTypeJSON+", got "+clip(r.Header.Get("Content-Type")))
	}
	target := r.Header.Get("X-Amz-Target")
	name, action, _ := strings.Cut(target, ".")
	s, ok := jsonServices[name]
	if !ok || !actionRE.MatchString(action) {
		return "", coded(http.StatusBadRequest, "UnknownOperationException", "the header X-Amz-Target must be AmazonEC2ContainerRegistry_V20150921.CALL, got "+clip(target))
	}
	return s.name + "." + action, nil
}

// jsonCall returns a function for the field Do of a dialect.Call. This function asks the cloud for
// the identity of the caller, then decodes the JSON body, and then calls fn.
func jsonCall[In any](fn func(*dialect.Request, cloudsim.Identity, In) (any, error)) func(*dialect.Request) (int, any, error) {
	return func(r *dialect.Request) (int, any, error) {
		me, err := r.Cloud.WhoAmI(r.Context())
		if err != nil {
			return 0, nil, err
		}
		var in In
		if err := r.Decode(&in); err != nil {
			return 0, nil, err
		}
		out, err := fn(r, me, in)
		return http.StatusOK, out, err
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", contentTypeJSON)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has disconnected
}

// jsonCodes maps error codes of the query protocol to error codes of the protocol JSON 1.1. A code
// that is not in the map is the same in both protocols.
var jsonCodes = map[string]string{
	"AuthFailure":                "UnrecognizedClientException",
	"ExpiredToken":               "ExpiredTokenException",
	"IncompleteSignature":        "IncompleteSignatureException",
	"IncorrectState":             "InvalidParameterException",
	"InternalError":              "ServerException",
	"InvalidAction":              "UnknownOperationException",
	"InvalidClientTokenId":       "UnrecognizedClientException",
	"InvalidParameterValue":      "InvalidParameterException",
	"MissingAuthenticationToken": "MissingAuthenticationTokenException",
	"RequestExpired":             "InvalidSignatureException",
	"RequestLimitExceeded":       "ThrottlingException",
	"ResourceLimitExceeded":      "LimitExceededException",
	"SignatureDoesNotMatch":      "InvalidSignatureException",
	"UnauthorizedOperation":      "AccessDeniedException",
	"Unavailable":                "ServerException",
	"UnsupportedOperation":       "UnknownOperationException",
	"XAmzContentSHA256Mismatch":  "InvalidSignatureException",
}

// refuseJSON answers a request with an error in the format of the protocol JSON 1.1.
func refuseJSON(w http.ResponseWriter, f dialect.Failure, err error, message string) {
	if _, ok := errors.AsType[dialect.NotJSON](err); ok {
		f = dialect.Failure{Status: http.StatusBadRequest, Code: "SerializationException"}
	}
	if code, ok := jsonCodes[f.Code]; ok {
		f.Code = code
	}
	writeJSON(w, f.Status, struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{f.Code, message})
}
