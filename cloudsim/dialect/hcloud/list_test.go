package hcloud_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// TestPages proves, for several page sizes, that the pages of a list contain each server once, in
// the order of the list. It also reads page 3 without page 2, so the dialect's cache does not
// contain the position of page 3.
func TestPages(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	var want []int64
	for i := range 7 {
		want = append(want, w.server(t, w.instance(t, fmt.Sprintf("node-%d", i))).ID)
	}
	for size := 1; size <= 8; size++ {
		var got []int64
		for page := 1; page != 0; {
			all, resp, err := w.Server.List(ctx, sdk.ServerListOpts{ListOpts: sdk.ListOpts{Page: page, PerPage: size}})
			for _, s := range must(t, all, resp, err) {
				got = append(got, s.ID)
			}
			if p := resp.Meta.Pagination; p.Page != page || p.PerPage != size || p.PreviousPage != page-1 || p.NextPage == 0 && (p.TotalEntries != 7 || p.LastPage != page) {
				t.Errorf("page %d of size %d: got %+v", page, size, p)
			}
			page = resp.Meta.Pagination.NextPage
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of size %d: got %v, want %v", size, got, want)
		}
	}
	freshWorld := start(t)
	for i := range 7 {
		freshWorld.instance(t, fmt.Sprintf("node-%d", i))
	}
	all, resp, err := freshWorld.Server.List(ctx, sdk.ServerListOpts{ListOpts: sdk.ListOpts{Page: 3, PerPage: 2}})
	if must(t, all, resp, err); len(all) != 2 || all[0].ID != 5 || resp.Meta.Pagination.TotalEntries != 7 {
		t.Errorf("page 3 without page 2: got %v, %+v; want 2 servers of 7", all, resp.Meta.Pagination)
	}
	all, resp, err = freshWorld.Server.List(ctx, sdk.ServerListOpts{ListOpts: sdk.ListOpts{Page: 1 << 62, PerPage: 50}})
	if must(t, all, resp, err); len(all) != 0 {
		t.Errorf("page after the last page: got %v, want none", all)
	}
}

func TestSort(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	for _, name := range []string{"b", "c", "a"} {
		w.instance(t, name)
	}
	for sort, want := range map[string][]string{"id:asc": {"b", "c", "a"}, "id:desc": {"a", "c", "b"}, "name": {"a", "b", "c"}, "name:desc": {"c", "b", "a"}} {
		all, err := w.Server.AllWithOpts(ctx, sdk.ServerListOpts{Sort: []string{sort}})
		if got := names(all, func(s *sdk.Server) string { return s.Name }); err != nil || !slices.Equal(got, want) {
			t.Errorf("sorted by %s: got %v, error %v; want %v", sort, got, err, want)
		}
	}
}

// TestSelectors proves that a label selector selects the same servers as a selector of Kubernetes.
func TestSelectors(t *testing.T) {
	ctx := context.Background()
	w := start(t)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a repeatable test
	sets := map[string]map[string]string{}
	for i := range 20 {
		l := map[string]string{}
		for _, k := range []string{"a", "b", "x.io/c"} {
			if rng.IntN(3) > 0 {
				l[k] = []string{"1", "2", ""}[rng.IntN(3)]
			}
		}
		name := fmt.Sprintf("node-%d", i)
		sets[name] = l
		if _, err := w.cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small", Labels: l}); err != nil {
			t.Fatal(err)
		}
	}
	terms := []string{"a", "!a", "a=1", "a==2", "a!=1", "a in (1,2)", "a notin (1)", "b=", "b", "!b", "x.io/c=1", "x.io/c in (2)", "b in (1)"}
	for range 60 {
		s := terms[rng.IntN(len(terms))]
		for range rng.IntN(3) {
			s += "," + terms[rng.IntN(len(terms))]
		}
		sel, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, name := range slices.Sorted(maps.Keys(sets)) {
			if sel.Matches(labels.Set(sets[name])) {
				want = append(want, name)
			}
		}
		all, err := w.Server.AllWithOpts(ctx, sdk.ServerListOpts{ListOpts: sdk.ListOpts{LabelSelector: s}})
		got := names(all, func(s *sdk.Server) string { return s.Name })
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("selector %q: got %v, error %v; want %v", s, got, err, want)
		}
	}
}

// TestSortByID proves that the list of actions and the list of locations are in the order that the
// query requests. The ids of locations are hashes, so their order differs from the order of the
// names.
func TestSortByID(t *testing.T) {
	w := start(t)
	actions := "/actions?"
	for _, name := range []string{"a", "b"} {
		actions += fmt.Sprintf("id=%d&", dialect.Number(w.instance(t, name).Operation))
	}
	for path, field := range map[string]string{actions: "actions", "/locations?": "locations"} {
		for _, sort := range []string{"id", "id:asc", "id:desc"} {
			var got []int64
			for _, e := range do[map[string]json.RawMessage](t, w, http.MethodGet, path+"sort="+sort) {
				var entries []struct{ ID int64 }
				if json.Unmarshal(e, &entries) == nil { // the other value is the description of the page
					for _, e := range entries {
						got = append(got, e.ID)
					}
				}
			}
			want := slices.Sorted(slices.Values(got))
			if sort == "id:desc" {
				slices.Reverse(want)
			}
			if len(got) < 2 || !slices.Equal(got, want) {
				t.Errorf("%s sorted by %s: got %v, want %v", field, sort, got, want)
			}
		}
	}
}

// TestSortByIDAndName proves that the sort fields after the field id have no effect.
func TestSortByIDAndName(t *testing.T) {
	w := start(t)
	for _, name := range []string{"b", "c", "a"} {
		w.instance(t, name)
	}
	for sort, want := range map[string][]string{
		"sort=id:desc&sort=name": {"a", "c", "b"}, "sort=id&sort=name": {"b", "c", "a"}, "sort=name:desc&sort=id": {"c", "b", "a"},
	} {
		var got []string
		for _, s := range do[struct{ Servers []struct{ Name string } }](t, w, http.MethodGet, "/servers?"+sort).Servers {
			got = append(got, s.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", sort, got, want)
		}
	}
}
