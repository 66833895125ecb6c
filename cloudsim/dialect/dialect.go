// Package dialect serves the APIs of other clouds. A dialect translates each call of another
// cloud's API to calls of this cloud's public API, with the token of the caller. The cloud applies
// the same permissions, quotas, rate limits and faults to calls through a dialect as to direct
// calls. The audit trail contains both kinds of calls.
//
// A dialect has no storage of its own. If this cloud has no field for a value of the other cloud,
// the dialect stores this value in a label of the resource, or in a cloudsim.Record. So a dialect
// gives the same answers after a restart. Two processes that serve the same dialect also give the
// same answers.
//
// The package does not import the packages engine and store, because dialects use only the public
// API.
package dialect

import (
	"maps"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Dialect is the API of another cloud, such as Hetzner Cloud. In the comments of the fields, "the
// other cloud" is the cloud with this API.
type Dialect struct {
	Name  string // name in commands and metrics, e.g. "hcloud"
	Title string // name in texts for users, e.g. "Hetzner Cloud"
	Calls []Call // all supported calls
	// Refusals contains reasons and next steps for calls that the dialect does not support. The
	// keys are patterns of http.ServeMux. If a call is neither in Calls nor in Refusals, the error
	// of the server names the command that lists the supported calls. The server uses Refusals only
	// if Select is nil.
	Refusals map[string]string
	// Select returns the name of the requested call. If Select is nil, the method and the path
	// of the request determine the call.
	Select func(*Request) (name string, err error)
	// Token returns the bearer token for calls to this cloud. This is the caller's own token, or a
	// token that cloudsim.Signature.Token creates from the signature of the request. Token returns
	// "" if the request has no token.
	Token func(*Request) (string, error)
	// Write writes the answer of a call in the format of the other cloud. If Write is nil, the
	// server encodes the body as JSON.
	Write func(w http.ResponseWriter, r *Request, status int, body any)
	// Refuse writes an error in the format of the other cloud.
	Refuse func(http.ResponseWriter, *Request, error)
	// IDHeader is the name of the header in which the other cloud returns the id of a
	// request.
	IDHeader string
	// CloudHeaders contains names of headers. The server copies these headers, and the header Date,
	// from cloudsim's answer into the answer to the caller. If the dialect makes several calls to
	// cloudsim for one request, the server uses the last answer.
	CloudHeaders []string
	// Variables returns environment variables for programs that were written for the other cloud.
	// With these variables, the programs use the dialect at the given URL, such as
	// http://127.0.0.1:8190. The result does not contain the variable for the token.
	Variables func(url string) []Variable
	// Metadata describes the metadata service of the other cloud. It is nil if programs for the
	// other cloud need no metadata.
	Metadata *cloudsim.MetadataTreeSpec
	// RegistryHost returns the host name of a project's image registry in the other cloud. It is
	// nil if the dialect does not translate the registry.
	RegistryHost func(project cloudsim.ProjectID, region string) string
	// DiskLink returns the path of a disk's device on an instance, e.g.
	// /dev/disk/by-id/scsi-0HC_Volume_42 for the dialect hcloud. It is nil if programs for the
	// other cloud can use the path that cloudsim.DiskID.Link returns.
	DiskLink func(cloudsim.DiskID) string
	// TokenVariable is the name of the environment variable for the token. It is "" if programs for
	// the other cloud need a credentials file instead of a token.
	TokenVariable string
	// CredentialsVariable is the name of the environment variable for the path of a credentials
	// file; see cloudsim.AccessKey. It is "" if programs for the other cloud authenticate with
	// tokens.
	CredentialsVariable string
}

// Variable is an environment variable.
type Variable struct{ Name, Value string }

// Call is a supported call of the other cloud's API.
type Call struct {
	Name    string `json:"name"`   // e.g. "servers.list"; unique in the dialect
	Method  string `json:"method"` // e.g. "GET"
	Path    string `json:"path"`   // a pattern of http.ServeMux, e.g. "/v1/servers/{id}"
	Summary string `json:"summary"`
	// Do executes the call. It returns the HTTP status and the body of the answer. If body is
	// nil, the answer has no body.
	Do func(*Request) (status int, body any, err error) `json:"-"`
}

// Unsupported is the error for a call, or for a feature of a call, that a dialect does not
// translate.
type Unsupported struct {
	What string // e.g. "POST /v1/certificates"
	Why  string // the reason and the next step; "" for none
}

func (u Unsupported) Error() string {
	if u.Why == "" {
		return u.What + " is not supported by cloudsim's dialect"
	}
	return u.What + " is not supported by cloudsim's dialect: " + u.Why
}

// LabelPrefix is the prefix of the labels in which dialects store values. Dialects do not
// show these labels to their callers.
const LabelPrefix = "dialect.cloudsim.dev/"

// CloneLabels returns a copy of labels. The result is not nil.
func CloneLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels)+1)
	maps.Copy(out, labels)
	return out
}

// Visible returns all labels, except the labels with keys that begin with LabelPrefix. The result
// is not nil.
func Visible(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for k, v := range labels {
		if !hidden(k) {
			out[k] = v
		}
	}
	return out
}

// WithLabels returns the requested labels, and the existing labels with keys that begin with
// LabelPrefix. It returns an Invalid error if the key of a requested label begins with LabelPrefix.
func WithLabels(requested, existing map[string]string) (map[string]string, error) {
	out := make(map[string]string, len(requested)+len(existing))
	for k, v := range requested {
		if hidden(k) {
			return nil, cloudsim.InvalidField("labels", "must not have keys with the prefix "+LabelPrefix+", which is reserved")
		}
		out[k] = v
	}
	for k, v := range existing {
		if hidden(k) {
			out[k] = v
		}
	}
	return out, nil
}

func hidden(key string) bool {
	return len(key) >= len(LabelPrefix) && key[:len(LabelPrefix)] == LabelPrefix
}
