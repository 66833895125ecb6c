package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func record(kind, name, document string) cloudsim.CreateRecord {
	return cloudsim.CreateRecord{Kind: kind, Name: name, Document: json.RawMessage(document)}
}

// TestRecords proves that two records of the same kind have different names. It
// also proves that creation and update compare the JSON values of documents,
// not their text.
func TestRecords(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	r, err := e.CreateRecord(ctx, record("security-group", "Web servers <1>", `{"a": 1, "b": ["<x>"]}`))
	if err != nil || r.ID != "rec-000001" {
		t.Fatalf("creation: got %+v, error %v; want rec-000001", r, err)
	}
	if repeated, err := e.CreateRecord(ctx, record("security-group", "Web servers <1>", `{"b":["<x>"],"a":1}`)); err != nil || repeated.ID != r.ID {
		t.Errorf("repeated creation: got %+v, error %v; want the existing record", repeated, err)
	}
	if _, err := e.CreateRecord(ctx, record("security-group", "Web servers <1>", `{}`)); !errors.Is(err, cloudsim.Exists) {
		t.Errorf("creation with another document: got error %v, want Exists", err)
	}
	other, err := e.CreateRecord(ctx, record("target-group", "Web servers <1>", `[]`))
	if err != nil || other.ID == r.ID {
		t.Fatalf("creation with the same name and another kind: got %+v, error %v; want a new record", other, err)
	}

	same, err := e.UpdateRecord(ctx, r.ID, cloudsim.UpdateRecord{Document: json.RawMessage(`{"b":["<x>"],"a":1}`)}, r.Revision)
	if err != nil || same.Revision != r.Revision {
		t.Errorf("update that changes nothing: got revision %d, error %v; want %d", same.Revision, err, r.Revision)
	}
	changed, err := e.UpdateRecord(ctx, r.ID, cloudsim.UpdateRecord{Name: "web", Labels: map[string]string{"team": "shop"}, Document: json.RawMessage(`12345678901234567890`)}, r.Revision)
	if err != nil || changed.Name != "web" || string(changed.Document) != "12345678901234567890" || changed.Labels["team"] != "shop" {
		t.Errorf("update: got %+v, error %v", changed, err)
	}
	if _, err := e.UpdateRecord(ctx, r.ID, cloudsim.UpdateRecord{Document: json.RawMessage(`1`)}, r.Revision); !errors.Is(err, cloudsim.Stale) {
		t.Errorf("update with an old revision: got error %v, want Stale", err)
	}
	third, err := e.CreateRecord(ctx, record("security-group", "third", `null`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.UpdateRecord(ctx, third.ID, cloudsim.UpdateRecord{Name: "web", Document: json.RawMessage(`null`)}, 0); !errors.Is(err, cloudsim.Exists) {
		t.Errorf("update to a used name: got error %v, want Exists", err)
	}

	got, err := e.GetRecord(ctx, r.ID)
	if diff := cmp.Diff(changed, got); err != nil || diff != "" {
		t.Errorf("record differs from the updated record: error %v\n%s", err, diff)
	}
	if err := e.DeleteRecord(ctx, r.ID, r.Revision); !errors.Is(err, cloudsim.Stale) {
		t.Errorf("deletion with an old revision: got error %v, want Stale", err)
	}
	if err := e.DeleteRecord(ctx, r.ID, changed.Revision); err != nil {
		t.Error(err)
	}
	if _, err := e.GetRecord(ctx, r.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("GetRecord after the deletion: got error %v, want NotFound", err)
	}
	if w, err := e.Why(ctx, string(r.ID)); err != nil || !w.Gone || len(w.Steps) != 3 {
		t.Errorf("why: got %+v, error %v; want the creation, the update and the deletion", w, err)
	}
}

// TestListRecords proves that ListRecords filters records by kind and name. It tests a caller with
// a role in one project and a caller with a role in all projects.
func TestListRecords(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	project := enter(t, e, "secret", engine.DefaultProject)
	for _, kind := range []string{"a", "b"} {
		for n := range 5 {
			req := record(kind, fmt.Sprint("r", n), `{}`)
			req.Labels = map[string]string{"even": strconv.FormatBool(n%2 == 0)}
			if _, err := e.CreateRecord(project, req); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, ctx := range []context.Context{project, engine.AsCloud(t.Context())} {
		for name, tc := range map[string]struct {
			o    cloudsim.ListOptions
			want []cloudsim.RecordID
		}{
			"name":           {cloudsim.ListOptions{Name: "r1"}, []cloudsim.RecordID{"rec-000002", "rec-000007"}},
			"kind and name":  {cloudsim.ListOptions{Kind: "b", Name: "r1"}, []cloudsim.RecordID{"rec-000007"}},
			"kind and label": {cloudsim.ListOptions{Kind: "b", Labels: map[string]string{"even": "false"}}, []cloudsim.RecordID{"rec-000007", "rec-000009"}},
			"a later page":   {cloudsim.ListOptions{Kind: "a", After: "rec-000003"}, []cloudsim.RecordID{"rec-000004", "rec-000005"}},
			"unknown kind":   {cloudsim.ListOptions{Kind: "r1"}, nil},
		} {
			l, err := e.ListRecords(ctx, tc.o)
			var got []cloudsim.RecordID
			for _, r := range l.Items {
				got = append(got, r.ID)
			}
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, error %v; want %v", name, got, err, tc.want)
			}
		}
		if l, err := e.ListInstances(ctx, cloudsim.ListOptions{Kind: "a"}); err != nil || len(l.Items) != 0 {
			t.Errorf("instances with the kind of a record: got %v, error %v; want none", l.Items, err)
		}
	}
}

// TestRecordCompareAndSwap proves that no update is lost if concurrent callers
// send revisions and repeat refused updates.
func TestRecordCompareAndSwap(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	r, err := e.CreateRecord(ctx, record("counter", "n", `0`))
	if err != nil {
		t.Fatal(err)
	}
	const callers, each = 8, 5
	increment := func() error {
		now, err := e.GetRecord(ctx, r.ID)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(now.Document))
		if err != nil {
			return err
		}
		_, err = e.UpdateRecord(ctx, r.ID, cloudsim.UpdateRecord{Document: json.RawMessage(strconv.Itoa(n + 1))}, now.Revision)
		return err
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for done := 0; done < each; {
				switch err := increment(); {
				case err == nil:
					done++
				case !errors.Is(err, cloudsim.Stale):
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if now, err := e.GetRecord(ctx, r.ID); err != nil || string(now.Document) != strconv.Itoa(callers*each) {
		t.Errorf("counter: got %s, error %v; want %d", now.Document, err, callers*each)
	}
}

// TestRecordsAreOfAProject proves that a caller of another project cannot read
// a record. It also proves that the quota limits records, and that the cloud
// refuses to delete a project that contains a record.
func TestRecordsAreOfAProject(t *testing.T) {
	e, down := boot(t, file(t), instant, func(c *engine.Config) { c.Quotas = map[cloudsim.QuotaName]int64{cloudsim.QuotaRecords: 1} })
	defer down()
	cloud := engine.AsCloud(t.Context())
	p, err := e.CreateProject(cloud, cloudsim.CreateProject{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := enter(t, e, "secret", "shop")
	r, err := e.CreateRecord(ctx, record("k", "one", `{}`))
	if err != nil || r.Project != p.ID {
		t.Fatalf("creation in the project: got %+v, error %v", r, err)
	}
	if _, err := e.CreateRecord(ctx, record("k", "two", `{}`)); !errors.Is(err, cloudsim.Exhausted) {
		t.Errorf("creation beyond the quota: got error %v, want Exhausted", err)
	}
	if _, err := e.GetRecord(enter(t, e, "secret", engine.DefaultProject), r.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("GetRecord from another project: got error %v, want NotFound", err)
	}
	if err := e.DeleteProject(cloud, p.ID); !errors.Is(err, cloudsim.Conflict) || !strings.Contains(err.Error(), "record") {
		t.Errorf("deletion of a project with a record: got error %v, want Conflict", err)
	}
	if err := e.DeleteRecord(ctx, r.ID, 0); err != nil {
		t.Error(err)
	}
	if err := e.DeleteProject(cloud, p.ID); err != nil {
		t.Error(err)
	}
}

// TestStatesContainRecords proves that a saved state contains records. A load
// restores the records, and a reset deletes all records.
func TestStatesContainRecords(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, withStates(t.TempDir()))
	defer down()
	r, err := e.CreateRecord(ctx, record("k", "one", `{"a":"<é>"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.SaveState(ctx, cloudsim.SaveState{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	if err := e.ResetState(ctx); err != nil {
		t.Fatal(err)
	}
	if l, err := e.ListRecords(ctx, cloudsim.ListOptions{}); err != nil || len(l.Items) != 0 {
		t.Errorf("records after a reset: got %v, error %v; want none", l.Items, err)
	}
	if err := e.LoadState(ctx, "s", cloudsim.LoadState{}); err != nil {
		t.Fatal(err)
	}
	repeated, err := e.CreateRecord(ctx, record("k", "one", `{"a":"<é>"}`))
	if err != nil || repeated.ID != r.ID || repeated.Revision != r.Revision {
		t.Errorf("creation after a load: got %+v, error %v; want the record of the state", repeated, err)
	}
}
