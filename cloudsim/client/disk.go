package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateDisk makes a disk. It is there at once and available later: see State and Operation.
func (c *Client) CreateDisk(ctx context.Context, req cloudsim.CreateDisk) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "POST", "/v1/disks", req)
}

// GetDisk returns a disk.
func (c *Client) GetDisk(ctx context.Context, id cloudsim.DiskID) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "GET", "/v1/disks/"+seg(id), nil)
}

// ListDisks returns one page of disks.
func (c *Client) ListDisks(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Disk], error) {
	return call[cloudsim.List[cloudsim.Disk]](ctx, c, "GET", "/v1/disks"+listQuery(o), nil)
}

// AttachDisk begins to attach a disk and returns it. One that is attached the
// same way is returned as it is; one that another instance has is Conflict, an
// instance that is not there NotFound, and one that can have no more Exhausted.
func (c *Client) AttachDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.AttachDisk) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "POST", "/v1/disks/"+seg(id)+"/attach", req)
}

// DetachDisk begins to detach a disk and returns it. One that the instance
// does not have is returned as it is.
func (c *Client) DetachDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.DetachDisk) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "POST", "/v1/disks/"+seg(id)+"/detach", req)
}

// ResizeDisk begins to grow a disk, attached or not, and returns it; a smaller
// size is Invalid.
func (c *Client) ResizeDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.ResizeDisk) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "POST", "/v1/disks/"+seg(id)+"/resize", req)
}

// ModifyDisk begins to change a disk's type, IOPS or throughput, attached or
// not, and returns it. What it has already changes nothing; Conflict while
// something else is done to it.
func (c *Client) ModifyDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.ModifyDisk) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "POST", "/v1/disks/"+seg(id)+"/modify", req)
}

// DeleteDisk begins to delete a disk and returns it; Conflict while it is
// attached, or a snapshot or a copy is being made of it. Deleting one that is already being deleted returns it again; one
// that is gone is NotFound.
func (c *Client) DeleteDisk(ctx context.Context, id cloudsim.DiskID) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "DELETE", "/v1/disks/"+seg(id), nil)
}

// GetDiskType returns a disk type.
func (c *Client) GetDiskType(ctx context.Context, id string) (cloudsim.DiskType, error) {
	return call[cloudsim.DiskType](ctx, c, "GET", "/v1/disk-types/"+seg(id), nil)
}

// ListDiskTypes returns one page of disk types.
func (c *Client) ListDiskTypes(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.DiskType], error) {
	return call[cloudsim.List[cloudsim.DiskType]](ctx, c, "GET", "/v1/disk-types"+listQuery(o), nil)
}
