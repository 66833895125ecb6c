package hcloud

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

const (
	defaultPerPage = 25
	maxPerPage     = 50
)

// query contains the query parameters that all lists have in common.
type query struct {
	page, perPage int
	name          string
	equal         map[string]string            // labels by which the cloud selects
	keep          func(map[string]string) bool // reports whether the query selects a resource with these labels; nil selects all
	sort          []string                     // e.g. name:desc; nil means the usual order of the list
}

// parseQuery decodes the query of a call that lists resources. The query can sort the list by id
// and by the fields in sortable. If the query contains a page size above maxPerPage, the page size
// is maxPerPage.
func parseQuery(q url.Values, sortable ...string) (out query, err error) {
	number := func(field string, usual int) int {
		if q.Get(field) == "" {
			return usual
		}
		n, parseErr := strconv.Atoi(q.Get(field))
		if parseErr != nil || n < 1 {
			err = cloudsim.InvalidField(field, "must be a number of at least 1, got "+strconv.Quote(cloudsim.Clip(q.Get(field))))
		}
		return n
	}
	out = query{page: number("page", 1), perPage: min(number("per_page", defaultPerPage), maxPerPage), name: q.Get("name")}
	if err != nil {
		return out, err
	}
	for _, s := range q["sort"] {
		field, direction, _ := strings.Cut(s, ":")
		if field != "id" && !slices.Contains(sortable, field) || direction != "" && direction != "asc" && direction != "desc" {
			return out, cloudsim.InvalidField("sort", "must be a field such as id, with :asc or :desc, got "+strconv.Quote(cloudsim.Clip(s)))
		}
		out.sort = append(out.sort, s)
	}
	out.equal, out.keep, err = parseSelector(q.Get("label_selector"))
	return out, err
}

// isSelected reports whether the query selects a resource by its name and its labels. It does not
// check the labels in q.equal, because the cloud has already checked them.
func (q query) isSelected(m cloudsim.Meta) bool {
	return (q.name == "" || dialect.OtherName(m) == q.name) && (q.keep == nil || q.keep(dialect.Visible(m.Labels)))
}

// cloudOptions returns the options for a list call to the cloud. They contain the part of the query
// that the cloud can evaluate.
func (q query) cloudOptions() cloudsim.ListOptions {
	o := cloudsim.ListOptions{Labels: q.equal}
	if q.name != "" {
		o.Name = dialect.Name(q.name)
	}
	return o
}

// compare compares two resources by the fields in q.sort. The function byField compares the
// resources by one field. Both functions return a negative number if the first resource comes
// first.
func (q query) compare(byField func(field string) int) int {
	for _, s := range q.sort {
		field, direction, _ := strings.Cut(s, ":")
		c := byField(field)
		if direction == "desc" {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

type lister[T any] func(context.Context, cloudsim.ListOptions) (cloudsim.List[T], error)

// list returns a page of the resources that the query selects and for which filter returns true. A
// nil filter selects all resources.
//
// A client of Hetzner's API requests a page by its number, but a client of this cloud requests a
// page by the last id of the previous page. If the cloud itself can select and sort the resources
// of the query, list stores the last id of each page. Then the next page needs only one call to the
// cloud. Otherwise list reads all resources, and then selects and sorts them.
func list[T cloudsim.Resource](r *dialect.Request, c *pageCursors, q query, listMethod lister[T], filter func(T) bool) ([]T, meta, error) {
	if len(q.sort) == 1 && (q.sort[0] == "id" || q.sort[0] == "id:asc") {
		q.sort = nil // the lists of the cloud are already in the order of the ids
	}
	selected := q.keep == nil && q.sort == nil && q.name == "" && filter == nil
	if selected {
		if after, ok := c.startOfPage(r, q); ok {
			o := q.cloudOptions()
			o.After, o.Limit = after, q.perPage
			l, err := listMethod(r.Context(), o)
			if err != nil {
				return nil, meta{}, err
			}
			if l.Next != "" {
				c.rememberLast(r, q, l.Next)
			}
			return l.Items, q.meta(len(l.Items), l.Next != ""), nil
		}
	}
	all, _, err := cloudsim.All(r.Context(), listMethod, q.cloudOptions())
	if err != nil {
		return nil, meta{}, err
	}
	all = slices.DeleteFunc(all, func(v T) bool { return !q.isSelected(v.Head()) || filter != nil && !filter(v) })
	isID := func(s string) bool { return s == "id" || s == "id:asc" || s == "id:desc" }
	if i := slices.IndexFunc(q.sort, isID); i >= 0 {
		if q.sort[i] == "id:desc" {
			slices.Reverse(all)
		}
		q.sort = q.sort[:i] // two resources never have the same id, so the later fields have no effect
	}
	slices.SortStableFunc(all, func(a, b T) int {
		return q.compare(func(field string) int {
			switch field {
			case "name":
				return strings.Compare(dialect.OtherName(a.Head()), dialect.OtherName(b.Head()))
			case "created":
				return a.Head().CreatedAt.Compare(b.Head().CreatedAt)
			}
			return 0 // the list is already in the order of the ids
		})
	})
	items, m := slicePage(all, q)
	return items, m, nil
}

// A call is a function that executes a call of Hetzner's API. It returns the HTTP status and the
// body of the answer.
type call = func(*dialect.Request) (status int, body any, err error)

// listCall returns a call that lists resources. The parameters of listCall are:
//   - name: field of the answer that contains the page
//   - listMethod: list method of the cloud's client
//   - newFilter: nil, or a function that returns a filter for a query
//   - convert: function that converts a page to Hetzner's format
func listCall[T cloudsim.Resource, U any](a *api, name string, listMethod func(*client.Client, context.Context, cloudsim.ListOptions) (cloudsim.List[T], error), newFilter func(url.Values) func(T) bool, convert func(*dialect.Request, []T) ([]U, error)) call {
	return func(r *dialect.Request) (int, any, error) {
		q, err := parseQuery(r.URL.Query(), "name", "created")
		if err != nil {
			return 0, nil, err
		}
		var filter func(T) bool
		if newFilter != nil {
			filter = newFilter(r.URL.Query())
		}
		page, m, err := list(r, &a.cursors, q, func(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[T], error) {
			return listMethod(r.Cloud, ctx, o)
		}, filter)
		if err != nil {
			return 0, nil, err
		}
		items, err := convert(r, page)
		if err != nil {
			return 0, nil, err
		}
		return reply(name, items, m)
	}
}

func convertEach[T, U any](fn func(T) U) func(*dialect.Request, []T) ([]U, error) {
	return func(_ *dialect.Request, page []T) ([]U, error) {
		out := make([]U, 0, len(page))
		for _, v := range page {
			out = append(out, fn(v))
		}
		return out, nil
	}
}

// filterBy returns a function for the argument newFilter of listCall. If the URL query contains the
// given parameter, e.g. "status", the function returns a filter. The filter selects a resource if
// valueOf returns one of the parameter's values for this resource. If the URL query does not
// contain the parameter, the function returns nil.
func filterBy[T any](parameter string, valueOf func(T) string) func(url.Values) func(T) bool {
	return func(q url.Values) func(T) bool {
		if !q.Has(parameter) {
			return nil
		}
		return func(v T) bool { return slices.Contains(q[parameter], valueOf(v)) }
	}
}

func slicePage[T any](items []T, q query) ([]T, meta) {
	begin := min((q.page-1)*q.perPage, len(items))
	if q.page > len(items) { // also prevents an overflow
		begin = len(items)
	}
	end := min(begin+q.perPage, len(items))
	m := q.meta(end-begin, end < len(items))
	total, last := len(items), max(1, (len(items)+q.perPage-1)/q.perPage)
	m.Pagination.TotalEntries, m.Pagination.LastPage = &total, &last
	return items[begin:end], m
}

// meta describes a page with n entries. If hasMore is true, another page follows, and the total
// number of entries is unknown.
func (q query) meta(n int, hasMore bool) meta {
	p := pagination{Page: q.page, PerPage: q.perPage}
	if q.page > 1 {
		previous := q.page - 1
		p.PreviousPage = &previous
	}
	if hasMore {
		next := q.page + 1
		p.NextPage = &next
		return meta{p}
	}
	if n > 0 || q.page == 1 {
		last, total := q.page, (q.page-1)*q.perPage+n
		p.LastPage, p.TotalEntries = &last, &total
	}
	return meta{p}
}

// pageCursors caches the id after which each page of a list begins. If the cache has no entry for a
// page, the dialect reads the whole list from the cloud, and selects the page from this list.
//
// An entry is correct only for a client that has just read the previous page. If a client deletes a
// resource on an earlier page, the following pages begin after other ids. Then the entries are
// wrong for clients that read these pages later. So the dialect uses each entry for at most one
// call, and only for the duration cursorsFor.
type pageCursors struct {
	mu    sync.Mutex
	after map[[sha256.Size]byte]pageCursor
}

type pageCursor struct {
	lastID string // last id of the previous page
	until  time.Time
}

// cursorsFor is the lifetime of an entry in pageCursors.
const cursorsFor = 10 * time.Second

// maxCursors is the maximum number of entries in pageCursors. If there are maxCursors entries, the
// method rememberLast deletes all of them before it adds a new entry.
const maxCursors = 4096

func (c *pageCursors) key(r *dialect.Request, page int) [sha256.Size]byte {
	v := r.URL.Query()
	v.Del("page")
	return sha256.Sum256([]byte(bearer(r) + "\x00" + r.URL.Path + "?" + v.Encode() + "\x00" + strconv.Itoa(page)))
}

// startOfPage returns the id after which the page of a query begins, and deletes the entry for the
// page. It returns false if the cache has no entry for the page.
func (c *pageCursors) startOfPage(r *dialect.Request, q query) (string, bool) {
	if q.page == 1 {
		return "", true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := c.key(r, q.page)
	cursor, ok := c.after[key]
	delete(c.after, key)
	return cursor.lastID, ok && time.Now().Before(cursor.until)
}

func (c *pageCursors) rememberLast(r *dialect.Request, q query, lastID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.after) >= maxCursors {
		clear(c.after)
	}
	c.after[c.key(r, q.page+1)] = pageCursor{lastID, time.Now().Add(cursorsFor)}
}

func reply[T any](name string, items []T, m meta) (int, any, error) {
	if items == nil {
		items = []T{}
	}
	return http.StatusOK, map[string]any{name: items, "meta": m}, nil
}
