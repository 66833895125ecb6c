package csidriver

import (
	"context"
	"errors"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// deviceAndMount returns the volume's device, and the mount of this device at
// a path. It returns NotFound if the path has no mount of the volume.
func (n *node) deviceAndMount(volume, path string) (*machine.Loop, machine.Mount, error) {
	places := []string{path, stagedAt(path, volume, true)} // a staged block volume is a file in the folder at path
	l, err := n.loopOf(volume, places...)
	if err != nil {
		return nil, machine.Mount{}, err
	}
	if l == nil {
		return nil, machine.Mount{}, cloudsim.Errorf(cloudsim.NotFound, "volume %s is not attached to this machine, or not staged", volume)
	}
	for _, p := range places {
		m, err := mountAt(l, p)
		if err == nil && m != nil {
			return l, *m, nil
		}
	}
	_ = l.Close()
	return nil, machine.Mount{}, cloudsim.Errorf(cloudsim.NotFound, "volume %s is not mounted at %s", volume, path)
}

// checkUsage returns the usage of a volume at path. If the disk hangs, the
// method returns DEADLINE_EXCEEDED after n.checkTimeout.
func (n *node) checkUsage(ctx context.Context, volume, path string) ([]*csi.VolumeUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, n.checkTimeout)
	defer cancel()
	usage, err := lookFor(ctx, &n.looks, volume+" "+path, func() ([]*csi.VolumeUsage, error) { return n.usage(volume, path) })
	if err != nil && ctx.Err() != nil {
		err = status.Errorf(codes.DeadlineExceeded, "check of volume %s at %s not finished in time: the disk does not answer", volume, path)
	}
	return usage, err
}

// usage returns the usage of a volume. For a block volume, the result has only
// the size.
func (n *node) usage(volume, path string) ([]*csi.VolumeUsage, error) {
	l, m, err := n.deviceAndMount(volume, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	if m.IsDevice() {
		size, err := l.Size()
		return []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}}, err
	}
	s, err := machine.UsageOf(m.Path)
	if err != nil {
		return nil, err
	}
	return []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: s.Total, Available: s.Available, Used: s.Used},
		{Unit: csi.VolumeUsage_INODES, Total: s.Inodes, Available: s.InodesFree, Used: s.InodesIn},
	}, nil
}

// NodeGetVolumeStats returns the usage of the volume. It returns NotFound if the volume is not
// mounted at the path, and DEADLINE_EXCEEDED if the disk hangs.
func (n *node) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId(), "volume_path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	usage, err := n.checkUsage(ctx, req.GetVolumeId(), req.GetVolumePath())
	return &csi.NodeGetVolumeStatsResponse{Usage: usage}, err
}

// NodeExpandVolume waits until the disk has the required size. Then it refreshes the size of the
// device, and grows the mounted filesystem to this size.
func (n *node) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	volume := req.GetVolumeId()
	if err := checkRequired("volume_id", volume, "volume_path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	want, err := sizesOf(req.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	done, err := n.busy.take(ctx, volume)
	if err != nil {
		return nil, err
	}
	defer done()
	l, m, err := n.deviceAndMount(volume, req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	path, err := n.file(volume)
	if err != nil {
		return nil, err
	}
	if err := n.awaitSize(ctx, volume, path, want.least); err != nil {
		return nil, err
	}
	if err := l.Refresh(); err != nil {
		return nil, err
	}
	if !m.IsDevice() {
		if err := grow(ctx, l, m, path); err != nil {
			return nil, err
		}
	}
	size, err := l.Size()
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, err
}

// awaitSize waits until the file or device of a volume has at least the
// required size in GiB. If the file or device is smaller at first, awaitSize
// asks the cloud for the size of the disk before it waits. It returns
// OUT_OF_RANGE if the disk in the cloud is also smaller than the required size.
func (n *node) awaitSize(ctx context.Context, volume, path string, least int) error {
	bytes := int64(least) * gib
	if size, err := machine.SizeOf(path); err == nil && size >= bytes { //nolint:contextcheck // it opens a device and does not wait
		return nil
	}
	d, err := getDisk(ctx, n.cloud, volume)
	if err != nil {
		return err
	}
	if d.SizeGiB < least {
		return status.Errorf(codes.OutOfRange, "capacity_range requires %d GiB, but the disk of volume %s has %d GiB: expand the disk first", least, volume, d.SizeGiB)
	}
	return awaitSize(ctx, path, bytes)
}

// grow enlarges the filesystem to the size of its device. For this change, the kernel needs a
// writable mount. If m is read-only, the function looks for a writable mount of the device. If all
// mounts are read-only, the filesystem does not grow.
func grow(ctx context.Context, l *machine.Loop, m machine.Mount, path string) error {
	at := m.Path
	if m.ReadOnly() {
		mounts, err := l.Of()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(mounts, func(m machine.Mount) bool { return !m.IsDevice() && !m.ReadOnly() })
		if i < 0 {
			return nil
		}
		at = mounts[i].Path
	}
	bytes, err := machine.FilesystemSize(l, path)
	if err != nil {
		return err
	}
	return permanentError(machine.Grow(ctx, l, at, m.FSType, bytes))
}

// NodeGetVolumeHealth returns the health of a volume, as the data plane
// reported it. If the request contains a path, the method also checks the
// volume at this path.
func (n *node) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	d, err := getDisk(ctx, n.cloud, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	h := healthOf(d)
	if p := req.GetVolumePublishPath(); p != "" {
		if _, err := n.checkUsage(ctx, string(d.ID), p); err != nil {
			h.HealthStatuses = append(h.HealthStatuses, entry(csi.VolumeHealthErrorType_INACCESSIBLE, reasonOf(err), err.Error()))
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: h}, nil
}

func reasonOf(err error) string {
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		return "Hangs"
	case errors.Is(err, cloudsim.NotFound):
		return "NotMounted"
	}
	return "Unreadable"
}

// NodeGetStorageHealth reports whether this machine can mount volumes. If the machine can mount
// volumes, the list of problems in the answer is empty.
func (n *node) NodeGetStorageHealth(context.Context, *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	resp := &csi.NodeGetStorageHealthResponse{}
	if n.cfg.hasDevices() { // the hypervisor makes the loop devices
		return resp, nil
	}
	if err := machine.Ready(); err != nil {
		resp.BackendHealth = append(resp.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: csi.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: "NoLoopDevices", Message: err.Error(),
		})
	}
	return resp, nil
}
