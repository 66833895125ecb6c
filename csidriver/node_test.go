package csidriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// growMounted expands a volume to 3 GiB while the volume is mounted at the path
// "pod".
func (b *bench) growMounted(t *testing.T, v, fsType string) {
	t.Helper()
	before := b.total(v, "pod")
	grow := &csi.CapacityRange{RequiredBytes: 3 * gib}
	must(t)(b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: grow}))
	_, err := b.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: v, VolumePath: b.path("pod"), CapacityRange: grow})
	if fsType == machine.Ext4 && !machine.CanGrowMounted() {
		wantCode(t, "expand without the privilege", err, codes.FailedPrecondition)
	} else if after := b.total(v, "pod"); err != nil || after < before+gib || after > 3*gib {
		t.Errorf("the filesystem had %d bytes, and has %d after the expansion, %v", before, after, err)
	}
}

// TestDataStay proves for each filesystem that the data of a volume stays the
// same after a second mount, in a clone, and after an online expansion.
func TestDataStay(t *testing.T) {
	for _, fsType := range machine.Filesystems() {
		t.Run(fsType, func(t *testing.T) {
			b := newNodeBench(t)
			c := mounted(fsType)
			v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{c} })
			b.publish(v, c)
			for range 2 {
				wantCode(t, "stage", b.stage(v, c), codes.OK)
				wantCode(t, "publish", b.show(v, "pod", c, false), codes.OK)
			}
			if err := os.WriteFile(b.path("pod/hello"), []byte("world"), 0o600); err != nil {
				t.Fatal(err)
			}
			b.growMounted(t, v, fsType)
			b.clear(v)
			clone := b.volume("pvc-2", from("", v), func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities, r.CapacityRange.RequiredBytes = []*csi.VolumeCapability{c}, 5*gib
			})
			for _, id := range []string{v, clone} { // stage both volumes at once, because their filesystems have the same UUID
				b.publish(id, c)
				wantCode(t, "stage "+id, b.stage(id, c), codes.OK)
				wantCode(t, "publish "+id, b.show(id, "pod-"+id, c, true), codes.OK)
				if got, err := os.ReadFile(b.path("pod-" + id + "/hello")); string(got) != "world" {
					t.Errorf("file in %s: got %q, %v; want world", id, got, err)
				}
			}
			if total, larger := b.total(v, "pod-"+v), b.total(clone, "pod-"+clone); total < 2*gib || larger < 4*gib {
				t.Errorf("the volume has %d bytes and its clone has %d, want at least 2 GiB and 4 GiB", total, larger)
			}
			for _, id := range []string{v, clone} {
				wantCode(t, "unpublish", b.hide(id, "pod-"+id), codes.OK)
				wantCode(t, "unstage", b.unstage(id), codes.OK)
			}
		})
	}
}

// clear checks that the driver refuses to unstage the published volume. Then it
// unpublishes the volume at the path "pod" twice, and unstages the volume twice.
func (b *bench) clear(v string) {
	b.t.Helper()
	wantCode(b.t, "unstage too early", b.unstage(v), codes.FailedPrecondition)
	for range 2 {
		wantCode(b.t, "unpublish", b.hide(v, "pod"), codes.OK)
	}
	for range 2 {
		wantCode(b.t, "unstage", b.unstage(v), codes.OK)
	}
}

func (b *bench) total(v, at string) int64 {
	b.t.Helper()
	s, err := b.NodeGetVolumeStats(b.t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v, VolumePath: b.path(at)})
	if err != nil {
		b.t.Fatal(err)
	}
	return s.GetUsage()[0].GetTotal()
}

// TestForeignMountIsRefused proves that the driver never accepts a mount of
// another filesystem at a path of the volume. The driver also refuses a repeated call
// with another filesystem type, other mount flags or another read-only flag.
func TestForeignMountIsRefused(t *testing.T) {
	b := newNodeBench(t)
	v, c := b.volume("pvc-1"), mounted("ext4")
	wantCode(t, "stage a volume that is not attached", b.stage(v, c), codes.FailedPrecondition)
	b.publish(v, c)
	wantCode(t, "publish a volume that is not staged", b.show(v, "pod", c, false), codes.FailedPrecondition)
	wantCode(t, "stage", b.stage(v, c), codes.OK)
	wantCode(t, "stage as xfs", b.stage(v, mounted("xfs")), codes.AlreadyExists)
	wantCode(t, "stage with flags", b.stage(v, mounted("ext4", "noatime")), codes.AlreadyExists)
	wantCode(t, "publish", b.show(v, "pod", c, false), codes.OK)
	wantCode(t, "publish read-only", b.show(v, "pod", c, true), codes.AlreadyExists)
	if err := os.Mkdir(b.path("foreign"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", b.path("foreign"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "publish on a foreign mount", b.show(v, "foreign", c, false), codes.FailedPrecondition)
	_, err := b.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v, VolumePath: b.path("foreign")})
	wantCode(t, "stats of a foreign mount", err, codes.NotFound)
	if err := unix.Unmount(b.path("foreign"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.path("plain"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.path("plain/precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"plain", "missing"} {
		_, err = b.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v, VolumePath: b.path(path)})
		wantCode(t, "stats of the path "+path, err, codes.NotFound)
	}
	wantCode(t, "unpublish a folder with files", b.hide(v, "plain"), codes.Internal)
	if _, err := os.Stat(b.path("plain/precious")); err != nil {
		t.Error(err)
	}
	b.clear(v)
}

// TestNeverFormatsData proves that the driver never formats a disk that has
// data but no filesystem.
func TestNeverFormatsData(t *testing.T) {
	b := newNodeBench(t)
	v := b.volume("pvc-1")
	b.publish(v, mounted("ext4"))
	file := filepath.Join(b.path("disks"), v+".img")
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("precious"), 512<<20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	wantCode(t, "stage", b.stage(v, mounted("ext4")), codes.FailedPrecondition)
	got := make([]byte, 8)
	if f, err = os.Open(file); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(got, 512<<20); err != nil || string(got) != "precious" {
		t.Errorf("data of the disk after the refused staging: got %q, error %v; want precious", got, err)
	}
}

// TestUnstageKeepsFiles proves that unstaging removes no file of a volume, even
// if the file's name is the volume id.
func TestUnstageKeepsFiles(t *testing.T) {
	b := newNodeBench(t)
	v := b.stagedVolume("pvc-1")
	if err := os.WriteFile(b.path("pod/"+v), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.clear(v)
	reader := mounted("ext4")
	reader.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	wantCode(t, "stage read-only", b.stage(v, reader), codes.OK)
	if got, err := os.ReadFile(b.path("stage-" + v + "/" + v)); string(got) != "precious" {
		t.Errorf("file whose name is the volume id: got %q, error %v; want precious", got, err)
	}
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}

// TestBlock proves that a block volume has the size of its disk and can grow
// without a filesystem. The driver can also unstage a volume after another
// program has removed the staging mount.
func TestBlock(t *testing.T) {
	b := newNodeBench(t)
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{raw()} })
	b.publish(v, raw())
	for range 2 {
		wantCode(t, "stage", b.stage(v, raw()), codes.OK)
		wantCode(t, "publish", b.show(v, "pod", raw(), false), codes.OK)
	}
	if total := b.total(v, "pod"); total != gib {
		t.Errorf("got %d bytes, want 1 GiB", total)
	}
	grow := &csi.CapacityRange{RequiredBytes: 2 * gib}
	must(t)(b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: grow}))
	for _, path := range []string{"pod", "pod", "stage-" + v} {
		must(t)(b.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: v, VolumePath: b.path(path), CapacityRange: grow}))
	}
	if total := b.total(v, "pod"); total != 2*gib {
		t.Errorf("got %d bytes after the expansion, want 2 GiB", total)
	}
	b.clear(v)
	wantCode(t, "stage", b.stage(v, raw()), codes.OK)
	if err := unix.Unmount(b.path("stage-"+v+"/"+v), 0); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unstage a volume without its mount", b.unstage(v), codes.OK)
}

// TestOtherAccessType proves that a volume has only one access type (block or
// mount) at a time. A refused call does not change the volume.
func TestOtherAccessType(t *testing.T) {
	b := newNodeBench(t)
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{raw()} })
	b.publish(v, raw())
	file := filepath.Join(b.path("disks"), v+".img")
	wantCode(t, "stage", b.stage(v, raw()), codes.OK)
	wantCode(t, "stage as a filesystem", b.stage(v, mounted("ext4")), codes.AlreadyExists)
	l, err := machine.Find(file)
	if err != nil || l == nil {
		t.Fatalf("device of the volume: got %v, %v", l, err)
	}
	if lapses, err := l.Lapses(); err != nil || lapses {
		t.Errorf("autoclear of the device: got %t, %v; want false", lapses, err)
	}
	size, err := machine.FilesystemSize(l, file)
	if err := errors.Join(err, l.Close()); err != nil || size != 0 {
		t.Errorf("got a filesystem of %d bytes, %v; want none", size, err)
	}
	wantCode(t, "unstage", b.unstage(v), codes.OK)
	wantCode(t, "stage as a filesystem", b.stage(v, mounted("ext4")), codes.OK)
	wantCode(t, "stage raw", b.stage(v, raw()), codes.AlreadyExists)
	if left, err := filepath.Glob(b.path("stage-" + v + "/disk-*")); err != nil || len(left) > 0 {
		t.Errorf("device files in the volume: got %v, %v; want none", left, err)
	}
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}

// TestBlockIsDetached proves that the driver can unpublish and unstage a block
// volume after another process has detached the volume's device.
func TestBlockIsDetached(t *testing.T) {
	b := newNodeBench(t)
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{raw()} })
	b.publish(v, raw())
	wantCode(t, "stage", b.stage(v, raw()), codes.OK)
	wantCode(t, "publish", b.show(v, "pod", raw(), false), codes.OK)
	l, err := machine.Find(filepath.Join(b.path("disks"), v+".img"))
	if err != nil || l == nil {
		t.Fatalf("device of the volume: got %v, %v", l, err)
	}
	if err := l.Detach(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unpublish", b.hide(v, "pod"), codes.OK)
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}

// TestPathsByAnyName proves that different calls can use different forms of the
// same path. A path can have a slash at its end, or contain a symbolic link to
// the kubelet's folder.
func TestPathsByAnyName(t *testing.T) {
	b := newNodeBench(t)
	if err := os.Mkdir(b.path("kubelet"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(b.path("kubelet"), b.path("link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*csi.VolumeCapability{"ext4": mounted("ext4"), "raw": raw()} {
		v := b.volume("pvc-"+name, func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{c} })
		b.publish(v, c)
		for _, names := range [][]string{
			{"kubelet/%s/", "kubelet/%s"}, {"kubelet/%s", "kubelet//%s/"},
			{"link/%s", "link/%s/"}, {"link/%s", "kubelet/%s"}, {"kubelet/%s", "link/%s"},
		} {
			called := func(i int, base string) string { return b.dir + "/" + fmt.Sprintf(names[i], base) }
			mounts := func(when string, want int) {
				t.Helper()
				raw, err := os.ReadFile("/proc/self/mountinfo")
				if got := strings.Count(string(raw), " "+b.path("kubelet/")); err != nil || got != want {
					t.Errorf("%s as %v, %s: %d mounts (%v), want %d", name, names, when, got, err, want)
				}
			}
			unstage := func(i int) error {
				_, err := b.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v, StagingTargetPath: called(i, "stage")})
				return err
			}
			for i := range names {
				_, err := b.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: v, StagingTargetPath: called(i, "stage"), VolumeCapability: c})
				wantCode(t, "stage", err, codes.OK)
				mounts("staged", 1)
			}
			for i := range names {
				_, err := b.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
					VolumeId: v, StagingTargetPath: called(i, "stage"), TargetPath: called(i, "pod"), VolumeCapability: c,
				})
				wantCode(t, "publish", err, codes.OK)
				mounts("published", 2)
			}
			wantCode(t, "unstage too early", unstage(0), codes.FailedPrecondition)
			_, err := b.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: v, TargetPath: called(1, "pod")})
			wantCode(t, "unpublish", err, codes.OK)
			mounts("unpublished", 1)
			if _, err := os.Lstat(b.path("kubelet/pod")); !os.IsNotExist(err) {
				t.Errorf("target path after the unpublish call: Lstat returned %v, want fs.ErrNotExist", err)
			}
			wantCode(t, "unstage", unstage(1), codes.OK)
			mounts("unstaged", 0)
		}
	}
}

// TestExpandStaged proves that the driver can expand a volume between staging
// and publishing. A repeated call does not expand the volume again.
func TestExpandStaged(t *testing.T) {
	b := newNodeBench(t)
	c := mounted("xfs")
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{c} })
	b.publish(v, c)
	wantCode(t, "stage", b.stage(v, c), codes.OK)
	grow := &csi.CapacityRange{RequiredBytes: 3 * gib}
	must(t)(b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: grow}))
	for range 2 {
		got := must(t)(b.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: v, VolumePath: b.path("stage-" + v), CapacityRange: grow})).(*csi.NodeExpandVolumeResponse)
		if total := b.total(v, "stage-"+v); got.GetCapacityBytes() != 3*gib || total < 2*gib || total > 3*gib {
			t.Errorf("got a filesystem of %d bytes on a disk of %d bytes, want 2 to 3 GiB on 3 GiB", total, got.GetCapacityBytes())
		}
	}
	s := must(t)(b.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v, VolumePath: b.path("stage-" + v)})).(*csi.NodeGetVolumeStatsResponse)
	if u := s.GetUsage(); len(u) != 2 || u[1].GetUnit() != csi.VolumeUsage_INODES || u[1].GetTotal() == 0 || u[0].GetUsed() == 0 || u[0].GetAvailable() == 0 {
		t.Errorf("got usage %v, want bytes and inodes", u)
	}
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}

// TestStageFinishesInterruptedStaging proves that a repeated staging call finishes the work
// of a driver that died after it mounted the filesystem. The repeated call grows
// the filesystem to the size of its disk, and changes the group of the files to
// the group in the call.
func TestStageFinishesInterruptedStaging(t *testing.T) {
	for _, fsType := range machine.Filesystems() {
		t.Run(fsType, func(t *testing.T) {
			b := newNodeBench(t)
			c := mounted(fsType)
			v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{c} })
			b.publish(v, c)
			wantCode(t, "stage", b.stage(v, c), codes.OK)
			wantCode(t, "unstage", b.unstage(v), codes.OK)
			must(t)(b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: &csi.CapacityRange{RequiredBytes: 3 * gib}}))
			b.mountOnly(v, c)
			c.GetMount().VolumeMountGroup = "1234"
			for range 2 {
				wantCode(t, "stage", b.stage(v, c), codes.OK)
			}
			if total := b.total(v, "stage-"+v); total < 2*gib && (fsType == machine.XFS || machine.CanGrowMounted()) {
				t.Errorf("got a filesystem of %d bytes, want about 3 GiB", total)
			}
			b.checkAccess("stage-"+v, 1234, unix.S_ISGID|0o775)
			wantCode(t, "unstage", b.unstage(v), codes.OK)
		})
	}
}

// mountOnly mounts the filesystem of a volume at the volume's staging path, and
// skips all other steps of the staging.
func (b *bench) mountOnly(v string, c *csi.VolumeCapability) {
	b.t.Helper()
	u, err := useOf(c)
	if err != nil {
		b.t.Fatal(err)
	}
	l, err := machine.Attach(b.t.Context(), filepath.Join(b.path("disks"), v+".img"), false, true)
	if err != nil {
		b.t.Fatal(err)
	}
	at := b.path("stage-" + v)
	if err := errors.Join(os.MkdirAll(at, 0o750), l.Lapse(), machine.MountDevice(l, at, u.fsType, u.flags), l.Close()); err != nil {
		b.t.Fatal(err)
	}
}

// TestCancelledStaging proves that a caller can cancel a staging call at any
// moment. A later staging call continues the work of the cancelled call, and an
// unstaging call undoes this work.
func TestCancelledStaging(t *testing.T) {
	b := newNodeBench(t)
	v := b.volume("pvc-1")
	b.publish(v, mounted("ext4"))
	for after := time.Millisecond; after < 100*time.Millisecond; after *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, _ = b.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: v, StagingTargetPath: b.path("stage-" + v), VolumeCapability: mounted("ext4")})
		cancel()
		wantCode(t, "unstage", b.unstage(v), codes.OK)
	}
	wantCode(t, "stage", b.stage(v, mounted("ext4")), codes.OK)
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}

// TestBusyVolume proves that only one call at a time works on a volume. Other
// calls for this volume wait until their deadline, and calls for other volumes
// do not wait.
func TestBusyVolume(t *testing.T) {
	n := &node{cfg: NodeConfig{DisksDir: t.TempDir()}, busy: newBusy()}
	done, err := n.busy.take(t.Context(), "disk-000001")
	if err != nil {
		t.Fatal(err)
	}
	hide := func(volume string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: filepath.Join(t.TempDir(), "none")})
		return err
	}
	wantCode(t, "volume with a running call", hide("disk-000001"), codes.Aborted)
	wantCode(t, "another volume", hide("disk-000002"), codes.OK)
	done()
	wantCode(t, "volume after the running call", hide("disk-000001"), codes.OK)
}
