package machine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRunToTheEndAfterDeadline proves that the work of runToTheEnd continues after the deadline of
// the caller. Until this work ends, the file stays locked and the device stays attached. So the
// next call waits.
func TestRunToTheEndAfterDeadline(t *testing.T) {
	needsVolumes(t)
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Attach(t.Context(), path, false, true)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	release, broken := make(chan struct{}), make(chan error, 1)
	err = runToTheEnd(short, f, l, func(ctx context.Context, _ *os.File) error {
		<-release
		broken <- ctx.Err()
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("runToTheEnd returned %v, want DeadlineExceeded", err)
	}
	if err := errors.Join(f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	next, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := unix.Flock(int(next.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("lock of the file after the deadline: got %v, want EWOULDBLOCK", err)
	}
	if found, err := Find(path); err != nil || found == nil {
		t.Errorf("no device after the deadline: %v", err)
	} else if err := found.Close(); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-broken; err != nil {
		t.Errorf("the step was cancelled: %v", err)
	}
	if err := lock(t.Context(), next); err != nil {
		t.Error(err)
	}
}

// TestMkfsOnFullFileSystem proves that EnsureFilesystem returns the error of mkfs if the host has
// no space for the data of the disk. EnsureFilesystem marks the disk's file before it runs mkfs,
// and the mark stays if mkfs fails. So after the host has got more space, the next call runs mkfs
// again.
func TestMkfsOnFullFileSystem(t *testing.T) {
	needsVolumes(t)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	path := filepath.Join(dir, "disk.img")
	const size = 1 << 30
	emptyDisk(t, path, size)
	l, err := Attach(t.Context(), path, false, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Detach() })
	if _, err := EnsureFilesystem(t.Context(), l, path, Ext4); err == nil || !strings.Contains(err.Error(), "mkfs.ext4") {
		t.Fatalf("EnsureFilesystem on a full file system returned %v", err)
	}
	if l.neverWritten(open(t, path)) == nil {
		t.Fatal("mkfs wrote nothing, so the test shows nothing")
	}
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	if got, err := EnsureFilesystem(t.Context(), l, path, Ext4); err != nil || got != size {
		t.Fatalf("EnsureFilesystem after the file system got larger returned %d, %v; want %d", got, err, size)
	}
	if out, err := exec.Command("e2fsck", "-f", "-n", l.Device()).CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v\n%s", err, out)
	}
}

// TestUnreadableMark proves that isMarked returns an error if it cannot read the mark of a disk.
func TestUnreadableMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	emptyDisk(t, path, 1<<20)
	f := open(t, path)
	if marked, err := new(Loop).isMarked(f); marked || err != nil {
		t.Errorf("mark of a new disk: got %t, %v; want false", marked, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := new(Loop).isMarked(f); !errors.Is(err, unix.EBADF) {
		t.Errorf("mark of a closed file: got error %v, want EBADF", err)
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestGiveToGroupKeepsModes proves that GiveToGroup changes only the group of a file and the
// permissions of this group. When the group of an executable file changes, the kernel clears the
// setuid bit and the setgid bit of the file. GiveToGroup sets these bits again.
func TestGiveToGroupKeepsModes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to any group")
	}
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"setuid": os.ModeSetuid | 0o755, "setgid": os.ModeSetgid | 0o750, "sticky": os.ModeSticky | 0o700} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		if err := GiveToGroup(dir, 1234); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); info.Mode() != mode|0o060 || st.Gid != 1234 {
			t.Errorf("%s: got mode %s and group %d, want mode %s and group 1234", name, info.Mode(), st.Gid, mode|0o060)
		}
		if err := errors.Join(os.Remove(path), os.Chown(dir, 0, 0)); err != nil { // the next call must not skip the files
			t.Fatal(err)
		}
	}
}
