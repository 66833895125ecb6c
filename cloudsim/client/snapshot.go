package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateSnapshot begins to take a snapshot of a disk, attached or not: see
// ReadyToUse and Operation. A disk that is not there is NotFound.
func (c *Client) CreateSnapshot(ctx context.Context, req cloudsim.CreateSnapshot) (cloudsim.Snapshot, error) {
	return call[cloudsim.Snapshot](ctx, c, "POST", "/v1/snapshots", req)
}

// GetSnapshot returns a snapshot.
func (c *Client) GetSnapshot(ctx context.Context, id cloudsim.SnapshotID) (cloudsim.Snapshot, error) {
	return call[cloudsim.Snapshot](ctx, c, "GET", "/v1/snapshots/"+seg(id), nil)
}

// ListSnapshots returns one page of snapshots.
func (c *Client) ListSnapshots(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Snapshot], error) {
	return call[cloudsim.List[cloudsim.Snapshot]](ctx, c, "GET", "/v1/snapshots"+listQuery(o), nil)
}

// DeleteSnapshot begins to delete a snapshot and returns it; Conflict while a
// disk is being made of it, and for a member of a group.
func (c *Client) DeleteSnapshot(ctx context.Context, id cloudsim.SnapshotID) (cloudsim.Snapshot, error) {
	return call[cloudsim.Snapshot](ctx, c, "DELETE", "/v1/snapshots/"+seg(id), nil)
}
