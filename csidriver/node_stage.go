package csidriver

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// stagedAt returns the path at which the driver stages a volume. For a
// filesystem, this path is the orchestrator's staging path. For a block volume,
// it is a device file in the folder at the staging path.
func stagedAt(staging, volume string, block bool) string {
	if block {
		return filepath.Join(staging, volume)
	}
	return staging
}

// NodeStageVolume mounts the volume at the staging path. If DisksDir contains disk files instead of
// links to devices, the method first attaches the volume's disk file as a loop device. If the
// request is for a filesystem and no program has written to the disk, the method makes the
// filesystem. A repeated call skips the finished steps. After a failed call, no unused loop device
// stays attached.
func (n *node) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	volume, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := checkRequired("volume_id", volume, "staging_target_path", staging); err != nil {
		return nil, err
	}
	u, err := useOf(req.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	path, err := n.file(volume)
	if err != nil {
		return nil, err
	}
	done, err := n.busy.takeAt(ctx, volume, staging)
	if err != nil {
		return nil, err
	}
	defer done()
	if n.cfg.hasDevices() {
		return &csi.NodeStageVolumeResponse{}, n.stageDevice(ctx, path, volume, staging, u)
	}
	d, a, err := n.attachment(ctx, volume)
	if err != nil {
		return nil, err
	}
	if err := awaitSize(ctx, path, int64(d.SizeGiB)*gib); err != nil {
		return nil, err
	}
	owner := ""
	if d.MultiAttach { // other nodes may run on the same machine
		owner = n.cfg.ownerName()
	}
	err = n.stageAt(ctx, owner, path, volume, staging, a.ReadOnly, u)
	if errors.Is(err, machine.ErrJournal) {
		if err := replay(ctx, d, owner, path, u.fsType); err != nil {
			return nil, err
		}
		err = n.stageAt(ctx, owner, path, volume, staging, a.ReadOnly, u)
	}
	return &csi.NodeStageVolumeResponse{}, err
}

// stageDevice stages the device that the hypervisor made for the volume. The
// device exists only while the disk is attached to this instance, so stageDevice
// does not ask the cloud for the attachment.
func (n *node) stageDevice(ctx context.Context, path, volume, staging string, u use) error {
	l, err := machine.FindFor("", path)
	if err != nil {
		return err
	}
	if l == nil {
		return status.Errorf(codes.FailedPrecondition, "volume %s has no device on this machine, because its disk is not attached: attach the disk to this node first (ControllerPublishVolume)", volume)
	}
	readOnly, err := l.IsReadOnly()
	if err = errors.Join(err, l.Close()); err != nil {
		return err
	}
	err = n.stageAt(ctx, "", path, volume, staging, readOnly, u)
	if errors.Is(err, machine.ErrJournal) {
		return status.Errorf(codes.FailedPrecondition, "volume %s is a copy of a disk in use (%v): attach the volume once for writing, and stage it", volume, err)
	}
	return err
}

// stageAt stages the file or the device of a volume. The argument owner is empty or identifies
// this node. If owner is empty, stageAt uses any loop device of the file. Otherwise it uses only a
// loop device of this node. After a failed call, no unused loop device stays attached.
func (n *node) stageAt(ctx context.Context, owner, path, volume, staging string, readOnly bool, u use) error {
	l, err := machine.AttachFor(ctx, owner, path, readOnly, !u.block)
	if err != nil {
		return err
	}
	if err = checkWritable(l, !readOnly); err == nil {
		err = stagedOtherwise(l, stagedAt(staging, volume, !u.block))
	}
	if err == nil {
		err = n.stage(ctx, l, path, stagedAt(staging, volume, u.block), u)
	}
	if err != nil {
		return errors.Join(err, dropUnused(l))
	}
	return l.Close()
}

// checkWritable returns an error if the device is read-only and the attachment
// is writable, or if the device is writable and the attachment is read-only. A
// device with the wrong mode belongs to an earlier attachment or to another
// node on this machine.
func checkWritable(l *machine.Loop, writable bool) error {
	readOnly, err := l.IsReadOnly()
	if err == nil && readOnly == writable {
		err = status.Errorf(codes.FailedPrecondition, "the volume is already staged on this machine with read-only %t: unstage it first", readOnly)
	}
	return err
}

// replay applies the journal of a read-only volume to its filesystem. If the cloud copied the
// volume from a disk in use, the journal contains changes that the filesystem does not contain yet.
// A replay writes to the disk. If another node has attached the disk for writing, a replay would
// damage the filesystem, so the function returns an error.
func replay(ctx context.Context, d cloudsim.Disk, owner, path, fsType string) error {
	if slices.ContainsFunc(d.Attachments, func(a cloudsim.Attachment) bool { return !a.ReadOnly }) {
		return status.Errorf(codes.FailedPrecondition, "journal of volume %s not replayed, because another node has attached the disk for writing: detach the disk from that node first", d.ID)
	}
	return machine.Replay(ctx, owner, path, fsType)
}

// stagedOtherwise returns an error if the request is for a filesystem and the volume is already
// staged as a block device, or the reverse. Without this check, the driver could format a device in
// use, or create a device file in the filesystem of a user.
func stagedOtherwise(l *machine.Loop, otherPath string) error {
	m, err := machine.Seen(otherPath)
	if err != nil || m == nil || !l.Has(*m) {
		return err
	}
	return status.Error(codes.AlreadyExists, "the volume is already staged with the other access type (block or mount): unstage it first")
}

// attachment reads the disk from the cloud and returns the attachment of the
// disk to this instance. If the disk is not attached, it returns
// FAILED_PRECONDITION.
func (n *node) attachment(ctx context.Context, volume string) (d cloudsim.Disk, a cloudsim.Attachment, err error) {
	if d, err = getDisk(ctx, n.cloud, volume); err != nil {
		return d, a, err
	}
	id, err := n.instance(ctx)
	if err != nil {
		return d, a, err
	}
	a, ok := d.Attachment(id)
	if !ok || a.State != cloudsim.AttachmentAttached {
		return d, a, status.Errorf(codes.FailedPrecondition, "volume %s is not attached to %s: attach the disk to this instance first (ControllerPublishVolume)", volume, id)
	}
	return d, a, nil
}

func (n *node) stage(ctx context.Context, l *machine.Loop, path, at string, u use) error {
	have, err := mountAt(l, at)
	if err != nil {
		return err
	}
	if have != nil {
		if err := sameStage(l, have.Path, u); err != nil || u.block {
			return err
		}
		// An earlier call mounted the filesystem. The driver may have died before the function
		// finish returned, so call finish again.
		bytes, err := machine.FilesystemSize(l, path)
		if err != nil {
			return err
		}
		return finish(ctx, l, at, u, bytes)
	}
	if u.block {
		if err := makeFile(at); err != nil {
			return err
		}
		// If another process detached this device while the device was open, the kernel only set
		// the autoclear flag of the device. The method Stay clears the flag, so that the kernel
		// does not detach the device of the block volume.
		return errors.Join(machine.Bind(l.Device(), at, nil), l.Stay())
	}
	if err := errors.Join(os.MkdirAll(at, 0o750), l.Lapse()); err != nil {
		return err
	}
	bytes, err := machine.EnsureFilesystem(ctx, l, path, u.fsType)
	if err != nil {
		return permanentError(err)
	}
	options := u.flags
	if u.readOnly() {
		options = machine.ReadOnly(options)
	}
	err = machine.MountDevice(l, at, u.fsType, options)
	if errors.Is(err, machine.ErrOptions) {
		return invalidArgument("volume_capability.mount.mount_flags", "%v", err)
	}
	if err != nil {
		return err
	}
	if err := finish(ctx, l, at, u, bytes); err != nil {
		return errors.Join(err, machine.UnmountAll(at))
	}
	return nil
}

// finish grows a mounted filesystem that is smaller than its disk. Then it
// gives the files to the group in the request. It skips the steps that an
// earlier call has finished, and does nothing for a read-only mount.
func finish(ctx context.Context, l *machine.Loop, at string, u use, bytes int64) error {
	mount, err := mountAt(l, at)
	if err != nil || mount == nil || mount.ReadOnly() {
		return err
	}
	err = machine.Grow(ctx, l, at, u.fsType, bytes)
	if err != nil && !errors.Is(err, fs.ErrPermission) { // without the permission, the driver grows ext4 at the next staging, before the mount
		return err
	}
	return giveToGroup(at, u)
}

func giveToGroup(at string, u use) error {
	if u.group == "" {
		return nil
	}
	gid, err := strconv.ParseUint(u.group, 10, 32)
	if err != nil || gid == math.MaxUint32 { // for chown this value means "no change"
		return invalidArgument("volume_capability.mount.volume_mount_group", "must be a numeric group id, got %q", u.group)
	}
	return machine.GiveToGroup(at, int(gid))
}

// permanentError returns FAILED_PRECONDITION for an error about the disk's content or about a
// missing permission, because a repeated call cannot succeed. It returns any other error unchanged.
func permanentError(err error) error {
	if errors.Is(err, machine.ErrForeign) || errors.Is(err, machine.ErrHasData) || errors.Is(err, fs.ErrPermission) {
		return status.Errorf(codes.FailedPrecondition, "%v", err)
	}
	return err
}

// sameStage returns nil if the staged volume matches the request. If they differ, it returns
// ALREADY_EXISTS. If the volume is no longer staged, it returns ABORTED.
func sameStage(l *machine.Loop, at string, u use) error {
	mounts, err := machine.At(at)
	if err != nil {
		return err
	}
	if len(mounts) == 0 {
		return status.Error(codes.Aborted, "the volume was unstaged during this call: repeat the call")
	}
	have := mounts[len(mounts)-1]
	readOnly, err := l.IsReadOnly()
	if err != nil {
		return err
	}
	switch readOnly = readOnly || u.readOnly() || slices.Contains(u.flags, "ro"); {
	case u.block != have.IsDevice():
		return status.Error(codes.AlreadyExists, "the volume is already staged with the other access type (block or mount): unstage it first")
	case u.block:
		return nil
	case have.FSType != u.fsType:
		return status.Errorf(codes.AlreadyExists, "the volume is already staged with filesystem %s, not %s", have.FSType, u.fsType)
	case have.ReadOnly() != readOnly:
		return status.Errorf(codes.AlreadyExists, "the volume is already staged with read-only %t", have.ReadOnly())
	case !have.MountedWith(u.flags):
		return status.Errorf(codes.AlreadyExists, "the volume is already staged with the mount flags %v and the filesystem's flags %v, not with %v", have.Options, have.Super, u.flags)
	}
	return nil
}

func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// dropUnused closes the device. If the device has the autoclear flag (see the method Lapses), the
// kernel detaches the device after the last unmount. If the device has neither the flag nor a
// mount, dropUnused detaches the device.
func dropUnused(l *machine.Loop) error {
	if lapses, err := l.Lapses(); err != nil || lapses {
		return errors.Join(err, l.Close())
	}
	mounts, err := l.Of()
	if err != nil || len(mounts) > 0 {
		return errors.Join(err, l.Close())
	}
	return l.Detach()
}

// NodeUnstageVolume undoes NodeStageVolume, even if an earlier staging or
// unstaging call did not finish. It returns an error if the volume is still
// published.
func (n *node) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	volume, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := checkRequired("volume_id", volume, "staging_target_path", staging); err != nil {
		return nil, err
	}
	path, err := n.file(volume)
	if err != nil {
		return &csi.NodeUnstageVolumeResponse{}, n.nothingStaged(ctx, volume, staging)
	}
	done, err := n.busy.takeAt(ctx, volume, staging)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := machine.FindFor(n.cfg.ownerName(), path, staging, stagedAt(staging, volume, true)) // FindFor also finds the device of a deleted file
	if err != nil {
		return nil, err
	}
	if err := unstage(l, volume, staging); err != nil {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		return nil, err
	}
	if l != nil {
		if err := dropUnused(l); err != nil {
			return nil, err
		}
	}
	// Remove the device file last, because a repeated call may need it. After the last unmount,
	// only the name of the device file shows which volume is staged.
	if err := os.Remove(stagedAt(staging, volume, true)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// nothingStaged handles an unstaging call with a volume id that is not a disk id of this cloud. The
// method waits until no other call uses the staging path. If a disk of this driver is now staged at
// the path, the method returns ABORTED. If the path has a foreign mount, it returns
// FAILED_PRECONDITION. Otherwise it returns nil.
func (n *node) nothingStaged(ctx context.Context, volume, staging string) error {
	done, err := n.busy.takeAt(ctx, volume, staging)
	if err != nil {
		return err
	}
	defer done()
	disk, err := stagedDisk(staging, volume)
	if err == nil && disk != volume {
		err = status.Errorf(codes.Aborted, "disk %s was staged for volume %s during this call: repeat the call", disk, volume)
	}
	if err == nil {
		_, err = mountAt(nil, staging)
	}
	return err
}

// unstage unmounts a staged volume. It first unmounts the filesystem at the
// staging path. Then it unmounts the device file that a block volume has below
// the staging path. The order is necessary: while a filesystem is mounted at the
// staging path, a file below this path is a file of the user, and not the device
// file.
func unstage(l *machine.Loop, volume, staging string) error {
	if err := unmount(l, volume, staging); err != nil {
		return err
	}
	device := stagedAt(staging, volume, true)
	if l == nil {
		if err := unmountDevice(device); err != nil {
			return err
		}
	}
	return unmount(l, volume, device)
}

// unmount removes the volume's mount at path. It returns an error if the mount
// at path does not belong to the volume.
func unmount(l *machine.Loop, volume, path string) error {
	here, err := mountAt(l, path)
	if err != nil || here == nil {
		return err
	}
	if err := checkUnpublished(l, volume, here.Path); err != nil {
		return err
	}
	return machine.UnmountAll(path)
}

// unmountDevice removes the bind mount of the device file at path. The driver uses it after a
// person, or another node on this host, has detached the loop device of a block volume. The kernel
// reuses device numbers, so the device may now have no file or the file of another volume.
// Therefore unmountDevice does not check the file of the device.
func unmountDevice(path string) error {
	mount, err := machine.Seen(path)
	if err != nil || mount == nil || !mount.IsDevice() {
		return err
	}
	return machine.UnmountAll(path)
}

// checkUnpublished returns an error if the volume is mounted at a path other
// than its staging path.
func checkUnpublished(l *machine.Loop, volume, staged string) error {
	mounts, err := l.Of()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.Path != staged {
			return status.Errorf(codes.FailedPrecondition, "volume %s is still published at %s", volume, m.Path)
		}
	}
	return nil
}
