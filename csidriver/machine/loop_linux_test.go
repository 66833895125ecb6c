package machine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/loop"
	"github.com/cloudsim-dev/allinone/internal/pause"
)

// A device is known by its file, not by what the file is called: the machines
// of two labs call their disks the same.
func TestFindAnothersFileOfTheSameName(t *testing.T) {
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
	needsVolumes(t)
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
		if err := have.Close(); err != nil || ctx.Err() != nil { // udev may look at it for a moment
			t.Fatalf("it stays: %s, %v", have.Device(), err)
		}
		pause.For(ctx, tick)
	}
	emptyDisk(t, path, 64<<20)
	stays, err := Attach(t.Context(), path, false, false)
	if err != nil {
		t.Fatal(err)
	}
	if lapses, err := stays.Lapses(); err != nil || lapses {
		t.Errorf("it lapses: %t, %v", lapses, err)
	}
	again, err := Attach(t.Context(), path, false, true) // what it is now is who has it staged to say
	if err != nil {
		t.Fatal(err)
	}
	if lapses, err := again.Lapses(); err != nil || lapses {
		t.Errorf("it lapses: %t, %v", lapses, err)
	}
	if err := errors.Join(again.Close(), stays.Detach()); err != nil {
		t.Error(err)
	}
}

// The kernel shows the path of a device's file as far as it can be seen, which
// after a container is gone is not far. The file is known all the same.
func TestFindWhoseMountIsGone(t *testing.T) {
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
		t.Fatalf("it is %v, %v; want %s", have, err, l.Device())
	}
	if err := have.Close(); err != nil {
		t.Error(err)
	}
}

// A link in the folder of the disks leads the driver to no other file: neither by its
// name, nor if it comes after the driver has looked for a device.
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
	if size, err := FilesystemSize(other); err != nil || size != 0 {
		t.Errorf("the target has a filesystem of %d bytes, %v", size, err)
	}
}

// A number whose device refused writes takes those of its next file: also if it
// was not this package that took the file away, and for who does not ask.
func TestGuardGoesWithTheFile(t *testing.T) {
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
		free     bool // of it, when it has no file
	}{"detached": {detached, true}, "by another program": {cleared, false}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first, next := filepath.Join(dir, "first.img"), filepath.Join(dir, "next.img")
			emptyDisk(t, first, 64<<20)
			emptyDisk(t, next, 64<<20)
			for range 100 { // others on this machine may be faster to have the number
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
					t.Error("without a file it refuses writes")
				}
				if _, err := EnsureFilesystem(t.Context(), l, next, Ext4); err != nil {
					t.Errorf("its next file: %v", err)
				}
				if err := l.Detach(); err != nil {
					t.Error(err)
				}
				return
			}
			t.Fatal("no number was had twice")
		})
	}
}

// A node that has a device of its own finds that and nobody else's, also when
// its path is long; a device that is nobody's own is everybody's.
func TestDeviceOfItsOwn(t *testing.T) {
	needsVolumes(t)
	longest := strings.Repeat("n", 63) // as a name may be
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
				t.Errorf("%s had %d, and gets %d", node, had, l.Number)
			}
			numbers[node] = l.Number
			_ = l.Close()
		}
		if numbers["i-000001"] == numbers["i-000002"] {
			t.Errorf("both have %d", numbers["i-000001"])
		}
		if l, err := FindFor("i-000003", path); err != nil || l != nil {
			t.Errorf("another has %v, %v", l, err)
		}
		if err := os.Remove(path); err != nil { // only its name is left
			t.Fatal(err)
		}
		for node, want := range numbers {
			l, err := FindFor(node, path)
			if err != nil || l == nil || l.Number != want {
				t.Fatalf("%s finds %v, %v, want %d", node, l, err, want)
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
			t.Errorf("what is nobody's is %v, %v", l, err)
		} else {
			_ = l.Close()
		}
		if err := shared.Detach(); err != nil {
			t.Error(err)
		}
	}
}

// A mark of another file, which this one was once, says nothing of it.
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
	mark := func(of string) error { return unix.Setxattr(path, formatting, []byte(of), 0) }
	if err := mark("disk-of-before.img"); errors.Is(err, unix.ENOTSUP) {
		t.Skip("files cannot be marked here")
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureFilesystem(t.Context(), l, path, Ext4); !errors.Is(err, ErrHasData) {
		t.Fatalf("it is %v", err)
	}
	if err := mark("disk.img"); err != nil {
		t.Fatal(err)
	}
	if bytes, err := EnsureFilesystem(t.Context(), l, path, Ext4); err != nil || bytes != 64<<20 {
		t.Errorf("after a mkfs that was broken off it is %d, %v", bytes, err)
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

// needsVolumes skips a test that makes loop devices or mounts where there can be
// none, and among the quick tests.
func needsVolumes(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it makes loop devices, filesystems or mounts")
	}
	if err := Ready(); err != nil {
		t.Skipf("this machine can have no volumes: %v", err)
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
	// Nothing is at address 0 of a process: reading there is an I/O error.
	if _, err := EnsureFilesystem(t.Context(), l, "/proc/self/mem", Ext4); !errors.Is(err, unix.EIO) {
		t.Errorf("it is %v", err)
	}
	if size, err := FilesystemSize(path); err != nil || size != 0 {
		t.Errorf("a filesystem of %d bytes was made, %v", size, err)
	}
}
