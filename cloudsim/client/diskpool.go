package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// GetDiskPool returns a disk pool by its name. The function cloudsim.DiskPoolName returns
// this name.
func (c *Client) GetDiskPool(ctx context.Context, name string) (cloudsim.DiskPool, error) {
	return call[cloudsim.DiskPool](ctx, c, "GET", "/v1/disk-pools/"+seg(name), nil)
}

// ListDiskPools returns one page of disk pools.
func (c *Client) ListDiskPools(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.DiskPool], error) {
	return call[cloudsim.List[cloudsim.DiskPool]](ctx, c, "GET", "/v1/disk-pools"+listQuery(o), nil)
}

// SetDiskPool changes the size of a disk pool. The caller must be an admin.
func (c *Client) SetDiskPool(ctx context.Context, name string, req cloudsim.SetDiskPool) (cloudsim.DiskPool, error) {
	return call[cloudsim.DiskPool](ctx, c, "PUT", "/v1/disk-pools/"+seg(name), req)
}
