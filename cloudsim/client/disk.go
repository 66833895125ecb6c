package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateDisk begins to create a disk and returns the disk. To wait for the end of the creation,
// call WaitOperation with the disk's field Operation.
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

// UpdateDisk replaces a disk's labels. If rev is not 0 and the disk has changed since the revision
// rev, UpdateDisk returns Stale.
func (c *Client) UpdateDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.UpdateDisk, rev uint64) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "PUT", "/v1/disks/"+seg(id), req, ifMatch(rev))
}

// AttachDisk begins to attach a disk and returns the disk. If the disk is already attached to the
// instance with the same access mode, AttachDisk changes nothing. If the disk is attached to this
// instance with another access mode, AttachDisk returns Conflict. It also returns Conflict if the
// disk allows only one attachment and is attached to another instance. It returns NotFound if the
// instance does not exist. It returns Exhausted if the instance has the maximum number of disks.
func (c *Client) AttachDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.AttachDisk) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "POST", "/v1/disks/"+seg(id)+"/attach", req)
}

// DetachDisk begins to detach a disk and returns the disk. If the disk is not attached to the
// instance, DetachDisk changes nothing. If req.Force is true and the instance is stopped or
// terminating, DetachDisk detaches the disk at once. If req.Force is true and the instance is in
// another state, DetachDisk returns Conflict.
func (c *Client) DetachDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.DetachDisk) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "POST", "/v1/disks/"+seg(id)+"/detach", req)
}

// ResizeDisk begins to grow a disk and returns the disk. ResizeDisk accepts attached disks. It
// returns Invalid for a smaller size.
func (c *Client) ResizeDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.ResizeDisk) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "POST", "/v1/disks/"+seg(id)+"/resize", req)
}

// ModifyDisk begins to change a disk's type, IOPS or throughput and returns the disk. ModifyDisk
// accepts attached disks. If the disk already has the requested values, ModifyDisk changes nothing.
// It returns Conflict while other work on the disk runs. It also returns Conflict until the cloud's
// minimum time between two modifications has passed.
func (c *Client) ModifyDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.ModifyDisk) (cloudsim.Disk, error) {
	return call[cloudsim.Disk](ctx, c, "POST", "/v1/disks/"+seg(id)+"/modify", req)
}

// DeleteDisk begins to delete a disk and returns the disk. It returns Conflict while the disk is
// attached, or while the cloud makes a snapshot or a copy of the disk. During the deletion, a
// repeated call returns the disk. After the deletion, a call returns NotFound.
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
