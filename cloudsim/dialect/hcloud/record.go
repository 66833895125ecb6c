package hcloud

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// The dialect stores resources that this cloud does not have, such as SSH keys, in records. A
// record has the name and the labels of the resource. The document of the record contains the other
// values, which this cloud does not interpret.

// recordKind is a kind of resources that the dialect stores in records. T is the type of a
// resource in Hetzner's format.
type recordKind[T any] struct {
	kind string // kind of the records
	one  string // name of a resource in answers
	show func(*dialect.Request, []cloudsim.Record) ([]T, error)
}

// list returns a page of the records of this kind. Callers of listCall pass this method as the
// parameter listMethod.
func (k recordKind[T]) list(c *client.Client, ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Record], error) { //nolint:revive // the order of a method expression
	o.Kind = k.kind
	return c.ListRecords(ctx, o)
}

// byID returns the record with Hetzner's id n. If this record has another kind, byID returns
// NotFound.
func (k recordKind[T]) byID(r *dialect.Request, n int64) (cloudsim.Record, error) {
	v, err := r.Cloud.GetRecord(r.Context(), dialect.ID[cloudsim.RecordID](prefixRecord, n))
	if err == nil && v.Kind != k.kind {
		err = cloudsim.Errorf(cloudsim.NotFound, "no %s has the id %d", k.one, n)
	}
	return v, err
}

func (k recordKind[T]) find(r *dialect.Request) (cloudsim.Record, error) {
	n, err := target(r)
	if err != nil {
		return cloudsim.Record{}, err
	}
	return k.byID(r, n)
}

func (k recordKind[T]) body(r *dialect.Request, v cloudsim.Record) (map[string]any, error) {
	all, err := k.show(r, []cloudsim.Record{v})
	if err != nil {
		return nil, err
	}
	return map[string]any{k.one: all[0]}, nil
}

func (k recordKind[T]) get(r *dialect.Request) (int, any, error) {
	v, err := k.find(r)
	if err != nil {
		return 0, nil, err
	}
	b, err := k.body(r, v)
	return http.StatusOK, b, err
}

func (k recordKind[T]) create(r *dialect.Request, name string, labels *map[string]string, dialectLabels map[string]string, doc any) (v cloudsim.Record, err error) {
	req := cloudsim.CreateRecord{Kind: k.kind}
	if req.Name, req.Labels, err = newName(r, name, labels); err != nil {
		return v, err
	}
	maps.Copy(req.Labels, dialectLabels)
	if req.Document, err = json.Marshal(doc); err != nil {
		return v, err
	}
	return r.Cloud.CreateRecord(r.Context(), req)
}

func (k recordKind[T]) update(r *dialect.Request) (int, any, error) {
	v, err := k.find(r)
	if err != nil {
		return 0, nil, err
	}
	var u struct {
		Name   *string            `json:"name"`
		Labels *map[string]string `json:"labels"`
	}
	if err := r.Decode(&u); err != nil {
		return 0, nil, err
	}
	req := cloudsim.UpdateRecord{Document: v.Document}
	if req.Labels, err = newLabels(u.Labels, v.Labels); err != nil {
		return 0, nil, err
	}
	if u.Name != nil {
		if req.Name, err = setName(req.Labels, *u.Name); err != nil {
			return 0, nil, err
		}
	}
	if v, err = r.Cloud.UpdateRecord(r.Context(), v.ID, req, v.Revision); err != nil {
		return 0, nil, err
	}
	b, err := k.body(r, v)
	return http.StatusOK, b, err
}

func (k recordKind[T]) delete(r *dialect.Request) (int, any, error) {
	v, err := k.find(r)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, r.Cloud.DeleteRecord(r.Context(), v.ID, v.Revision)
}

// decodeDocument decodes the document of a record. It returns an Internal error if a client of the
// cloud has stored a document of another format.
func decodeDocument(v cloudsim.Record, into any) error {
	if err := json.Unmarshal(v.Document, into); err != nil {
		return cloudsim.Errorf(cloudsim.Internal, "decode the document of record %s: %w", v.ID, err)
	}
	return nil
}
