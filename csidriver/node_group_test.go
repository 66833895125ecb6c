package csidriver

import (
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

func ofGroup(group string) *csi.VolumeCapability {
	c := mounted("ext4")
	c.GetMount().VolumeMountGroup = group
	return c
}

func (b *bench) checkAccess(path string, gid uint32, mode uint32) {
	b.t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(b.path(path), &st); err != nil {
		b.t.Fatal(err)
	}
	if st.Gid != gid || st.Mode&(unix.S_ISGID|0o777) != mode {
		b.t.Errorf("%s has group %d and mode %o, want group %d and mode %o", path, st.Gid, st.Mode&(unix.S_ISGID|0o777), gid, mode)
	}
}

// TestVolumeMountGroup proves that a group gets access to all files of a volume (KEP-2317). The
// driver changes the group and the mode of the files in NodeStageVolume, and in a NodePublishVolume
// call for writing. If the root directory of the volume already has the group of the call, the
// driver changes no files.
func TestVolumeMountGroup(t *testing.T) {
	b := newNodeBench(t)
	v, plain := b.volume("pvc-1"), mounted("ext4")
	b.publish(v, plain)
	wantCode(t, "stage without a group", b.stage(v, plain), codes.OK)
	wantCode(t, "publish", b.show(v, "pod", plain, false), codes.OK)
	if err := os.Mkdir(b.path("pod/dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"outside", "pod/dir/file"} {
		if err := os.WriteFile(b.path(f), nil, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(b.path("outside"), b.path("pod/link")); err != nil {
		t.Fatal(err)
	}
	b.checkAccess("pod/dir/file", 0, 0o640)
	b.clear(v)

	wantCode(t, "stage for a group", b.stage(v, ofGroup("1234")), codes.OK)
	stage := "stage-" + v
	b.checkAccess(stage, 1234, unix.S_ISGID|0o775)
	b.checkAccess(stage+"/dir", 1234, unix.S_ISGID|0o770)
	b.checkAccess(stage+"/dir/file", 1234, 0o660)
	b.checkAccess("outside", 0, 0o640)
	if err := os.Chown(b.path(stage+"/dir/file"), -1, 99); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "publish for the same group", b.show(v, "pod", ofGroup("1234"), false), codes.OK)
	b.checkAccess("pod/dir/file", 99, 0o660) // the driver did not change the files again
	if err := os.WriteFile(b.path("pod/dir/new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.checkAccess("pod/dir/new", 1234, 0o600)

	wantCode(t, "publish read-only for another group", b.show(v, "reader", ofGroup("4321"), true), codes.OK)
	b.checkAccess("reader", 1234, unix.S_ISGID|0o775)
	wantCode(t, "publish for another group", b.show(v, "other", ofGroup("4321"), false), codes.OK)
	b.checkAccess(stage, 4321, unix.S_ISGID|0o775)
	b.checkAccess("pod/dir/file", 4321, 0o660)
	for _, target := range []string{"reader", "other"} {
		wantCode(t, "unpublish", b.hide(v, target), codes.OK)
	}
	b.clear(v)
}

// TestInvalidGroupIsRefused proves that the driver refuses an invalid group, and that no mount
// stays after the refused call. A number that is too large must not overflow to
// the number of another group.
func TestInvalidGroupIsRefused(t *testing.T) {
	b := newNodeBench(t)
	v := b.volume("pvc-1")
	b.publish(v, mounted("ext4"))
	for _, group := range []string{"staff", "-1", "1.5", "4294967295", "4294967296", "18446744073709551616"} {
		wantCode(t, "stage for group "+group, b.stage(v, ofGroup(group)), codes.InvalidArgument)
		if raw, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(raw), b.dir) {
			t.Errorf("the volume is mounted after the refused group %s (%v)", group, err)
		}
	}
	wantCode(t, "stage for the largest group id", b.stage(v, ofGroup("4294967294")), codes.OK)
	b.checkAccess("stage-"+v, 4294967294, unix.S_ISGID|0o775)
	wantCode(t, "publish for the invalid group none", b.show(v, "pod", ofGroup("none"), false), codes.InvalidArgument)
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}
