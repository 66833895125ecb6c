package aws

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// listMatching executes a call that lists resources of the kind k. If the call contains ids, the
// result contains the resources with these ids. Otherwise the result is one page of all resources.
// In both cases, the result contains only resources that match the filters of the call.
//
// The result nextPage is the token of the next page, or "" for the last page. The function
// isVisible reports whether the call may return a resource, e.g. only a resource in the region of
// the request. If isVisible is nil, the call may return all resources.
func listMatching[T any, I ~string](q *query, k kind[T, I], isVisible func(T) bool) (found []T, nextPage string, err error) {
	ids, filters, p := q.textList(k.param), q.decodeFilters(), q.decodePage()
	if err := q.finish(); err != nil {
		return nil, "", err
	}
	match, err := k.matcher(filters)
	if err != nil {
		return nil, "", err
	}
	wanted := func(v T) bool { return (isVisible == nil || isVisible(v)) && match(v) }
	if len(ids) > 0 {
		if p != (page{}) {
			return nil, "", coded(http.StatusBadRequest, "InvalidParameterCombination", "MaxResults and NextToken cannot be used with ids")
		}
		found, err = readByIDs(q, k, ids, isVisible)
		return slices.DeleteFunc(found, func(v T) bool { return !match(v) }), "", err
	}
	o := cloudsim.ListOptions{After: p.after, Limit: cloudsim.MaxPageSize}
	if len(filters) == 0 && p.limit > 0 {
		o.Limit = p.limit + 1 // one more than the page, to find out whether another page follows
	}
	for _, f := range filters {
		if name, ok := f.literalValue(); ok && f.name == k.named {
			o.Name = name // the cloud has an index of names
		}
	}
	for {
		l, err := k.all(q.Cloud, q.Context(), o)
		if err != nil {
			return nil, "", err
		}
		for _, v := range l.Items {
			if !wanted(v) {
				continue
			}
			if p.limit > 0 && len(found) == p.limit {
				return found, nextToken(k.id(found[len(found)-1])), nil
			}
			found = append(found, v)
		}
		if l.Next == "" {
			return found, "", nil
		}
		o.After = l.Next
	}
}

// readByIDs reads the resources with the given ids. The function isVisible reports whether the
// caller may find a resource. If isVisible is nil, the caller may find all resources. If a resource
// does not exist, or if isVisible returns false, readByIDs returns the error k.errNotFound.
func readByIDs[T any, I ~string](q *query, k kind[T, I], ids []string, isVisible func(T) bool) (found []T, err error) {
	seen := map[I]bool{}
	for _, id := range ids {
		own, err := k.ownID(id)
		if err != nil {
			return nil, err
		}
		if seen[own] {
			continue
		}
		seen[own] = true
		v, err := k.get(q.Cloud, q.Context(), own)
		if errors.Is(err, cloudsim.NotFound) || err == nil && isVisible != nil && !isVisible(v) {
			return nil, k.errNotFound(id)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, v)
	}
	return found, nil
}

func listAll[T any, I ~string](q *query, k kind[T, I]) ([]T, error) {
	found, _, err := cloudsim.All(q.Context(), func(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[T], error) {
		return k.all(q.Cloud, ctx, o)
	}, cloudsim.ListOptions{})
	return found, err
}

// requestedNames is the set of names in a request. The value for a name is true after the method
// match has found a resource with this name.
type requestedNames map[string]bool

func newRequestedNames(all []string) requestedNames {
	n := requestedNames{}
	for _, s := range all {
		n[s] = false
	}
	return n
}

// match reports whether the set is empty or contains the given name. If the set contains the name,
// match sets the value for the name to true.
func (n requestedNames) match(name string) bool {
	if len(n) == 0 {
		return true
	}
	if _, ok := n[name]; ok {
		n[name] = true
		return true
	}
	return false
}

// checkFound returns an error if match has not found all requested names. The error contains the
// first missing name in alphabetical order.
func (n requestedNames) checkFound(code, one string) error {
	for _, name := range slices.Sorted(maps.Keys(n)) {
		if !n[name] {
			return coded(http.StatusBadRequest, code, "the "+one+" "+clip(name)+" does not exist")
		}
	}
	return nil
}
