package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateSnapshot begins to take a snapshot of a disk and returns the snapshot. The fields
// ReadyToUse and Operation show the progress. CreateSnapshot also works for an attached disk. It
// returns NotFound if the disk does not exist. It returns Conflict while the cloud creates or
// deletes the disk, or if the disk is in the state "failed".
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

// DeleteSnapshot begins to delete a snapshot and returns the snapshot. It returns Conflict
// while the cloud makes a disk from the snapshot, or if the snapshot belongs to a snapshot
// group.
func (c *Client) DeleteSnapshot(ctx context.Context, id cloudsim.SnapshotID) (cloudsim.Snapshot, error) {
	return call[cloudsim.Snapshot](ctx, c, "DELETE", "/v1/snapshots/"+seg(id), nil)
}
