package machine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/backoff"
	"github.com/cloudsim-dev/allinone/internal/loop"
)

// TestFindDistinguishesFilesOfSameName proves that Find identifies a device by the
// inode of its file, and not by the name of the file. Disk files of two labs
// can have the same name.
func TestFindDistinguishesFilesOfSameName(t *testing.T) {
	needsVolumes(t)
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
		t.Errorf("got %v, %v for another file, want nil", other, err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	same, err := Find(path)
	if err != nil || same == nil || same.Number != first.Number {
		t.Fatalf("got %v, %v, want the device of the file", same, err)
	}
	if err := same.Close(); err != nil {
		t.Error(err)
	}
}

// TestAutoclearDetachesDevice proves that the kernel detaches a device with the autoclear flag
// after the last unmount, and not earlier. The kernel does this even if the device's file was
// deleted.
func TestAutoclearDetachesDevice(t *testing.T) {
	needsVolumes(t)
	dir := t.TempDir()
	path, at := filepath.Join(dir, "disk.img"), filepath.Join(dir, "at")
	emptyDisk(t, path, 64<<20)
	l, err := Attach(t.Context(), path, false, true)
	if err != nil {
		t.Fatal(err)
	}
	if lapses, err := l.Lapses(); err != nil || !lapses {
		t.Errorf("autoclear: got %t, %v; want true", lapses, err)
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
			t.Fatalf("Find near %v: got %v, %v; want %s", near, have, err, l.Device())
		}
		if err := have.Close(); err != nil {
			t.Error(err)
		}
	}
	if other, err := Find(filepath.Join(dir, "other.img"), at); err != nil || other != nil {
		t.Errorf("Find of a missing file: got %v, %v; want nil", other, err)
	}
	if err := UnmountAll(at); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		have, err := Find(path, at)
		if err != nil {
			t.Fatal(err)
		}
		if have == nil {
			break
		}
		if err := have.Close(); err != nil || ctx.Err() != nil { // udev may open the device for a moment
			t.Fatalf("the device remains after the last unmount: %s, %v", have.Device(), err)
		}
		backoff.Sleep(ctx, tick)
	}
	emptyDisk(t, path, 64<<20)
	stays, err := Attach(t.Context(), path, false, false)
	if err != nil {
		t.Fatal(err)
	}
	if lapses, err := stays.Lapses(); err != nil || lapses {
		t.Errorf("autoclear of a device attached without autoclear: got %t, %v; want false", lapses, err)
	}
	second, err := Attach(t.Context(), path, false, true) // the second call does not change autoclear
	if err != nil {
		t.Fatal(err)
	}
	if lapses, err := second.Lapses(); err != nil || lapses {
		t.Errorf("autoclear after a second Attach with autoclear: got %t, %v; want false", lapses, err)
	}
	if err := errors.Join(second.Close(), stays.Detach()); err != nil {
		t.Error(err)
	}
}

// TestFindAfterTheMountIsGone proves that the package finds a file's device
// even if the kernel cannot show the full path of the file. The kernel cannot
// show this path after the mount namespace of a container has ended.
func TestFindAfterTheMountIsGone(t *testing.T) {
	needsVolumes(t)
	dir := privateDir(t)
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	if err := errors.Join(os.Mkdir(first, 0o700), os.Mkdir(second, 0o700), unix.Mount("none", first, "tmpfs", 0, ""), Bind(first, second, nil)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(second, unix.MNT_DETACH) }()
	emptyDisk(t, filepath.Join(first, "disk.img"), 1<<20)
	l, err := Attach(t.Context(), filepath.Join(first, "disk.img"), false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Detach(); err != nil {
			t.Error(err)
		}
	}()
	if err := unix.Unmount(first, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	have, err := Find(filepath.Join(second, "disk.img"))
	if err != nil || have == nil || have.Number != l.Number {
		t.Fatalf("Find: got %v, %v; want %s", have, err, l.Device())
	}
	if err := have.Close(); err != nil {
		t.Error(err)
	}
}

// TestLinkIsNoDisk proves that a symbolic link in the folder of the disks never
// leads the driver to another file. The link may exist before the call or
// appear during the call.
func TestLinkIsNoDisk(t *testing.T) {
	needsVolumes(t)
	dir := t.TempDir()
	other, link := filepath.Join(dir, "other"), filepath.Join(dir, "disk.img")
	emptyDisk(t, other, 64<<20)
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	l, err := Attach(t.Context(), other, false, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Detach() }()
	if got, err := Attach(t.Context(), link, false, true); err == nil {
		t.Errorf("Attach returned the device %s of the link's target", got.Device())
		_ = got.Close()
	}
	if got, err := Find(link); err == nil {
		t.Errorf("Find returned %v", got)
	}
	if _, err := loop.OpenFile(link, os.O_RDWR); err == nil {
		t.Error("OpenFile followed the link")
	}
	if _, err := EnsureFilesystem(t.Context(), l, link, Ext4); err == nil {
		t.Error("EnsureFilesystem followed the link")
	}
	if size, err := FilesystemSize(l, other); err != nil || size != 0 {
		t.Errorf("the target has a filesystem of %d bytes, %v", size, err)
	}
}

// TestReadOnlyFlagEndsWithItsFile proves that the read-only flag of a loop device does not apply to
// the next file that gets the same device number. This is also true if another program has detached
// the first file.
func TestReadOnlyFlagEndsWithItsFile(t *testing.T) {
	needsVolumes(t)
	detached := func(l *Loop) error { return l.Detach() }
	cleared := func(l *Loop) error {
		dev, err := os.Open(l.Device())
		if err != nil {
			return err
		}
		return errors.Join(unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0), dev.Close(), l.Close())
	}
	for name, tc := range map[string]struct {
		takeAway func(*Loop) error
		free     bool // whether the device must accept writes while it has no file
	}{"detached by the package": {detached, true}, "detached by another program": {cleared, false}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first, next := filepath.Join(dir, "first.img"), filepath.Join(dir, "next.img")
			emptyDisk(t, first, 64<<20)
			emptyDisk(t, next, 64<<20)
			for range 100 { // try again if another process takes the device number before the second Attach
				l, err := Attach(t.Context(), first, false, false)
				if err != nil {
					t.Fatal(err)
				}
				number := l.Number
				if err := errors.Join(l.Guard(true), tc.takeAway(l)); err != nil {
					t.Fatal(err)
				}
				ro, err := os.ReadFile("/sys/block/loop" + strconv.Itoa(number) + "/ro")
				if err != nil {
					t.Fatal(err)
				}
				if l, err = Attach(t.Context(), next, false, true); err != nil {
					t.Fatal(err)
				}
				if l.Number != number {
					_ = l.Detach()
					continue
				}
				if tc.free && strings.TrimSpace(string(ro)) != "0" {
					t.Error("the device without a file refuses writes")
				}
				if _, err := EnsureFilesystem(t.Context(), l, next, Ext4); err != nil {
					t.Errorf("mkfs on the next file: %v", err)
				}
				if err := l.Detach(); err != nil {
					t.Error(err)
				}
				return
			}
			t.Fatal("no device number was used twice in 100 attempts")
		})
	}
}

// TestSeparateDevicePerNode proves that a node with its own device finds only this device. The name
// of a device contains the path of the file and the name of the node. If the path is too long for
// the name of the device, the node still finds its device. If a device belongs to no node, every
// node finds this device.
func TestSeparateDevicePerNode(t *testing.T) {
	needsVolumes(t)
	longest := strings.Repeat("n", 63) // the longest valid name
	for _, folder := range []string{"short", strings.Repeat("long", 40)} {
		path := filepath.Join(t.TempDir(), folder, "disk.img")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		emptyDisk(t, path, 1<<20)
		numbers := map[string]int{}
		for _, node := range []string{"i-000001", "i-000002", longest, "i-000001", longest} {
			l, err := AttachFor(t.Context(), node, path, false, false)
			if err != nil {
				t.Fatal(err)
			}
			if had, ok := numbers[node]; ok && had != l.Number {
				t.Errorf("node %s had the device %d, and got %d", node, had, l.Number)
			}
			numbers[node] = l.Number
			_ = l.Close()
		}
		if numbers["i-000001"] == numbers["i-000002"] {
			t.Errorf("both nodes have the device %d", numbers["i-000001"])
		}
		if l, err := FindFor("i-000003", path); err != nil || l != nil {
			t.Errorf("third node: got %v, %v; want nil", l, err)
		}
		if err := os.Remove(path); err != nil { // then the kernel knows only the former name of the file
			t.Fatal(err)
		}
		for node, want := range numbers {
			l, err := FindFor(node, path)
			if err != nil || l == nil || l.Number != want {
				t.Fatalf("node %s: got %v, %v; want %d", node, l, err, want)
			}
			if err := l.Detach(); err != nil {
				t.Error(err)
			}
		}
		emptyDisk(t, path, 1<<20)
		shared, err := Attach(t.Context(), path, false, false)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := FindFor("i-000001", path); err != nil || l == nil || l.Number != shared.Number {
			t.Errorf("device without an owner: got %v, %v", l, err)
		} else {
			_ = l.Close()
		}
		if err := shared.Detach(); err != nil {
			t.Error(err)
		}
	}
}

// TestMarkOfAnotherFile proves that EnsureFilesystem ignores an mkfs mark that contains the name of
// another file. For example, a copy of a marked file can contain the mark with the name of the
// original file.
func TestMarkOfAnotherFile(t *testing.T) {
	needsVolumes(t)
	path := filepath.Join(t.TempDir(), "disk.img")
	emptyDisk(t, path, 64<<20)
	l, err := Attach(t.Context(), path, false, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Detach() }()
	if _, err := unix.Pwrite(fileOf(t, path), []byte("somebody's"), 4096); err != nil {
		t.Fatal(err)
	}
	mark := func(of string) error { return unix.Setxattr(path, mkfsAttribute, []byte(of), 0) }
	if err := mark("disk-of-before.img"); errors.Is(err, unix.ENOTSUP) {
		t.Skip("files on this machine cannot have the mark")
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureFilesystem(t.Context(), l, path, Ext4); !errors.Is(err, ErrHasData) {
		t.Fatalf("mark of another file: got %v, want ErrHasData", err)
	}
	if err := mark("disk.img"); err != nil {
		t.Fatal(err)
	}
	if bytes, err := EnsureFilesystem(t.Context(), l, path, Ext4); err != nil || bytes != 64<<20 {
		t.Errorf("mark of this file: got %d bytes, %v; want 64 MiB", bytes, err)
	}
}

// TestUnfinishedFilesystemOnDevice proves that EnsureFilesystem runs mkfs again on a device if an
// earlier mkfs did not finish. If the device has no mark of an unfinished mkfs, and has data near
// its beginning or its end, EnsureFilesystem returns ErrHasData.
func TestUnfinishedFilesystemOnDevice(t *testing.T) {
	needsVolumes(t)
	for _, want := range Filesystems() {
		t.Run(want, func(t *testing.T) {
			const size = 512 << 20
			path := filepath.Join(t.TempDir(), "disk.img")
			emptyDisk(t, path, size)
			l, err := Attach(t.Context(), path, false, true)
			if err != nil {
				t.Fatal(err)
			}
			l.managed = true
			defer func() { _ = l.Close() }()
			ensure := func() error {
				got, err := EnsureFilesystem(t.Context(), l, "/dev/disk/by-id/unused", want)
				if err == nil && got != size {
					t.Errorf("size of the filesystem: got %d bytes, want %d", got, size)
				}
				return err
			}
			put := func(at int64, data string) {
				dev, err := os.OpenFile(l.Device(), os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				_, err = dev.WriteAt([]byte(data), at)
				if err := errors.Join(err, dev.Close()); err != nil {
					t.Fatal(err)
				}
			}
			for name, at := range map[string]int64{"begin": 8192, "end": size - 512} {
				put(at, "data")
				if err := ensure(); !errors.Is(err, ErrHasData) {
					t.Fatalf("disk with data at its %s: got %v, want ErrHasData", name, err)
				}
				put(at, "\x00\x00\x00\x00")
			}
			put(8192, "half of a filesystem")
			put(0, mkfsSector)
			if want == Ext4 {
				// mkfs.ext4 does not write to the sector with the mark, so the mark still exists
				// afterward.
				if err := tool(t.Context(), nil, append(slices.Clone(mkfsCommands[Ext4]), l.Device())...); err != nil {
					t.Fatal(err)
				}
				if marked, err := l.isMarked(open(t, l.Device())); err != nil || !marked {
					t.Errorf("mark after mkfs.ext4, before its removal: got %t, %v; want true", marked, err)
				}
			}
			if err := ensure(); err != nil {
				t.Fatalf("disk with an unfinished filesystem: %v", err)
			}
			if marked, err := l.isMarked(open(t, l.Device())); err != nil || marked {
				t.Errorf("mark after mkfs: got %t, %v; want false", marked, err)
			}
			if want == XFS {
				put(126, "\x01") // the superblock of an unfinished mkfs.xfs
				if marked, err := l.isMarked(open(t, l.Device())); err != nil || !marked {
					t.Errorf("mark of an unfinished superblock: got %t, %v; want true", marked, err)
				}
			}
			if err := ensure(); err != nil {
				t.Fatalf("second call: %v", err)
			}
		})
	}
}

func fileOf(t *testing.T, path string) int {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

func needsVolumes(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("short mode: the test makes loop devices, filesystems or mounts")
	}
	if err := Ready(); err != nil {
		t.Skipf("this machine cannot mount volumes: %v", err)
	}
}

// emptyDisk makes the file of an empty disk, as the cloud does.
func emptyDisk(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadableIsNotEmpty proves that EnsureFilesystem returns an error for an
// unreadable disk and does not format the disk.
func TestUnreadableIsNotEmpty(t *testing.T) {
	needsVolumes(t)
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
	// A read at offset 0 of /proc/self/mem returns an I/O error, because address 0
	// of a process is not mapped.
	if _, err := EnsureFilesystem(t.Context(), l, "/proc/self/mem", Ext4); !errors.Is(err, unix.EIO) {
		t.Errorf("unreadable file: got %v, want EIO", err)
	}
	if size, err := FilesystemSize(l, path); err != nil || size != 0 {
		t.Errorf("got a filesystem of %d bytes, %v; want none", size, err)
	}
}
