package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateSnapshotGroup begins to take snapshots of several disks at one instant. The cloud takes all
// snapshots or none. CreateSnapshotGroup returns NotFound if a disk does not exist.
func (c *Client) CreateSnapshotGroup(ctx context.Context, req cloudsim.CreateSnapshotGroup) (cloudsim.SnapshotGroup, error) {
	return call[cloudsim.SnapshotGroup](ctx, c, "POST", "/v1/snapshot-groups", req)
}

// GetSnapshotGroup returns a snapshot group.
func (c *Client) GetSnapshotGroup(ctx context.Context, id cloudsim.SnapshotGroupID) (cloudsim.SnapshotGroup, error) {
	return call[cloudsim.SnapshotGroup](ctx, c, "GET", "/v1/snapshot-groups/"+seg(id), nil)
}

// ListSnapshotGroups returns one page of snapshot groups.
func (c *Client) ListSnapshotGroups(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.SnapshotGroup], error) {
	return call[cloudsim.List[cloudsim.SnapshotGroup]](ctx, c, "GET", "/v1/snapshot-groups"+listQuery(o), nil)
}

// DeleteSnapshotGroup begins to delete a snapshot group with its snapshots, and returns the
// group. It returns Conflict while the cloud makes a disk from one of these snapshots.
func (c *Client) DeleteSnapshotGroup(ctx context.Context, id cloudsim.SnapshotGroupID) (cloudsim.SnapshotGroup, error) {
	return call[cloudsim.SnapshotGroup](ctx, c, "DELETE", "/v1/snapshot-groups/"+seg(id), nil)
}
