package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateRecord stores a record. The call is idempotent: the same request returns the
// existing record. The call returns Exists if the project has a different record of this
// kind and name.
func (c *Client) CreateRecord(ctx context.Context, req cloudsim.CreateRecord) (cloudsim.Record, error) {
	return call[cloudsim.Record](ctx, c, "POST", "/v1/records", req)
}

// GetRecord returns a record.
func (c *Client) GetRecord(ctx context.Context, id cloudsim.RecordID) (cloudsim.Record, error) {
	return call[cloudsim.Record](ctx, c, "GET", "/v1/records/"+seg(id), nil)
}

// ListRecords returns one page of records.
func (c *Client) ListRecords(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Record], error) {
	return call[cloudsim.List[cloudsim.Record]](ctx, c, "GET", "/v1/records"+listQuery(o), nil)
}

// UpdateRecord replaces a record's labels and document. If the request has a name, UpdateRecord
// also changes the record's name. It returns Exists if another record of this kind has the name. If
// rev is not 0 and the record has changed since the revision rev, UpdateRecord returns Stale.
func (c *Client) UpdateRecord(ctx context.Context, id cloudsim.RecordID, req cloudsim.UpdateRecord, rev uint64) (cloudsim.Record, error) {
	return call[cloudsim.Record](ctx, c, "PUT", "/v1/records/"+seg(id), req, ifMatch(rev))
}

// DeleteRecord deletes a record. If rev is not 0 and the record has changed since the revision
// rev, DeleteRecord returns Stale.
func (c *Client) DeleteRecord(ctx context.Context, id cloudsim.RecordID, rev uint64) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/records/"+seg(id), nil, ifMatch(rev))
	return err
}
