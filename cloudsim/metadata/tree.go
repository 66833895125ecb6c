package metadata

import (
	"context"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// prefix is the common prefix of all paths with data of the instance.
const prefix = "/v1/instance"

// Document contains the metadata of an instance. It does not contain the values that need
// an additional request to the cloud. GET /v1/instance returns the whole document.
type Document struct {
	ID         cloudsim.InstanceID        `json:"id"`
	Name       string                     `json:"name"`
	Hostname   string                     `json:"hostname"`
	Type       string                     `json:"type"`
	Zone       string                     `json:"zone"`
	Region     string                     `json:"region"`
	Project    cloudsim.ProjectID         `json:"project"`
	ProviderID string                     `json:"providerID"`
	Account    cloudsim.ServiceAccountID  `json:"serviceAccount,omitempty"`
	Network    cloudsim.NetworkID         `json:"network"`
	Subnet     cloudsim.SubnetID          `json:"subnet"`
	Addresses  []cloudsim.InstanceAddress `json:"addresses"`
	PodRanges  []string                   `json:"podRanges"`
	Labels     map[string]string          `json:"labels"`
	Notices    []cloudsim.Notice          `json:"notices"`
}

// Of returns the metadata document of an instance.
func Of(i cloudsim.Instance) Document {
	d := Document{
		ID: i.ID, Name: i.Name, Hostname: address(i, cloudsim.AddressHostname), Type: i.Type, Zone: i.Zone, Region: i.Region,
		Project: i.Project, ProviderID: i.ProviderID, Account: i.ServiceAccount,
		Network: i.Network, Subnet: i.Subnet, Addresses: i.Addresses, PodRanges: i.PodRanges, Labels: i.Labels, Notices: i.Notices,
	}
	if d.PodRanges == nil {
		d.PodRanges = []string{}
	}
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	if d.Notices == nil {
		d.Notices = []cloudsim.Notice{}
	}
	return d
}

func address(i cloudsim.Instance, t cloudsim.InstanceAddressType) string {
	for _, a := range i.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return ""
}

// leaf is a value of the document that has its own path.
type leaf struct {
	path  string
	value func(Document) any // a string becomes plain text, another type becomes JSON, and "" or nil becomes 404
}

// allLeaves contains all leaves, in the order in which GET /v1/ lists them.
var allLeaves = []leaf{
	{"", func(d Document) any { return d }},
	{"/id", func(d Document) any { return string(d.ID) }},
	{"/name", func(d Document) any { return d.Name }},
	{"/hostname", func(d Document) any { return d.Hostname }},
	{"/type", func(d Document) any { return d.Type }},
	{"/zone", func(d Document) any { return d.Zone }},
	{"/region", func(d Document) any { return d.Region }},
	{"/project", func(d Document) any { return string(d.Project) }},
	{"/provider-id", func(d Document) any { return d.ProviderID }},
	{"/service-account", func(d Document) any { return string(d.Account) }},
	{"/network", func(d Document) any { return string(d.Network) }},
	{"/subnet", func(d Document) any { return string(d.Subnet) }},
	{"/addresses", func(d Document) any { return d.Addresses }},
	{"/pod-ranges", func(d Document) any { return d.PodRanges }},
	{"/labels", func(d Document) any { return d.Labels }},
	{"/notices", func(d Document) any { return d.Notices }},
	{"/notices/maintenance", func(d Document) any { return d.notice(cloudsim.NoticeMaintenance) }},
	{"/notices/preemption", func(d Document) any { return d.notice(cloudsim.NoticePreemption) }},
}

func (d Document) notice(t cloudsim.NoticeType) any {
	n := slices.IndexFunc(d.Notices, func(n cloudsim.Notice) bool { return n.Type == t })
	if n < 0 {
		return nil
	}
	return d.Notices[n]
}

// These paths are not in allLeaves. They are the paths of single labels, and the paths of
// values that need an additional request to the cloud.
const (
	labelPrefix  = prefix + "/labels/"
	userDataPath = prefix + "/user-data"
	identityPath = prefix + "/identity"
	tokenOfPath  = prefix + "/service-account/token"
)

// isSecret reports whether the service must hide the answer for this path from
// other users of the machine.
func isSecret(path string) bool {
	switch strings.TrimSuffix(path, "/") {
	case userDataPath, identityPath, tokenOfPath:
		return true
	}
	return false
}

// AccessToken is the answer to a request for the path tokenOfPath. The instance sends this token to
// the cloud to authenticate as its service account.
type AccessToken struct {
	AccessToken string `json:"accessToken"`
	ExpiresIn   int64  `json:"expiresIn"` // minimum time until the token expires, in seconds
}

// Paths returns every path with data of an instance.
func Paths() []string {
	all := make([]string, 0, len(allLeaves)+4)
	for _, l := range allLeaves {
		all = append(all, prefix+l.path)
	}
	return append(all, labelPrefix+"{key}", userDataPath, tokenOfPath, identityPath+"?audience={audience}")
}

// document returns the answer to a GET request: a string for plain text, or another value for JSON.
func (s *service) document(ctx context.Context, i cloudsim.Instance, r *http.Request) (any, error) {
	path := r.URL.Path
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	switch {
	case path == "/v1":
		return strings.Join(Paths(), "\n") + "\n", nil
	case path == userDataPath:
		d, err := s.cloud.GetUserData(ctx, i.ID)
		return found(d.UserData, path, err)
	case path == identityPath:
		doc, err := s.cloud.CreateIdentityDocument(ctx, i.ID, cloudsim.CreateIdentityDocument{Audience: r.URL.Query().Get("audience")})
		return found(doc.Token, path, err)
	case path == tokenOfPath:
		t, err := s.cloud.CreateInstanceToken(ctx, i.ID)
		if err != nil {
			return nil, err
		}
		return AccessToken{AccessToken: t.Secret, ExpiresIn: int64(cloudsim.InstanceTokenLife.Seconds()) / 2}, nil
	case strings.HasPrefix(path, labelPrefix):
		return found(i.Labels[strings.TrimPrefix(path, labelPrefix)], path, nil)
	}
	for _, l := range allLeaves {
		if path == prefix+l.path {
			return found(l.value(Of(i)), path, nil)
		}
	}
	return nil, errNoPath
}

func found(v any, path string, err error) (any, error) {
	if err == nil && (v == nil || v == "") {
		return nil, &httpError{http.StatusNotFound, path + " has no value for this instance"}
	}
	return v, err
}

// All yields each path of the document that has a value, together with this value. It does
// not yield the path of the whole document.
func (d Document) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, l := range allLeaves[1:] {
			v := l.value(d)
			if v == nil || v == "" {
				continue
			}
			if !yield(prefix+l.path, v) {
				return
			}
		}
	}
}
