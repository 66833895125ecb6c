package csidriver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// TestCodesOfTheSpecification proves that the driver returns the error codes that the CSI
// specification requires. If the driver waits until the deadline of a call, the test fails, because
// the code is then DEADLINE_EXCEEDED.
func TestCodesOfTheSpecification(t *testing.T) {
	b := newNodeBench(t)
	v, c := b.volume("pvc-1"), mounted("ext4")
	b.publish(v, c)
	groups := csi.NewGroupControllerClient(dial(t, b.path("csi.sock")))
	g, err := groups.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g1", SourceVolumeIds: []string{v}})
	if err != nil {
		t.Fatal(err)
	}
	member := g.GetGroupSnapshot().GetSnapshots()[0].GetSnapshotId()
	wantCode(t, "stage with unknown mount flags", b.stage(v, mounted("ext4", "nonsense")), codes.InvalidArgument)
	wantCode(t, "stage", b.stage(v, c), codes.OK)
	defer func() { wantCode(t, "unstage", b.unstage(v), codes.OK) }()
	for _, tc := range []struct {
		name string
		call func(context.Context) error
		want codes.Code
	}{
		{"publish without a staging path", func(ctx context.Context) error {
			_, err := b.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: v, TargetPath: b.path("pod"), VolumeCapability: c})
			return err
		}, codes.FailedPrecondition},
		{"stage without a staging path", func(ctx context.Context) error {
			_, err := b.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: v, VolumeCapability: c})
			return err
		}, codes.InvalidArgument},
		{"expand beyond the size of the disk", func(ctx context.Context) error {
			_, err := b.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
				VolumeId: v, VolumePath: b.path("stage-" + v), CapacityRange: &csi.CapacityRange{RequiredBytes: 5 * gib},
			})
			return err
		}, codes.OutOfRange},
		{"delete one snapshot of a group", func(ctx context.Context) error {
			_, err := b.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: member})
			return err
		}, codes.InvalidArgument},
		{"delete the group", func(ctx context.Context) error {
			_, err := groups.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshot().GetGroupSnapshotId()})
			return err
		}, codes.OK},
		{"delete one snapshot of a deleted group", func(ctx context.Context) error {
			_, err := b.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: member})
			return err
		}, codes.OK},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		wantCode(t, tc.name, tc.call(ctx), tc.want)
		cancel()
	}
}

// TestCorruptSuperblock proves that the driver reports a damaged filesystem as
// an internal error, and not as an error in the mount flags.
func TestCorruptSuperblock(t *testing.T) {
	b := newNodeBench(t)
	v := b.volume("pvc-1")
	b.publish(v, mounted("ext4"))
	wantCode(t, "stage", b.stage(v, mounted("ext4")), codes.OK)
	wantCode(t, "unstage", b.unstage(v), codes.OK)
	file := filepath.Join(b.path("disks"), v+".img")
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const blocksPerGroup, checksum = 1024 + 0x20, 1024 + 0x3FC
	damage := func(at int64) {
		t.Helper()
		if _, err := f.WriteAt([]byte{0xFF, 0xFF, 0xFF, 0xFF}, at); err != nil {
			t.Fatal(err)
		}
	}
	damage(checksum) // the mount fails with EBADMSG
	wantCode(t, "stage with a wrong checksum", b.stage(v, mounted("ext4", "discard")), codes.Internal)
	if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", "-O", "^metadata_csum", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	damage(blocksPerGroup) // the mount fails with EINVAL, as with invalid options
	wantCode(t, "stage with an impossible superblock", b.stage(v, mounted("ext4", "noatime")), codes.Internal)
}
