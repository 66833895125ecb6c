package cloudsim

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Meta contains the fields that every resource has besides its id.
type Meta struct {
	Name      string            `json:"name" doc:"Unique among the resources of this kind in its project"`
	Project   ProjectID         `json:"project,omitempty" doc:"Project that owns the resource; empty for resources that all projects share"`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels, which lists can filter by"`
	Revision  uint64            `json:"revision" doc:"Journal revision of the resource's last change, which is also its ETag"`
	Operation OperationID       `json:"operation,omitempty" doc:"Id of the last operation on the resource"`
	CreatedAt time.Time         `json:"createdAt" doc:"RFC 3339, on the cloud's clock"`
	UpdatedAt time.Time         `json:"updatedAt" doc:"RFC 3339, on the cloud's clock"`
}

// Limits that apply to all resources.
const (
	MaxNameLength   = 63
	MaxLabels       = 64
	MaxLabelKey     = 128
	MaxLabelValue   = 256
	DefaultPageSize = 500
	MaxPageSize     = 5000
	// MaxInstancesInFilter is the maximum length of ListOptions.Instances.
	MaxInstancesInFilter = 100
)

// NamePattern is the format of a name: an RFC 1123 label, because an instance's
// name is also its host name.
const NamePattern = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`

var (
	nameRE     = regexp.MustCompile(NamePattern)
	labelKeyRE = regexp.MustCompile(`^[A-Za-z0-9]([-_./A-Za-z0-9]*[A-Za-z0-9])?$`)
)

func (c *checks) name(field, s string) {
	switch {
	case s == "":
		c.addf(field, "is required")
	case !nameRE.MatchString(s):
		c.addf(field, "must be lower-case letters, digits and dashes, at most %d characters, and not begin or end with a dash; got %q", MaxNameLength, Clip(s))
	}
}

// maxReference is the maximum length, in bytes, of an id or name that refers to another
// resource.
const maxReference = 128

// reference checks the length of a required id that refers to another resource. The engine
// checks later whether the resource exists.
func (c *checks) reference(field, id string) {
	if id == "" {
		c.addf(field, "is required")
	}
	c.optionalReference(field, id)
}

func (c *checks) optionalReference(field, id string) {
	if len(id) > maxReference {
		c.addf(field, "must be an id of at most %d characters, got %d", maxReference, len(id))
	}
}

func (c *checks) labels(m map[string]string) {
	const field = "labels"
	if len(m) > MaxLabels {
		c.addf(field, "has %d entries, at most %d are allowed", len(m), MaxLabels)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if len(k) > MaxLabelKey || !labelKeyRE.MatchString(k) {
			c.addf(field, "has the invalid key %q: a key has letters, digits, '-', '_', '.' and '/', and at most %d characters", Clip(k), MaxLabelKey)
		}
		if v := m[k]; len(v) > MaxLabelValue || !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			c.addf(field+"."+Clip(k), "must be printable UTF-8 text of at most %d bytes", MaxLabelValue)
		}
	}
}

// Clip keeps at most 80 bytes of a text. If the text is longer, Clip appends "…". So an error
// message stays short even if the caller sent a long value.
func Clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

// List is one page of resources, sorted by id.
type List[T any] struct {
	Items []T `json:"items" doc:"Resources of one page, sorted by id"`
	// Revision is the journal revision of this page. A caller that reads all pages, and
	// then watches from the revision of the first page, misses no change.
	Revision uint64 `json:"revision" doc:"Journal revision of the page. After a client has read all pages, a watch from the revision of the first page misses no event"`
	Next     string `json:"next,omitempty" doc:"Value of the query parameter 'after' in the request for the next page; absent on the last page"`
}

// ListOptions select resources and a page of a list. The zero value selects all
// resources and the first page.
type ListOptions struct {
	Name   string            // exact name
	Labels map[string]string // required labels with these values
	Zone   string            // only resources of this zone, for kinds with a zone
	Source string            // only copies of the disk or snapshot with this id
	After  string            // List.Next of the previous page
	Limit  int               // page size, at most MaxPageSize; 0 means DefaultPageSize

	Network   NetworkID    // only resources in this network, for kinds with a network
	Instances []InstanceID // only disks with an attachment to one of these instances, at most MaxInstancesInFilter
	Kind      string       // only records of this kind
	Target    string       // only operations on the resource with this id
	State     string       // only operations in this state
}

// Resource is a type that contains a Meta. Head returns this Meta.
type Resource interface{ Head() Meta }

// Head implements Resource.
func (m Meta) Head() Meta { return m }

// All reads all pages of a list and returns their items. The parameter page is a function that
// returns one page. The returned revision is the revision of the first page. A watch from this
// revision misses no event, but it can report a change that a later page already contains.
func All[T any](ctx context.Context, page func(context.Context, ListOptions) (List[T], error), o ListOptions) ([]T, uint64, error) {
	var all []T
	var rev uint64
	for {
		l, err := page(ctx, o)
		if err != nil {
			return nil, 0, err
		}
		if rev == 0 {
			rev = l.Revision
		}
		all = append(all, l.Items...)
		if l.Next == "" {
			return all, rev, nil
		}
		o.After = l.Next
	}
}
