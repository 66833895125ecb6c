package csidriver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// NodePublishVolume mounts a staged volume at a target path. Each target has
// its own mount, so several pods can use the volume with different mount flags.
func (n *node) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	volume, target := req.GetVolumeId(), req.GetTargetPath()
	if err := checkRequired("volume_id", volume, "target_path", target); err != nil {
		return nil, err
	}
	u, err := useOf(req.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	if req.GetStagingTargetPath() == "" { // the CSI specification requires FAILED_PRECONDITION for this case
		return nil, status.Error(codes.FailedPrecondition, "staging_target_path is required: stage the volume before you publish it")
	}
	target = filepath.Clean(target) // the target of a block volume is a file, so its path must not end with a slash
	done, err := n.busy.takeAt(ctx, volume, target)
	if err != nil {
		return nil, err
	}
	defer done()
	staged := stagedAt(req.GetStagingTargetPath(), volume, u.block)
	l, err := n.loopOf(volume, staged)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, notStaged(volume, staged)
	}
	err = publish(l, volume, staged, target, u, req.GetReadonly() || u.readOnly())
	return &csi.NodePublishVolumeResponse{}, errors.Join(err, l.Close())
}

func notStaged(volume, staged string) error {
	return status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", volume, staged)
}

func publish(l *machine.Loop, volume, staged, target string, u use, readOnly bool) error {
	from, err := mountAt(l, staged)
	if err != nil {
		return err
	}
	if from == nil || from.IsDevice() != u.block {
		return notStaged(volume, staged)
	}
	options := u.flags
	if u.block {
		options = nil
	}
	if readOnly {
		options = machine.ReadOnly(options)
	}
	have, err := mountAt(l, target)
	if err != nil {
		return err
	}
	if err := sameLabel(staged, machine.Label(u.flags)); err != nil {
		return err
	}
	if have != nil {
		return samePublish(*have, *from, readOnly)
	}
	if u.block {
		if err := guard(l, from.Path, target, readOnly); err != nil {
			return err
		}
	}
	if u.mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		if err := checkSinglePublish(l, from.Path, target); err != nil {
			return err
		}
	}
	if err := makeTarget(target, u.block); err != nil {
		return err
	}
	if !u.block && !readOnly && !from.ReadOnly() {
		if err := giveToGroup(staged, u); err != nil {
			return err
		}
	}
	return machine.Bind(staged, target, options)
}

// guard makes the device of a block volume read-only or writable. A read-only
// bind mount of a device file does not prevent writes to the device. Because
// all targets share the device, the function returns an error if the device
// must be read-only for one target and writable for another.
func guard(l *machine.Loop, staged, target string, readOnly bool) error {
	mounts, err := l.Of()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.Path != staged && m.Path != target && m.ReadOnly() != readOnly {
			return status.Errorf(codes.FailedPrecondition, "the volume is already published at %s with read-only %t: on one node, all targets of a block volume must have the same value", m.Path, m.ReadOnly())
		}
	}
	return l.Guard(readOnly)
}

// samePublish returns ALREADY_EXISTS if the mount at the target differs from the request in the
// access type or in the read-only mode. If the staged mount is read-only, the mount at the target
// must also be read-only. samePublish returns nil if both match, even if other mount flags differ.
func samePublish(have, staged machine.Mount, readOnly bool) error {
	if have.IsDevice() != staged.IsDevice() {
		return status.Error(codes.AlreadyExists, "the volume is already published at the target with the other access type (block or mount)")
	}
	if have.ReadOnly() != (readOnly || staged.ReadOnly()) {
		return status.Errorf(codes.AlreadyExists, "the volume is already published at the target with read-only %t", have.ReadOnly())
	}
	return nil
}

// sameLabel returns nil if label is empty, or if the staged filesystem is mounted with this SELinux
// label. Otherwise it returns an error. The label of one mount is enough for the check, because all
// mounts of a filesystem share one label.
func sameLabel(staged, label string) error {
	if label == "" {
		return nil
	}
	mounts, err := machine.At(staged)
	if err != nil {
		return err
	}
	if i := len(mounts) - 1; i < 0 || mounts[i].Label() != label {
		return status.Errorf(codes.FailedPrecondition, "the volume is staged without the SELinux label %s: unstage it first", label)
	}
	return nil
}

// checkSinglePublish returns an error if the volume is already published at a path other than
// target. The driver calls checkSinglePublish only for single-writer volumes.
func checkSinglePublish(l *machine.Loop, staged, target string) error {
	mounts, err := l.Of()
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(mounts, func(m machine.Mount) bool { return m.Path != staged && m.Path != target }); i >= 0 {
		return status.Errorf(codes.FailedPrecondition, "the volume allows a single writer and is already published at %s", mounts[i].Path)
	}
	return nil
}

func makeTarget(target string, block bool) error {
	if block {
		return makeFile(target)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// NodeUnpublishVolume removes all mounts at the target, and then deletes the target. If the target
// is a folder that still contains files, the method returns an error and keeps the files.
func (n *node) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	volume, target := req.GetVolumeId(), req.GetTargetPath()
	if err := checkRequired("volume_id", volume, "target_path", target); err != nil {
		return nil, err
	}
	target = filepath.Clean(target)
	done, err := n.busy.takeAt(ctx, volume, target)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := machine.UnmountAll(target); err != nil {
		return nil, err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cloudsim.Errorf(cloudsim.Internal, "the target was unmounted, but cannot be removed: %w", err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
