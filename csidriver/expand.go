package csidriver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// ControllerExpandVolume grows an attached or a detached disk. The response
// always asks the caller to call NodeExpandVolume, even if the disk already has
// the requested size. An earlier call may have grown the disk, but the node may
// not know the new size of the device yet.
func (c *controller) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if req.GetCapacityRange() == nil {
		return nil, invalidArgument("capacity_range", "is required")
	}
	want, err := sizesOf(req.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	d, err := c.disk(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if d.SizeGiB > want.most {
		return nil, status.Errorf(codes.OutOfRange, "volume %s has %d GiB, and a volume cannot shrink", d.ID, d.SizeGiB)
	}
	if d.SizeGiB < want.least {
		if d, err = c.cloud.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: want.least}); err != nil {
			return nil, c.growsLaterOr(ctx, cloudsim.DiskID(req.GetVolumeId()), err)
		}
	}
	if d, err = c.awaitSettled(ctx, d); err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: int64(d.SizeGiB) * gib, NodeExpansionRequired: true}, nil
}

// growsLaterOr returns ABORTED if err is a conflict with other work on the disk, for example a
// copy. The caller can repeat the call when this work has ended. FAILED_PRECONDITION would be
// wrong, because this code means that the volume cannot grow while it is in use. For a conflict on
// a failed disk, and for all other errors, growsLaterOr returns err.
func (c *controller) growsLaterOr(ctx context.Context, id cloudsim.DiskID, err error) error {
	if cloudsim.KindOf(err) != cloudsim.Conflict {
		return err
	}
	if d, gone := c.cloud.GetDisk(ctx, id); gone == nil && d.State == cloudsim.DiskFailed {
		return err
	}
	return status.Error(codes.Aborted, err.Error())
}

// ControllerModifyVolume changes a disk's type, IOPS or throughput in place
// (KEP-3751). If the disk already has the requested values, the call changes
// nothing.
func (c *controller) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	d, err := c.disk(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	var s shape
	if err := s.read("mutable_parameters", req.GetMutableParameters(), keyType, keyIOPS, keyThroughput); err != nil {
		return nil, err
	}
	if s == (shape{}) {
		return &csi.ControllerModifyVolumeResponse{}, nil
	}
	d, err = c.cloud.ModifyDisk(ctx, d.ID, cloudsim.ModifyDisk{Type: s.diskType, IOPS: s.iops, ThroughputMiBps: s.throughput})
	if err != nil {
		return nil, c.busyOr(ctx, cloudsim.DiskID(req.GetVolumeId()), err)
	}
	if _, err := c.awaitSettled(ctx, d); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// GetCapacity returns the free capacity that the pools in a zone have for the
// volumes of a StorageClass (KEP-1472). If a pool has space for a volume,
// GetCapacity also returns the minimum and the maximum size of a volume. If the
// disk type of the StorageClass does not support the requested capabilities or
// replication, the free capacity is 0.
func (c *controller) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	s := shape{diskType: c.cfg.DiskType}
	if err := s.read("parameters", req.GetParameters(), keyType, keyIOPS, keyThroughput, keyReplication); err != nil {
		return nil, err
	}
	t, err := c.cloud.GetDiskType(ctx, s.diskType)
	if errors.Is(err, cloudsim.NotFound) {
		return nil, invalidArgument("parameters.type", "must be an existing disk type, got %q: see 'allinone cloud disk-types list'", s.diskType)
	}
	if err != nil {
		return nil, err
	}
	for _, v := range req.GetVolumeCapabilities() {
		if u, err := useOf(v); err != nil || u.manyNodes() && !t.MultiAttach {
			return &csi.GetCapacityResponse{}, nil //nolint:nilerr // no capacity for such a volume
		}
	}
	if s.regional && !t.Regional {
		return &csi.GetCapacityResponse{}, nil
	}
	pools, _, err := cloudsim.All(ctx, c.cloud.ListDiskPools, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	regions := map[string]string{} // region by zone, for regional volumes
	if s.regional {
		zones, _, err := cloudsim.All(ctx, c.cloud.ListZones, cloudsim.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, z := range zones {
			regions[z.Name] = z.Region
		}
	}
	zone := zonesIn(c.cfg.Name, req.GetAccessibleTopology())
	free, largest := int64(0), 0
	for _, p := range pools {
		if p.Type != t.Name || len(zone) > 0 && p.Zone != zone[0] || len(zone) == 0 && req.GetAccessibleTopology() != nil {
			continue
		}
		freeGiB := p.FreeGiB
		if s.regional { // the second replica needs space in another zone
			freeGiB = min(freeGiB, freeBeside(pools, p, regions))
		}
		free += int64(freeGiB) * gib
		largest = max(largest, min(freeGiB, t.MaxGiB))
	}
	if s.regional && req.GetAccessibleTopology() == nil { // the loop counts each disk once per zone
		free = int64(freeForPairs(pools, t.Name, regions)) * gib
	}
	resp := &csi.GetCapacityResponse{AvailableCapacity: free}
	if largest >= t.MinGiB {
		resp.MaximumVolumeSize = int64Value(int64(largest) * gib)
		resp.MinimumVolumeSize = int64Value(int64(t.MinGiB) * gib)
	}
	return resp, nil
}

// freeBeside returns the free capacity in GiB for the second replicas of
// regional disks that have their first replica in pool. This is the largest free
// capacity of a single pool that has the same disk type and is in another zone
// of the same region. The map regions contains the region of each zone.
func freeBeside(pools []cloudsim.DiskPool, pool cloudsim.DiskPool, regions map[string]string) (freeGiB int) {
	for _, p := range pools {
		if p.Type == pool.Type && p.Zone != pool.Zone && regions[p.Zone] == regions[pool.Zone] {
			freeGiB = max(freeGiB, p.FreeGiB)
		}
	}
	return freeGiB
}

// freeForPairs returns the free capacity in GiB for new regional disks of a
// disk type. Each regional disk needs space for its replicas in two zones of
// one region. The map regions contains the region of each zone.
func freeForPairs(pools []cloudsim.DiskPool, diskType string, regions map[string]string) (freeGiB int) {
	sum, most := map[string]int{}, map[string]int{} // by region
	for _, p := range pools {
		if p.Type == diskType {
			region := regions[p.Zone]
			sum[region] += p.FreeGiB
			most[region] = max(most[region], p.FreeGiB)
		}
	}
	for region, all := range sum {
		freeGiB += min(all/2, all-most[region]) // the largest zone needs the other zones for the second replicas
	}
	return freeGiB
}
