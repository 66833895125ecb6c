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

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// Sizes of a page.
const (
	defaultPerPage = 25
	maxPerPage     = 50
)

// query contains the query parameters that all lists have in common.
type query struct {
	page, perPage int
	name          string
	equal         map[string]string            // labels by which the cloud selects
	keep          func(map[string]string) bool // whether the query selects these labels; nil: all labels
	sort          []string                     // e.g. name:desc; nil means by id
}

// parseQuery reads the query of a list. The query can sort by id and by the fields in
// sortable. A page size above maxPerPage becomes maxPerPage.
func parseQuery(q url.Values, sortable ...string) (out query, err error) {
	number := func(field string, usual int) int {
		if q.Get(field) == "" {
			return usual
		}
		n, parseErr := strconv.Atoi(q.Get(field))
		if parseErr != nil || n < 1 {
			err = cloudsim.InvalidField(field, "must be a number of at least 1, got "+strconv.Quote(clip(q.Get(field))))
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
			return out, cloudsim.InvalidField("sort", "must be a field such as id, with :asc or :desc, got "+strconv.Quote(clip(s)))
		}
		out.sort = append(out.sort, s)
	}
	if len(out.sort) == 1 && (out.sort[0] == "id" || out.sort[0] == "id:asc") {
		out.sort = nil
	}
	out.equal, out.keep, err = parseSelector(q.Get("label_selector"))
	return out, err
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

// isSelected reports whether the query selects a resource.
func (q query) isSelected(m cloudsim.Meta) bool {
	return (q.name == "" || dialect.OtherName(m) == q.name) && (q.keep == nil || q.keep(dialect.Visible(m.Labels)))
}

// cloudOptions returns the part of the query that the cloud evaluates.
func (q query) cloudOptions() cloudsim.ListOptions {
	o := cloudsim.ListOptions{Labels: q.equal}
	if q.name != "" {
		o.Name = dialect.Name(q.name)
	}
	return o
}

// compare orders two resources by the fields of the query.
func (q query) compare(a, b cloudsim.Meta) int {
	for _, s := range q.sort {
		field, direction, _ := strings.Cut(s, ":")
		c := 0
		switch field {
		case "name":
			c = strings.Compare(dialect.OtherName(a), dialect.OtherName(b))
		case "created":
			c = a.CreatedAt.Compare(b.CreatedAt)
		default: // the cloud's lists are in the order of the ids
			continue
		}
		if direction == "desc" {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// lister is a list method of the cloud's client.
type lister[T any] func(context.Context, cloudsim.ListOptions) (cloudsim.List[T], error)

// list returns a page of the resources that the query selects and for which the function
// filter returns true. A nil filter selects all resources.
//
// Hetzner's pages have numbers, but a page of the cloud begins after an id. If the cloud evaluates
// the whole query, the function list stores the last id of each page. Then the next page needs only
// one call to the cloud. In all other cases, the function list reads all resources.
func list[T cloudsim.Resource](r *dialect.Request, c *pageCursors, q query, from lister[T], filter func(T) bool) ([]T, meta, error) {
	selected := q.keep == nil && q.sort == nil && q.name == "" && filter == nil
	if selected {
		if after, ok := c.startOfPage(r, q); ok {
			o := q.cloudOptions()
			o.After, o.Limit = after, q.perPage
			l, err := from(r.Context(), o)
			if err != nil {
				return nil, meta{}, err
			}
			if l.Next != "" {
				c.remember(r, q, l.Next)
			}
			return l.Items, q.meta(len(l.Items), l.Next != ""), nil
		}
	}
	all, _, err := cloudsim.All(r.Context(), from, q.cloudOptions())
	if err != nil {
		return nil, meta{}, err
	}
	all = slices.DeleteFunc(all, func(v T) bool { return !q.isSelected(v.Head()) || filter != nil && !filter(v) })
	if slices.ContainsFunc(q.sort, func(s string) bool { return s == "id:desc" }) {
		slices.Reverse(all)
	}
	slices.SortStableFunc(all, func(a, b T) int { return q.compare(a.Head(), b.Head()) })
	items, m := slice(all, q)
	return items, m, nil
}

// The type call answers a call of Hetzner's API. It returns the HTTP status and the body.
type call = func(*dialect.Request) (status int, body any, err error)

// listCall returns a call that lists resources. The call answers with a page under the
// name of the resource. The parameter from is a list method of the cloud's client. The
// function selected returns a filter for the query. A nil function selects all resources.
// The function convert converts a page to Hetzner's format.
func listCall[T cloudsim.Resource, U any](a *api, name string, from func(*client.Client, context.Context, cloudsim.ListOptions) (cloudsim.List[T], error), selected func(url.Values) func(T) bool, convert func(*dialect.Request, []T) ([]U, error)) call {
	return func(r *dialect.Request) (int, any, error) {
		q, err := parseQuery(r.URL.Query(), "name", "created")
		if err != nil {
			return 0, nil, err
		}
		var filter func(T) bool
		if selected != nil {
			filter = selected(r.URL.Query())
		}
		page, m, err := list(r, &a.cursors, q, func(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[T], error) {
			return from(r.Cloud, ctx, o)
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

// convertEach returns a function that converts each resource of a page with fn.
func convertEach[T, U any](fn func(T) U) func(*dialect.Request, []T) ([]U, error) {
	return func(_ *dialect.Request, page []T) ([]U, error) {
		out := make([]U, 0, len(page))
		for _, v := range page {
			out = append(out, fn(v))
		}
		return out, nil
	}
}

// filterBy returns a function for listCall. Its filters select the resources for which the
// query parameter contains the result of the function value. Without this parameter, they
// select all resources.
func filterBy[T any](parameter string, value func(T) string) func(url.Values) func(T) bool {
	return func(q url.Values) func(T) bool {
		if !q.Has(parameter) {
			return nil
		}
		return func(v T) bool { return slices.Contains(q[parameter], value(v)) }
	}
}

// slice returns a page of a complete list.
func slice[T any](all []T, q query) ([]T, meta) {
	begin := min((q.page-1)*q.perPage, len(all))
	if q.page > len(all) { // also prevents an overflow
		begin = len(all)
	}
	end := min(begin+q.perPage, len(all))
	m := q.meta(end-begin, end < len(all))
	total, last := len(all), max(1, (len(all)+q.perPage-1)/q.perPage)
	m.Pagination.TotalEntries, m.Pagination.LastPage = &total, &last
	return all[begin:end], m
}

// meta describes a page with n entries. The parameter more reports whether another page
// follows.
func (q query) meta(n int, more bool) meta {
	p := pagination{Page: q.page, PerPage: q.perPage}
	if q.page > 1 {
		previous := q.page - 1
		p.PreviousPage = &previous
	}
	if more {
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

// pageCursors caches the id after which each page of a list begins. If cursors has no entry
// for a page, the dialect gives the same answer but reads more resources from the cloud.
type pageCursors struct {
	mu    sync.Mutex
	after map[[sha256.Size]byte]string
}

// maxCursors is the maximum number of entries. Before it adds another entry, cursors deletes all
// entries.
const maxCursors = 4096

// key identifies a page of a caller's list.
func (c *pageCursors) key(r *dialect.Request, page int) [sha256.Size]byte {
	v := r.URL.Query()
	v.Del("page")
	return sha256.Sum256([]byte(bearer(r) + "\x00" + r.URL.Path + "?" + v.Encode() + "\x00" + strconv.Itoa(page)))
}

// startOfPage returns the id after which the page of a query begins. It returns false if
// cursors has no entry for the page.
func (c *pageCursors) startOfPage(r *dialect.Request, q query) (string, bool) {
	if q.page == 1 {
		return "", true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id, ok := c.after[c.key(r, q.page)]
	return id, ok
}

// remember stores the last id of the page of a query, for the next page.
func (c *pageCursors) remember(r *dialect.Request, q query, last string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.after) >= maxCursors {
		clear(c.after)
	}
	c.after[c.key(r, q.page+1)] = last
}

// reply returns the body of a list: the items under the name of the resource, and the
// description of the page.
func reply[T any](name string, items []T, m meta) (int, any, error) {
	if items == nil {
		items = []T{}
	}
	return http.StatusOK, map[string]any{name: items, "meta": m}, nil
}
