package machine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A device is known by its file, not by what the file is called: the machines
// of two labs call their disks the same.
func TestFindAnothersFileOfTheSameName(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes loop devices")
	}
	if err := Ready(); err != nil {
		t.Skipf("this machine can have no volumes: %v", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "disk.img")
	file := func() {
		t.Helper()
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file()
	first, err := Attach(t.Context(), path, false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := first.Detach(); err != nil {
			t.Error(err)
		}
	}()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	file()
	other, err := Find(path)
	if err != nil || other != nil {
		t.Errorf("found %v, %v of another file", other, err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	same, err := Find(path)
	if err != nil || same == nil || same.Number != first.Number {
		t.Fatalf("found %v, %v", same, err)
	}
	if err := same.Close(); err != nil {
		t.Error(err)
	}
}

// A device that lapses is there while something of it is mounted, also of a file
// that is gone, and no longer.
func TestLapses(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes a filesystem")
	}
	if err := Ready(); err != nil {
		t.Skipf("this machine can have no volumes: %v", err)
	}
	dir := t.TempDir()
	path, at := filepath.Join(dir, "disk.img"), filepath.Join(dir, "at")
	emptyDisk(t, path, 64<<20)
	l, err := Attach(t.Context(), path, false, true)
	if err != nil {
		t.Fatal(err)
	}
	if lapses, err := l.Lapses(); err != nil || !lapses {
		t.Errorf("it lapses: %t, %v", lapses, err)
	}
	if _, err := EnsureFilesystem(t.Context(), l, path, Ext4); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(at, 0o700), MountDevice(l, at, Ext4, nil), l.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	for _, near := range [][]string{nil, {at}} {
		have, err := Find(path, near...)
		if err != nil || have == nil || have.Number != l.Number {
			t.Fatalf("near %v it is %v, %v; want %s", near, have, err, l.Device())
		}
		if err := have.Close(); err != nil {
			t.Error(err)
		}
	}
	if other, err := Find(filepath.Join(dir, "other.img"), at); err != nil || other != nil {
		t.Errorf("another file that is gone has %v, %v", other, err)
	}
	if err := UnmountAll(at); err != nil {
		t.Fatal(err)
	}
	if have, err := Find(path, at); err != nil || have != nil {
		t.Errorf("it stays: %v, %v", have, err)
	}
	stays, err := Attach(t.Context(), filepath.Join(dir, "stays.img"), false, false)
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a file that is not there has %v, %v", stays, err)
	}
	emptyDisk(t, path, 64<<20)
	if stays, err = Attach(t.Context(), path, false, false); err != nil {
		t.Fatal(err)
	}
	if lapses, err := stays.Lapses(); err != nil || lapses {
		t.Errorf("it lapses: %t, %v", lapses, err)
	}
	if err := stays.Detach(); err != nil {
		t.Error(err)
	}
}

// emptyDisk makes a disk's file, as the cloud does.
func emptyDisk(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// A disk that cannot be read is not an empty one: nothing is made on it.
func TestUnreadableIsNotEmpty(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes loop devices")
	}
	if err := Ready(); err != nil {
		t.Skipf("this machine can have no volumes: %v", err)
	}
	path := filepath.Join(t.TempDir(), "disk.img")
	emptyDisk(t, path, 1<<30)
	l, err := Attach(t.Context(), path, false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Detach(); err != nil {
			t.Error(err)
		}
	}()
	// Nothing is at address 0 of a process: reading there is an I/O error.
	if _, err := EnsureFilesystem(t.Context(), l, "/proc/self/mem", Ext4); !errors.Is(err, unix.EIO) {
		t.Errorf("it is %v", err)
	}
	if size, err := FilesystemSize(path); err != nil || size != 0 {
		t.Errorf("a filesystem of %d bytes was made, %v", size, err)
	}
}
