package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) recordRoutes() {
	e := a.engine
	handle(a, op{id: "records.create", method: post, path: "/v1/records", summary: "Store a JSON document under a kind and a name", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createRecord)
	lists(a, "records", "/v1/records", "records", engine.Read, e.ListRecords)
	gets(a, "records", "/v1/records/{id}", "a record", engine.Read, e.GetRecord, revOf[cloudsim.Record])
	handle(a, op{id: "records.update", method: http.MethodPut, path: "/v1/records/{id}", summary: "Replace a record's labels and document. If the request has a name, also rename the record", access: engine.Write}, a.updateRecord)
	handle(a, op{id: "records.delete", method: http.MethodDelete, path: "/v1/records/{id}", summary: "Delete a record", status: http.StatusNoContent, access: engine.Write}, a.deleteRecord)
}

func (a *api) createRecord(ctx context.Context, in *create[cloudsim.CreateRecord]) (*body[cloudsim.Record], error) {
	v, err := a.engine.CreateRecord(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) updateRecord(ctx context.Context, in *struct {
	ByID
	IfMatch string `header:"If-Match" doc:"ETag of the expected revision. The call fails if the resource has another revision"`
	Body    cloudsim.UpdateRecord
}) (*body[cloudsim.Record], error) {
	rev, err := revision(in.IfMatch)
	if err != nil {
		return nil, err
	}
	v, err := a.engine.UpdateRecord(ctx, cloudsim.RecordID(in.ID), in.Body, rev)
	return answer(v, v.Revision, err)
}

func (a *api) deleteRecord(ctx context.Context, in *struct {
	ByID
	IfMatch string `header:"If-Match" doc:"ETag of the expected revision. The call fails if the resource has another revision"`
}) (*none, error) {
	rev, err := revision(in.IfMatch)
	if err != nil {
		return nil, err
	}
	return nil, a.engine.DeleteRecord(ctx, cloudsim.RecordID(in.ID), rev)
}
