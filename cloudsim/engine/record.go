package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"reflect"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const (
	byRecordKind = "kind"
	byRecordName = "kindAndName"
)

var records = store.Table[cloudsim.Record]{
	Kind: cloudsim.KindRecord, Prefix: "rec",
	ID:   func(r *cloudsim.Record) string { return string(r.ID) },
	Meta: func(r *cloudsim.Record) *cloudsim.Meta { return &r.Meta },
	Uses: store.One[cloudsim.Record](cloudsim.QuotaRecords),
	Index: map[string]func(*cloudsim.Record) []string{
		byRecordKind: func(r *cloudsim.Record) []string { return []string{recordKey(r.Project, r.Kind, "")} },
		byRecordName: func(r *cloudsim.Record) []string { return []string{recordKey(r.Project, r.Kind, r.Name)} },
	},
}

// recordKey returns the key of a record in the index byRecordName. With an empty name, it returns a
// key of the index byRecordKind. The separator is a space. A project id and a kind contain no
// space, so different arguments have different keys.
func recordKey(project cloudsim.ProjectID, kind, name string) string {
	return string(project) + " " + kind + " " + name
}

// CreateRecord creates a record. If a record with the same kind and name exists and matches the
// request, CreateRecord returns this record. If the existing record differs from the request,
// CreateRecord returns Exists.
func (e *Engine) CreateRecord(ctx context.Context, req cloudsim.CreateRecord) (r cloudsim.Record, err error) {
	if err := req.Validate(); err != nil {
		return r, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		r, err = idempotent(tx, call, records, req, func() (cloudsim.Record, error) { return e.recordByName(tx, call, req) })
		return err
	})
	return r, err
}

func (e *Engine) recordByName(tx *store.Tx, call Call, req cloudsim.CreateRecord) (r cloudsim.Record, err error) {
	project, err := e.projectOf(tx, call)
	if err != nil {
		return r, err
	}
	have, err := records.Lookup(tx, byRecordName, recordKey(project, req.Kind, req.Name))
	if err != nil {
		return r, err
	}
	if len(have) > 0 {
		r = have[0]
		switch {
		case !sameLabels(r.Labels, req.Labels):
			return r, errNameTaken(cloudsim.KindRecord, req.Name, string(r.ID), "other labels")
		case !sameDocument(r.Document, req.Document):
			return r, errNameTaken(cloudsim.KindRecord, req.Name, string(r.ID), "another document")
		}
		return r, nil
	}
	if err := e.checkQuota(tx, project, store.Use{Name: cloudsim.QuotaRecords, N: 1}); err != nil {
		return r, err
	}
	id, err := records.NextID(tx)
	if err != nil {
		return r, err
	}
	r = cloudsim.Record{
		ID: cloudsim.RecordID(id), Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		Kind: req.Kind, Document: req.Document,
	}
	return r, records.Put(tx, &r)
}

// sameDocument reports whether two JSON texts have the same value. It compares numbers as text, so
// 1 and 1.0 differ. It returns false for text that is not valid JSON.
func sameDocument(a, b json.RawMessage) bool {
	decode := func(raw json.RawMessage) (v any, err error) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		return v, d.Decode(&v)
	}
	va, errA := decode(a)
	vb, errB := decode(b)
	return errA == nil && errB == nil && reflect.DeepEqual(va, vb)
}

// GetRecord returns a record.
func (e *Engine) GetRecord(ctx context.Context, id cloudsim.RecordID) (cloudsim.Record, error) {
	return read(ctx, e.core, records, string(id))
}

// ListRecords returns one page of records.
func (e *Engine) ListRecords(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Record], error) {
	return listPage(ctx, e.core, records, o, nil)
}

// UpdateRecord replaces the labels and the document of a record. If the request has a name,
// UpdateRecord also changes the name. It returns Stale if rev is neither 0 nor the record's
// revision, and Exists if another record of the same kind has the new name. It returns Denied if
// the caller's permission includes neither the new name nor the id. A request that changes nothing
// writes no event.
func (e *Engine) UpdateRecord(ctx context.Context, id cloudsim.RecordID, req cloudsim.UpdateRecord, rev uint64) (r cloudsim.Record, err error) {
	if err := req.Validate(); err != nil {
		return r, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if r, err = recordAt(tx, call, id, rev); err != nil {
			return err
		}
		name := cmp.Or(req.Name, r.Name)
		if name == r.Name && sameLabels(r.Labels, req.Labels) && sameDocument(r.Document, req.Document) {
			return nil
		}
		if name != r.Name && !call.mayName(name) && !call.mayName(string(id)) {
			return call.onlyFor(call.Operation)
		}
		taken, err := records.Lookup(tx, byRecordName, recordKey(r.Project, r.Kind, name))
		if err != nil {
			return err
		}
		if len(taken) > 0 && taken[0].ID != id {
			return cloudsim.Errorf(cloudsim.Exists, "record %q of the same kind already exists (%s): use another name, or delete the existing record first", name, taken[0].ID)
		}
		r.Name, r.Labels, r.Document = name, req.Labels, req.Document
		return records.Put(tx, &r)
	})
	return r, err
}

// DeleteRecord deletes a record. It returns Stale if rev is neither 0 nor the
// record's revision.
func (e *Engine) DeleteRecord(ctx context.Context, id cloudsim.RecordID, rev uint64) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		r, err := recordAt(tx, call, id, rev)
		if err != nil {
			return err
		}
		return records.Delete(tx, &r)
	})
}

// recordAt returns a record, or Stale if rev is neither 0 nor the record's
// revision.
func recordAt(tx *store.Tx, call Call, id cloudsim.RecordID, rev uint64) (cloudsim.Record, error) {
	r, err := get(tx, call, records, string(id))
	if err == nil && rev != 0 && rev != r.Revision {
		err = cloudsim.Errorf(cloudsim.Stale, "record %s is at revision %d, not %d: read it again and repeat the change", id, r.Revision, rev)
	}
	return r, err
}
