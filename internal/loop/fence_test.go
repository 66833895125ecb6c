//go:build linux

package loop

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func needsRoot(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("short mode: the test creates loop devices")
	}
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
}

func newDevice(t *testing.T, size int64) (l *Loop, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "disk-000001.img")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
		t.Fatal(err)
	}
	l, err := New(t.Context(), "/var/lib/lab/disks/disk-000001.img", "i-000001", file, false, false)
	if err != nil {
		t.Fatal(err)
	}
	return l, file
}

// TestFenceOfRawDevice proves that a program that has the device open cannot write after Fence.
// The data that the program wrote before Fence is in the file.
func TestFenceOfRawDevice(t *testing.T) {
	needsRoot(t)
	l, file := newDevice(t, 1<<20)
	dev, err := os.OpenFile(l.Device(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.WriteAt([]byte("before"), 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Fence(); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.WriteAt([]byte("after!"), 0); err == nil {
		t.Error("write after Fence succeeded")
	}
	content, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(content, []byte("before")) || len(content) != 1<<20 {
		t.Errorf("file after Fence: got %q and %d bytes, %v", content[:6], len(content), err)
	}
	var found Status
	all, err := List()
	for _, s := range all {
		if s.SameFile(file) {
			found = s
		}
	}
	if err != nil || !found.Fenced || found.Node != "i-000001" || found.Name != "/var/lib/lab/disks/disk-000001.img" {
		t.Errorf("device while a program has it open: got %+v, %v", found, err)
	}
	if got, err := Find("i-000001", file); err != nil || got != nil {
		t.Errorf("Find returned a fenced device: %+v, %v", got, err)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the kernel removes the device after its last use", func() bool {
		_, err := BackingFile(l.Number)
		return err != nil
	})
}

// TestFenceOfMountedDevice proves that a mounted filesystem cannot write to its file after Fence.
func TestFenceOfMountedDevice(t *testing.T) {
	needsRoot(t)
	for fsType, size := range map[string]int64{"ext4": 16 << 20, "xfs": 300 << 20} {
		t.Run(fsType, func(t *testing.T) {
			l, file := newDevice(t, size)
			if out, err := exec.Command("mkfs."+fsType, "-q", l.Device()).CombinedOutput(); err != nil {
				t.Fatalf("mkfs: %v: %s", err, out)
			}
			at := t.TempDir()
			if err := unix.Mount(l.Device(), at, fsType, 0, ""); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
			write := func(name string) error {
				f, err := os.Create(filepath.Join(at, name))
				if err != nil {
					return err
				}
				_, err = f.WriteString(name)
				return errors.Join(err, f.Sync(), f.Close())
			}
			if err := write("before"); err != nil {
				t.Fatal(err)
			}
			if err := l.Fence(); err != nil {
				t.Fatal(err)
			}
			was, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if write("after") == nil {
				t.Error("write and sync after Fence succeeded")
			}
			if dir, err := os.Open(at); err == nil {
				_ = unix.Syncfs(int(dir.Fd())) // fails, because the filesystem cannot write to the device
				_ = dir.Close()
			}
			if now, err := os.ReadFile(file); err != nil || !bytes.Equal(was, now) {
				t.Errorf("the file changed after Fence, %v", err)
			}
		})
	}
}

// Reserve creates a loop device without a file. TestReserve proves that a program without access to
// loop-control can then attach a file to this device. It also proves that Release removes the
// device even if the device has a file.
func TestReserve(t *testing.T) {
	needsRoot(t)
	n, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	other, err := Reserve()
	if err != nil || other == n {
		t.Fatalf("second reserved device: got %d, %v; want another number than %d", other, err, n)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("losetup", Path(n), file).CombinedOutput(); err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	l, _ := newDevice(t, 1<<20)
	if l.Number >= firstReserved {
		t.Errorf("New used the reserved device %d", l.Number)
	}
	if err := l.Detach(); err != nil {
		t.Error(err)
	}
	for _, n := range []int{n, other, other} {
		if err := Release(t.Context(), n); err != nil {
			t.Errorf("Release(%d): %v", n, err)
		}
		if _, err := os.Stat("/sys/block/" + filepath.Base(Path(n))); err == nil {
			t.Errorf("device %d exists after Release", n)
		}
	}
}
