// Package hcloud translates calls of Hetzner Cloud's API to calls of this cloud's API. So Hetzner's
// cloud controller manager, CSI driver and command line run unmodified against this cloud. The
// formats of requests and answers follow https://docs.hetzner.cloud.
//
// The package refuses features that this cloud does not have, such as load balancers that decode
// HTTP. It accepts properties that have no effect in this cloud, such as the algorithm of a load
// balancer. It refuses actions that this cloud cannot execute, such as the mount of a new volume.
// This cloud also cannot install an image or SSH keys on a server. But the package accepts an image
// and SSH keys for a new server, because clients send them.
package hcloud

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// Name is the name of the dialect.
const Name = "hcloud"

// New returns the dialect for Hetzner Cloud.
func New() dialect.Dialect {
	a := &api{cursors: pageCursors{after: map[[sha256.Size]byte]pageCursor{}}}
	return dialect.Dialect{
		Name: Name, Title: "Hetzner Cloud", Calls: a.calls(), Refusals: refusalReasons,
		Token:  func(r *dialect.Request) (string, error) { return bearer(r), nil },
		Refuse: refuse, IDHeader: "X-Correlation-Id",
		CloudHeaders: []string{headerLimit, headerRemaining, headerReset},
		Variables: func(url string) []dialect.Variable {
			return []dialect.Variable{{Name: "HCLOUD_ENDPOINT", Value: url + "/v1"}}
		},
		DiskLink:      diskLink,
		TokenVariable: "HCLOUD_TOKEN",
	}
}

// The methods of api are calls of the dialect. The fields of api are caches that avoid repeated
// calls to the cloud.
type api struct {
	types   typeCache
	cursors pageCursors
}

const maxRetries = 10

// retrying returns a copy of a request with a retrying client: if a rate limit refuses a call, this
// client waits and repeats the call. It does not repeat POST calls.
//
// The dialect uses the copy after it has created or deleted a resource. Without the retries, a rate
// limit could make the dialect return an error at this point. Hetzner's Go library would then
// repeat its call to the dialect. The repeated call would fail, because the resource already
// exists, or no longer exists.
func retrying(r *dialect.Request) *dialect.Request {
	out, cloud := *r, *r.Cloud
	cloud.Retries = maxRetries
	out.Cloud = &cloud
	return &out
}

// detached returns the copy of r that the method dialect.Request.Detached creates. The copy has a
// retrying client (see the function retrying).
func detached(r *dialect.Request) (out *dialect.Request, cancel context.CancelFunc) {
	out, cancel = r.Detached()
	return retrying(out), cancel
}

// bearer returns the token in the header Authorization. It returns "" if the header contains no
// bearer token.
func bearer(r *dialect.Request) string {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// target returns the id in the path of a request. If the path does not contain a number of at least
// 1, target returns NotFound.
func target(r *dialect.Request) (int64, error) {
	n, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || n < 1 {
		return 0, cloudsim.Errorf(cloudsim.NotFound, "no resource has the id %.40q", r.PathValue("id"))
	}
	return n, nil
}

// id returns this cloud's id of the resource in the path of a request.
func id[S ~string](r *dialect.Request, prefix string) (S, error) {
	n, err := target(r)
	if err != nil {
		return "", err
	}
	return dialect.ID[S](prefix, n), nil
}

const (
	prefixInstance     = "i"
	prefixDisk         = "disk"
	prefixLoadBalancer = "lb"
	prefixNetwork      = "net"
	prefixOperation    = "op"
	prefixRecord       = "rec"
)

// maxName is the maximum length of a name in characters. Hetzner's limit is 64 characters for most
// resources. The limit of this dialect is higher, because a CSI driver must accept volume names of
// 128 characters.
const maxName = 128

// newName returns the name and the labels that a new resource gets in this cloud. If a resource
// with the requested name exists, Hetzner's API always returns an error. This cloud returns an
// error only if the existing resource has other properties or labels. Otherwise it returns the
// existing resource. So newName adds the label labelRequest with the id of the request. Two
// requests with different ids then have different labels, and this cloud returns an error for the
// second request. A client gets the existing resource only if it repeats the request with the same
// X-Request-Id.
func newName(r *dialect.Request, name string, labels *map[string]string) (string, map[string]string, error) {
	var given map[string]string
	if labels != nil {
		given = *labels
	}
	if err := checkLabels(given); err != nil {
		return "", nil, err
	}
	all, err := dialect.WithLabels(given, map[string]string{labelRequest: r.ID})
	if err != nil {
		return "", nil, err
	}
	own, err := setName(all, name)
	return own, all, err
}

// setName returns the name of a resource in this cloud for a name in Hetzner's API. If this cloud
// does not allow Hetzner's name, setName returns a hash of this name, and stores the name in a
// label. It returns Invalid for a name that is empty, too long or not printable.
func setName(labels map[string]string, name string) (string, error) {
	printable := !strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
	if n := utf8.RuneCountInString(name); n < 1 || n > maxName || len(name) > cloudsim.MaxLabelValue || !printable {
		return "", cloudsim.InvalidField("name", fmt.Sprintf("must be printable text of 1 to %d characters and at most %d bytes", maxName, cloudsim.MaxLabelValue))
	}
	own := dialect.Name(name)
	if labels[dialect.NameLabel] = name; own == name {
		delete(labels, dialect.NameLabel)
	}
	return own, nil
}

// labelRequest is the label with the id of the request that created a resource.
const labelRequest = dialect.LabelPrefix + "request"

// newLabels returns the labels of a resource after an update. If the request contains no labels,
// the result is a copy of the existing labels. Otherwise the result contains the requested labels,
// and the labels that the dialect itself has added to the resource. The result is never nil.
func newLabels(given *map[string]string, existing map[string]string) (map[string]string, error) {
	if given == nil {
		return dialect.CloneLabels(existing), nil
	}
	if err := checkLabels(*given); err != nil {
		return nil, err
	}
	return dialect.WithLabels(*given, existing)
}

type updateResource struct {
	Name   string             `json:"name"`
	Labels *map[string]string `json:"labels"`
}

// newLabels returns the new labels of the resource. It returns Unsupported if the request
// changes the name of the resource, because this cloud cannot rename resources.
func (u updateResource) newLabels(m cloudsim.Meta) (map[string]string, error) {
	if u.Name != "" && u.Name != dialect.OtherName(m) {
		return nil, dialect.Unsupported{What: "a change of the name", Why: "create another resource"}
	}
	return newLabels(u.Labels, m.Labels)
}

// idOf returns Hetzner's id for an entry of a catalogue, such as a location. The id is a hash of
// the entry's name, because the entry has no id in this cloud.
func idOf(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(sum[0])<<22 | int64(sum[1])<<14 | int64(sum[2])<<6 | int64(sum[3])>>2 | 1<<30
}

// typeCache caches the instance types of the cloud. The constant typesFor is the lifetime of the
// cached types. Each server in an answer contains its type, so each answer would otherwise need
// another call to the cloud. Only a restart of the cloud changes the instance types.
type typeCache struct {
	mu    sync.Mutex
	until time.Time
	byID  map[string]cloudsim.InstanceType
}

const typesFor = 10 * time.Second

func (t *typeCache) get(r *dialect.Request) (map[string]cloudsim.InstanceType, error) {
	t.mu.Lock()
	byID, until := t.byID, t.until
	t.mu.Unlock()
	if time.Now().Before(until) {
		return byID, nil
	}
	// During this call, the cache is not locked. So a slow answer delays only this caller.
	all, _, err := cloudsim.All(r.Context(), r.Cloud.ListInstanceTypes, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	byID = make(map[string]cloudsim.InstanceType, len(all))
	for _, it := range all {
		byID[it.Name] = it
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID, t.until = byID, time.Now().Add(typesFor)
	return byID, nil
}
