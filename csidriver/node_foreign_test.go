package csidriver

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// TestFileWithTheNameOfADevice proves that the driver does not mistake a file of a pod for the
// device of a volume. The pod has a tmpfs, for example an emptyDir in memory. The kubelet
// bind-mounts a file or a folder of this tmpfs (subPath). This file or folder has the name of a
// loop device, for example loop0.
func TestFileWithTheNameOfADevice(t *testing.T) {
	b := newNodeBench(t)
	v, c := b.volume("pvc-1"), mounted("ext4")
	b.publish(v, c)
	wantCode(t, "stage", b.stage(v, c), codes.OK)
	for _, dir := range []string{"memory", "subpath"} {
		if err := os.Mkdir(b.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("none", b.path("memory"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(b.path("memory"), 0) })
	var st unix.Stat_t
	if err := unix.Stat(b.path("stage-"+v), &st); err != nil {
		t.Fatal(err)
	}
	name := "memory/loop" + strconv.Itoa(int(unix.Minor(st.Dev)))
	if err := os.Mkdir(b.path(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(b.path(name), b.path("subpath"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(b.path("subpath"), 0) })
	wantCode(t, "unstage", b.unstage(v), codes.OK)
	if err := unix.Unmount(b.path("subpath"), 0); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}
