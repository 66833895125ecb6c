package csidriver

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// TestReadOnlyFromSnapshotInUse takes a snapshot while a node uses the disk, so the filesystem in
// the snapshot has an unfinished journal. The test proves
// that a read-only volume from this snapshot contains all synced data, because
// the driver replays the journal.
func TestReadOnlyFromSnapshotInUse(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			b := newNodeBench(t)
			c := mounted(fsType)
			v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{c} })
			b.publish(v, c)
			wantCode(t, "stage", b.stage(v, c), codes.OK)
			wantCode(t, "publish", b.show(v, "pod", c, false), codes.OK)
			f, err := os.Create(b.path("pod/a"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("synced"); err != nil {
				t.Fatal(err)
			}
			dir, err := os.Open(b.path("pod"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []*os.File{f, dir} {
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				_ = f.Close()
			}
			s, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s1", SourceVolumeId: v})
			if err != nil {
				t.Fatal(err)
			}
			reader := mounted(fsType)
			reader.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
			r := b.volume("pvc-2", from(s.GetSnapshot().GetSnapshotId(), ""), func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{reader} })
			b.publish(r, reader)
			wantCode(t, "stage for reading", b.stage(r, reader), codes.OK)
			wantCode(t, "stage for reading again", b.stage(r, reader), codes.OK)
			wantCode(t, "publish for reading", b.show(r, "reader", reader, true), codes.OK)
			if got, err := os.ReadFile(b.path("reader/a")); err != nil || string(got) != "synced" {
				t.Errorf("copy of the file: got %q, %v; want synced", got, err)
			}
			if err := os.WriteFile(b.path("reader/b"), nil, 0o600); err == nil {
				t.Error("the read-only volume accepts writes")
			}
			b.hide(r, "reader")
			b.unstage(r)
			b.hide(v, "pod")
			b.unstage(v)
		})
	}
}

// TestReadOnlyDespiteFlagRW proves that the mount flag rw has no effect if the request or the
// access mode makes the volume read-only. It also proves that repeated calls of NodeStageVolume and
// NodePublishVolume succeed.
func TestReadOnlyDespiteFlagRW(t *testing.T) {
	b := newNodeBench(t)
	v, c := b.volume("pvc-1"), mounted("ext4", "rw")
	reader := mounted("ext4", "rw")
	reader.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	for name, c := range map[string]*csi.VolumeCapability{"request": c, "access mode": reader} {
		b.publish(v, mounted("ext4"))
		wantCode(t, "stage for writing", b.stage(v, mounted("ext4")), codes.OK) // makes the filesystem
		wantCode(t, "unstage", b.unstage(v), codes.OK)
		if c == reader {
			must(t)(b.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID)}))
			b.publish(v, c)
		}
		for range 2 {
			wantCode(t, name+": stage", b.stage(v, c), codes.OK)
			wantCode(t, name+": publish", b.show(v, "pod", c, true), codes.OK)
		}
		if err := os.WriteFile(b.path("pod/file"), nil, 0o600); err == nil {
			t.Errorf("%s: the read-only volume accepts writes", name)
		}
		b.clear(v)
		must(t)(b.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID)}))
	}
}

// TestBlockReadOnly proves that the device of a read-only block volume refuses
// writes. A read-only bind mount alone does not prevent writes to the device.
// The driver does not publish the volume read-only at one path and writable at
// another path at the same time.
func TestBlockReadOnly(t *testing.T) {
	b := newNodeBench(t)
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{raw()} })
	b.publish(v, raw())
	wantCode(t, "stage", b.stage(v, raw()), codes.OK)
	write := func(at string) error {
		f, err := os.OpenFile(b.path(at), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteAt(bytes.Repeat([]byte("X"), 4096), 0); err != nil {
			return err
		}
		return f.Sync()
	}
	wantCode(t, "publish for reading", b.show(v, "reader", raw(), true), codes.OK)
	if err := write("reader"); err == nil {
		t.Error("the read-only device accepts writes")
	}
	wantCode(t, "publish for writing beside a reader", b.show(v, "writer", raw(), false), codes.FailedPrecondition)
	data := make([]byte, 1)
	d, err := os.Open(filepath.Join(b.path("disks"), v+".img"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.ReadAt(data, 0); err != nil || data[0] != 0 {
		t.Errorf("the disk begins with %q, %v; want a zero byte", data, err)
	}
	b.hide(v, "reader")
	wantCode(t, "publish for writing", b.show(v, "writer", raw(), false), codes.OK)
	if err := write("writer"); err != nil {
		t.Errorf("the writable device refuses writes: %v", err)
	}
	wantCode(t, "publish for reading beside a writer", b.show(v, "reader", raw(), true), codes.FailedPrecondition)
	b.hide(v, "writer")
	b.unstage(v)
}

// TestDeviceWritableAfterReadOnlyVolume stages a volume on a device that a read-only volume
// used before. It proves that this device accepts writes again.
func TestDeviceWritableAfterReadOnlyVolume(t *testing.T) {
	b := newNodeBench(t)
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{raw()} })
	b.publish(v, raw())
	next := b.volume("pvc-2")
	b.publish(next, mounted("ext4"))
	for range 100 { // try again if another process takes the device number before the second staging
		wantCode(t, "stage", b.stage(v, raw()), codes.OK)
		wantCode(t, "publish for reading", b.show(v, "reader", raw(), true), codes.OK)
		number := b.number(v)
		wantCode(t, "unpublish", b.hide(v, "reader"), codes.OK)
		wantCode(t, "unstage", b.unstage(v), codes.OK)
		wantCode(t, "stage the next", b.stage(next, mounted("ext4")), codes.OK)
		same := b.number(next) == number
		if same {
			wantCode(t, "publish the next", b.show(next, "pod", mounted("ext4"), false), codes.OK)
			if err := os.WriteFile(b.path("pod/a"), nil, 0o600); err != nil {
				t.Error(err)
			}
			wantCode(t, "unpublish the next", b.hide(next, "pod"), codes.OK)
		}
		wantCode(t, "unstage the next", b.unstage(next), codes.OK)
		if same || t.Failed() {
			return
		}
	}
	t.Fatal("no device number was used twice in 100 attempts")
}

func (b *bench) number(volume string) int {
	b.t.Helper()
	l, err := machine.Find(filepath.Join(b.path("disks"), volume+".img"))
	if err != nil || l == nil {
		b.t.Fatalf("device of %s: got %v, %v", volume, l, err)
	}
	_ = l.Close()
	return l.Number
}

// TestStageAgain proves that a repeated staging call with the same mount
// options succeeds, even if the kernel shows the options in another form. A
// staging call for writing fails if the volume is staged for reading.
func TestStageAgain(t *testing.T) {
	b := newNodeBench(t)
	for fsType, all := range map[string][]string{
		"ext4": {"acl", "strictatime", "errors=continue", "commit=5", "barrier=1", "discard", "noatime"},
		"xfs":  {"allocsize=1m", "inode64", "logbsize=64k"},
	} {
		v := b.volume("pvc-"+fsType, func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{mounted(fsType)} })
		b.publish(v, mounted(fsType))
		for _, o := range all {
			wantCode(t, o, b.stage(v, mounted(fsType, o)), codes.OK)
			wantCode(t, o+" again", b.stage(v, mounted(fsType, o)), codes.OK)
			b.unstage(v)
		}
		wantCode(t, "read-only", b.stage(v, mounted(fsType, "ro")), codes.OK)
		wantCode(t, "read-only again", b.stage(v, mounted(fsType, "ro")), codes.OK)
		wantCode(t, "stage for writing while staged read-only", b.stage(v, mounted(fsType)), codes.AlreadyExists)
		b.unstage(v)
	}
}

// TestExpandThroughReadOnlyPath proves that the driver grows a filesystem through a writable mount,
// even if the request contains the path of a read-only mount.
func TestExpandThroughReadOnlyPath(t *testing.T) {
	b := newNodeBench(t)
	c := mounted("xfs")
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{c} })
	b.publish(v, c)
	wantCode(t, "stage", b.stage(v, c), codes.OK)
	wantCode(t, "publish for reading", b.show(v, "reader", c, true), codes.OK)
	grow := &csi.CapacityRange{RequiredBytes: 3 * gib}
	must(t)(b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: grow}))
	must(t)(b.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: v, VolumePath: b.path("reader"), CapacityRange: grow}))
	if total := b.total(v, "reader"); total < 2*gib {
		t.Errorf("got a filesystem of %d bytes, want at least 2 GiB", total)
	}
	b.hide(v, "reader")
	b.unstage(v)
}
