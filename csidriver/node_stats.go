package csidriver

import (
	"context"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// at finds the volume's device and its mount at a path; NotFound if the path
// shows something else, or nothing.
func (n *node) at(volume, path string) (*machine.Loop, machine.Mount, error) {
	l, err := n.loopOf(volume)
	if err != nil {
		return nil, machine.Mount{}, err
	}
	if l == nil {
		return nil, machine.Mount{}, cloudsim.Errorf(cloudsim.NotFound, "volume %s is not attached to this machine", volume)
	}
	for _, p := range []string{path, filepath.Join(path, volume)} { // a staged block volume is a file in its path
		m, err := mountAt(l, p)
		if err == nil && m != nil {
			return l, *m, nil
		}
	}
	_ = l.Close()
	return nil, machine.Mount{}, cloudsim.Errorf(cloudsim.NotFound, "volume %s is not at %s", volume, path)
}

// NodeGetVolumeStats describes the volume, and nothing else that may be at the
// path. Of a block volume only its size is known.
func (n *node) NodeGetVolumeStats(_ context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_id", req.GetVolumeId(), "volume_path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	l, m, err := n.at(req.GetVolumeId(), req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	if m.IsDevice() {
		size, err := l.Size()
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}}}, err
	}
	s, err := machine.UsageOf(m.Path)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: s.Total, Available: s.Available, Used: s.Used},
		{Unit: csi.VolumeUsage_INODES, Total: s.Inodes, Available: s.InodesFree, Used: s.InodesIn},
	}}, nil
}

// NodeExpandVolume tells the device that its disk has grown, and lets the
// filesystem on it fill it, online.
func (n *node) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	volume := req.GetVolumeId()
	if err := required("volume_id", volume, "volume_path", req.GetVolumePath()); err != nil {
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
	l, m, err := n.at(volume, req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	path, err := n.file(volume)
	if err != nil {
		return nil, err
	}
	if err := arrived(ctx, path, int64(want.least)*gib); err != nil {
		return nil, err
	}
	if err := l.Refresh(); err != nil {
		return nil, err
	}
	if !m.IsDevice() && !m.ReadOnly() {
		bytes, err := machine.FilesystemSize(path)
		if err != nil {
			return nil, err
		}
		if err := machine.Grow(ctx, l, m.Path, m.FSType, bytes); err != nil {
			return nil, refused(err)
		}
	}
	size, err := l.Size()
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, err
}

// NodeGetVolumeHealth tells how well a volume is, as far as this node can see.
func (n *node) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	d, err := getDisk(ctx, n.cloud, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	h := healthOf(d)
	if p := req.GetVolumePublishPath(); p != "" {
		if l, _, err := n.at(string(d.ID), p); err != nil {
			h.HealthStatuses = append(h.HealthStatuses, entry(csi.VolumeHealthErrorType_INACCESSIBLE, "NotMounted", err.Error()))
		} else if err := l.Close(); err != nil {
			return nil, err
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: h}, nil
}

// NodeGetStorageHealth tells whether this machine can have volumes at all. One
// that can has no entry.
func (n *node) NodeGetStorageHealth(context.Context, *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	resp := &csi.NodeGetStorageHealthResponse{}
	if err := machine.Ready(); err != nil {
		resp.BackendHealth = append(resp.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: csi.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: "NoLoopDevices", Message: err.Error(),
		})
	}
	return resp, nil
}
