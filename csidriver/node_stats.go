package csidriver

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// at finds the volume's device and its mount at a path; NotFound if the path
// shows something else, or nothing.
func (n *node) at(volume, path string) (*machine.Loop, machine.Mount, error) {
	places := []string{path, stagedAt(path, volume, true)} // a staged block volume is a file in its path
	l, err := n.loopOf(volume, places...)
	if err != nil {
		return nil, machine.Mount{}, err
	}
	if l == nil {
		return nil, machine.Mount{}, cloudsim.Errorf(cloudsim.NotFound, "volume %s is not attached to this machine", volume)
	}
	for _, p := range places {
		m, err := mountAt(l, p)
		if err == nil && m != nil {
			return l, *m, nil
		}
	}
	_ = l.Close()
	return nil, machine.Mount{}, cloudsim.Errorf(cloudsim.NotFound, "volume %s is not at %s", volume, path)
}

// look finds out how full a volume is that is at a path, whose disk may hang.
func (n *node) look(ctx context.Context, volume, path string) ([]*csi.VolumeUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, n.patience)
	defer cancel()
	usage, err := lookFor(ctx, &n.looks, volume+" "+path, func() ([]*csi.VolumeUsage, error) { return n.usage(volume, path) })
	if err != nil && ctx.Err() != nil {
		err = status.Errorf(codes.DeadlineExceeded, "volume %s at %s does not answer: its disk hangs, and the call still waits for it", volume, path)
	}
	return usage, err
}

// usage is how full a volume is; of a block volume only its size is known.
func (n *node) usage(volume, path string) ([]*csi.VolumeUsage, error) {
	l, m, err := n.at(volume, path)
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

// NodeGetVolumeStats describes the volume, and nothing else that may be at the
// path.
func (n *node) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_id", req.GetVolumeId(), "volume_path", req.GetVolumePath()); err != nil {
		return nil, err
	}
	usage, err := n.look(ctx, req.GetVolumeId(), req.GetVolumePath())
	return &csi.NodeGetVolumeStatsResponse{Usage: usage}, err
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
	if err := n.grown(ctx, volume, path, want.least); err != nil {
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

// grown waits until a volume's file has so many GiB. That it is not to have them
// the cloud says, which is asked only if the file has not.
func (n *node) grown(ctx context.Context, volume, path string, least int) error {
	bytes := int64(least) * gib
	if info, err := os.Stat(path); err == nil && info.Size() >= bytes {
		return nil
	}
	d, err := getDisk(ctx, n.cloud, volume)
	if err != nil {
		return err
	}
	if d.SizeGiB < least {
		return status.Errorf(codes.OutOfRange, "capacity_range requires %d GiB, and the disk of volume %s has %d: expand it first", least, volume, d.SizeGiB)
	}
	return arrived(ctx, path, bytes)
}

// grow lets the filesystem fill its device. The kernel wants a mount that may be
// written to, whichever of them the caller named; of a volume that is read-only
// everywhere the device alone is larger.
func grow(ctx context.Context, l *machine.Loop, m machine.Mount, path string) error {
	at := m.Path
	if m.ReadOnly() {
		there, err := l.Of()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(there, func(m machine.Mount) bool { return !m.IsDevice() && !m.ReadOnly() })
		if i < 0 {
			return nil
		}
		at = there[i].Path
	}
	bytes, err := machine.FilesystemSize(path)
	if err != nil {
		return err
	}
	return refused(machine.Grow(ctx, l, at, m.FSType, bytes))
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
		if _, err := n.look(ctx, string(d.ID), p); err != nil {
			h.HealthStatuses = append(h.HealthStatuses, entry(csi.VolumeHealthErrorType_INACCESSIBLE, reasonOf(err), err.Error()))
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: h}, nil
}

// reasonOf is why a look at a volume failed, in a word.
func reasonOf(err error) string {
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		return "Hangs"
	case errors.Is(err, cloudsim.NotFound):
		return "NotMounted"
	}
	return "Unreadable"
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
