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

// stagedAt is where a volume is staged below the path that the orchestrator
// gives: a filesystem at the path itself, a device as a file in it.
func stagedAt(staging, volume string, block bool) string {
	if block {
		return filepath.Join(staging, volume)
	}
	return staging
}

// NodeStageVolume makes the disk's file a device, the device a filesystem if it
// was never written to, and mounts it. What is done already is found; what
// fails half-way leaves no device.
func (n *node) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	volume, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := required("volume_id", volume, "staging_target_path", staging); err != nil {
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
	d, a, err := n.attachment(ctx, volume)
	if err != nil {
		return nil, err
	}
	if err := arrived(ctx, path, int64(d.SizeGiB)*gib); err != nil {
		return nil, err
	}
	owner := ""
	if d.MultiAttach { // other nodes may be on this machine, too
		owner = n.cfg.owner()
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

// stageAt stages the file of a volume, by a device that is the owner's own if
// there is one. What fails leaves no device.
func (n *node) stageAt(ctx context.Context, owner, path, volume, staging string, readOnly bool, u use) error {
	l, err := machine.AttachFor(ctx, owner, path, readOnly, !u.block)
	if err != nil {
		return err
	}
	if err = writable(l, !readOnly); err == nil {
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

// writable fails if the device that was there takes writes that the attachment
// does not, or the other way round: it is of an attachment before, or of another
// node on this machine.
func writable(l *machine.Loop, want bool) error {
	readOnly, err := l.IsReadOnly()
	if err == nil && readOnly == want {
		err = status.Errorf(codes.FailedPrecondition, "the volume is staged on this machine with read-only %t: unstage it there first", readOnly)
	}
	return err
}

// replay is for a volume that may not be written to and begins as its source
// was in use. It is written to once, if nobody else has it for writing.
func replay(ctx context.Context, d cloudsim.Disk, owner, path, fsType string) error {
	if slices.ContainsFunc(d.Attachments, func(a cloudsim.Attachment) bool { return !a.ReadOnly }) {
		return status.Errorf(codes.FailedPrecondition, "volume %s is in use for writing elsewhere: its filesystem cannot be read here meanwhile", d.ID)
	}
	return machine.Replay(ctx, owner, path, fsType)
}

// stagedOtherwise fails if the volume is staged where it is in the other access
// type: a filesystem would be made on a device that is in use, or a device's file
// in somebody's filesystem.
func stagedOtherwise(l *machine.Loop, there string) error {
	m, err := machine.Seen(there)
	if err != nil || m == nil || !l.Has(*m) {
		return err
	}
	return status.Error(codes.AlreadyExists, "the volume is staged in the other access type: unstage it first")
}

// attachment is how the cloud says that this instance has the disk.
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
		return d, a, status.Errorf(codes.FailedPrecondition, "volume %s is not attached to %s: publish it to the node first", volume, id)
	}
	return d, a, nil
}

func (n *node) stage(ctx context.Context, l *machine.Loop, path, at string, u use) error {
	have, err := mountAt(l, at)
	if err != nil {
		return err
	}
	if have != nil {
		return sameStage(l, have.Path, u)
	}
	if u.block {
		if err := makeFile(at); err != nil {
			return err
		}
		// Whoever looks for devices that nobody shows may have seen this one.
		return errors.Join(machine.Bind(l.Device(), at, nil), l.Stay())
	}
	if err := errors.Join(os.MkdirAll(at, 0o750), l.Lapse()); err != nil {
		return err
	}
	bytes, err := machine.EnsureFilesystem(ctx, l, path, u.fsType)
	if err != nil {
		return refused(err)
	}
	options := u.flags
	if u.readOnly() && !slices.Contains(options, "ro") {
		options = append([]string{"ro"}, options...)
	}
	err = machine.MountDevice(l, at, u.fsType, options)
	if errors.Is(err, machine.ErrOptions) {
		return invalid("volume_capability.mount.mount_flags", "%v", err)
	}
	if err != nil {
		return err
	}
	if err := finish(ctx, l, at, u, bytes); err != nil {
		return errors.Join(err, machine.UnmountAll(at))
	}
	return nil
}

// finish grows a filesystem that began on a smaller disk, and gives it to its
// group.
func finish(ctx context.Context, l *machine.Loop, at string, u use, bytes int64) error {
	there, err := mountAt(l, at)
	if err != nil || there == nil || there.ReadOnly() {
		return err
	}
	if err := machine.Grow(ctx, l, at, u.fsType, bytes); err != nil {
		return err
	}
	return giveToGroup(at, u)
}

func giveToGroup(at string, u use) error {
	if u.group == "" {
		return nil
	}
	gid, err := strconv.ParseUint(u.group, 10, 32)
	if err != nil || gid == math.MaxUint32 { // which chown takes for nobody
		return invalid("volume_capability.mount.volume_mount_group", "must be the number of a group, got %q", u.group)
	}
	return machine.GiveToGroup(at, int(gid))
}

// refused gives what a disk's content forbids its code: asking again is no use.
func refused(err error) error {
	if errors.Is(err, machine.ErrForeign) || errors.Is(err, machine.ErrHasData) || errors.Is(err, fs.ErrPermission) {
		return status.Errorf(codes.FailedPrecondition, "the disk: %v", err)
	}
	return err
}

// sameStage is nil if what is staged at a path is what is asked for.
func sameStage(l *machine.Loop, at string, u use) error {
	there, err := machine.At(at)
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return status.Error(codes.Aborted, "the volume was staged, and is no more: ask again")
	}
	have := there[len(there)-1]
	readOnly, err := l.IsReadOnly()
	if err != nil {
		return err
	}
	switch readOnly = readOnly || u.readOnly() || slices.Contains(u.flags, "ro"); {
	case u.block != have.IsDevice():
		return status.Error(codes.AlreadyExists, "the volume is staged in the other access type: unstage it first")
	case u.block:
		return nil
	case have.FSType != u.fsType:
		return status.Errorf(codes.AlreadyExists, "the volume is staged as %s, not %s", have.FSType, u.fsType)
	case have.ReadOnly() != readOnly:
		return status.Errorf(codes.AlreadyExists, "the volume is staged with read-only %t", have.ReadOnly())
	case !have.MountedWith(u.flags):
		return status.Errorf(codes.AlreadyExists, "the volume is staged with the mount flags %v %v, not %v", have.Options, have.Super, u.flags)
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

// dropUnused detaches a device of which nothing is mounted, and else closes it.
// Of one that lapses the kernel itself knows whether anything is, without a look
// at the table of all mounts.
func dropUnused(l *machine.Loop) error {
	if lapses, err := l.Lapses(); err != nil || lapses {
		return errors.Join(err, l.Close())
	}
	there, err := l.Of()
	if err != nil || len(there) > 0 {
		return errors.Join(err, l.Close())
	}
	return l.Detach()
}

// NodeUnstageVolume undoes NodeStageVolume, from wherever that or an earlier
// undoing was broken off. A volume that is still published is an error.
func (n *node) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	volume, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := required("volume_id", volume, "staging_target_path", staging); err != nil {
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
	l, err := machine.FindFor(n.cfg.owner(), path, staging, stagedAt(staging, volume, true)) // also if the file is gone
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
	// The file goes last: it says which volume is staged here, also when nothing
	// is mounted any more.
	if err := os.Remove(stagedAt(staging, volume, true)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// nothingStaged fails if something is mounted where a volume would be that cannot
// be one of ours, also if that was on its way when the call came.
func (n *node) nothingStaged(ctx context.Context, volume, staging string) error {
	done, err := n.busy.takeAt(ctx, volume, staging)
	if err != nil {
		return err
	}
	defer done()
	disk, err := staged(staging, volume)
	if err == nil && disk != volume {
		err = status.Errorf(codes.Aborted, "%s was staged for volume %s meanwhile: ask again", disk, volume)
	}
	if err == nil {
		_, err = mountAt(nil, staging)
	}
	return err
}

// unstage looks first for a filesystem: while it is there, what is below the
// path is the user's.
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

// unmount takes away the volume's mount at a path, if there is one and no other.
func unmount(l *machine.Loop, volume, at string) error {
	here, err := mountAt(l, at)
	if err != nil || here == nil {
		return err
	}
	if err := unpublished(l, volume, here.Path); err != nil {
		return err
	}
	return machine.UnmountAll(at)
}

// unmountDevice takes away the file of a device that is shown at a path of the
// volume's, when the volume's file is behind none any more: another machine of
// this host, or a person, has detached it. Whose the device is now does not mind.
func unmountDevice(at string) error {
	there, err := machine.Seen(at)
	if err != nil || there == nil || !there.IsDevice() {
		return err
	}
	return machine.UnmountAll(at)
}

// unpublished fails if the volume is mounted elsewhere than where it is staged,
// as the kernel calls that.
func unpublished(l *machine.Loop, volume, staged string) error {
	there, err := l.Of()
	if err != nil {
		return err
	}
	for _, m := range there {
		if m.Path != staged {
			return status.Errorf(codes.FailedPrecondition, "volume %s is still published at %s", volume, m.Path)
		}
	}
	return nil
}
