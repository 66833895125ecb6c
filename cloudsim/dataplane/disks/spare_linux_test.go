package disks_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
)

func stat(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no inode")
	}
	return st
}

func inode(t *testing.T, path string) uint64 { t.Helper(); return stat(t, path).Ino }

func names(t *testing.T, dir string) string {
	t.Helper()
	there, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range there {
		all = append(all, f.Name())
	}
	return strings.Join(all, " ")
}

func remove(t *testing.T, c *client.Client, dir string, d cloudsim.Disk) {
	t.Helper()
	if _, err := c.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	until(t, "the removal", func() bool { return gone(disks.Path(dir, d.ID)) })
}

// needsSpares skips a test where files cannot be used again: on a file system
// that others may have, and where SELinux labels files.
func needsSpares(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := disks.Alone(f); err != nil {
		t.Skipf("no file is used again here: %v", err)
	}
}

// The file of a disk that is gone becomes the next disk's, without a byte of
// what was in it. Who stops the data plane finds no spare.
func TestFileIsUsedAgain(t *testing.T) {
	needsSpares(t)
	dir := t.TempDir()
	c, run := start(t, dir)
	stop := run()
	first := create(t, c, "first", 2)
	path := disks.Path(dir, first.ID)
	until(t, "the file", func() bool { return status(t, c, first.ID).SizeGiB == 2 })
	write(t, path, 1<<20, "dead")
	before := inode(t, path)
	remove(t, c, dir, first)
	spare := ""
	until(t, "the spare", func() bool {
		spare = filepath.Join(dir, names(t, dir))
		info, err := os.Stat(spare)
		return err == nil && spare != dir && info.Size() == 0
	})
	next := create(t, c, "next", 1)
	path = disks.Path(dir, next.ID)
	until(t, "the file", func() bool { return status(t, c, next.ID).SizeGiB == 1 })
	info, err := os.Stat(path)
	if err != nil || info.Size() != 1<<30 || info.Mode().Perm() != 0o600 || inode(t, path) != before {
		t.Errorf("the next disk's file: %v, %v, inode %d after %d", info, err, inode(t, path), before)
	}
	if got := read(t, path, 1<<20); got != "\x00\x00\x00\x00" || stat(t, path).Blocks != 0 {
		t.Errorf("the next disk shows %q of the one before", got)
	}
	remove(t, c, dir, next)
	stop()
	if left := names(t, dir); left != "" {
		t.Errorf("there stay %s", left)
	}
}

// A process that was killed leaves spares, with what was in them: they are no
// disk's.
func TestSparesAreSwept(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"spare-000001.img", "spare-00002a.img"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("dead"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, run := start(t, dir)
	defer run()()
	d := create(t, c, "data", 1)
	until(t, "the file", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
	if left := names(t, dir); left != filepath.Base(disks.Path(dir, d.ID)) {
		t.Errorf("there are %s", left)
	}
}

// A link in a disk's place is the owner's: what it leads to is no spare.
func TestLinkIsNotUsedAgain(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "moved.img")
	c, run := start(t, dir)
	defer run()()
	d := create(t, c, "data", 1)
	path := disks.Path(dir, d.ID)
	until(t, "the file", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
	write(t, path, 0, "kept")
	if err := errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path)); err != nil {
		t.Fatal(err)
	}
	remove(t, c, dir, d)
	until(t, "the removal", func() bool { return names(t, dir) == "" })
	if got := read(t, elsewhere, 0); got != "kept" {
		t.Errorf("what the link leads to shows %q", got)
	}
}

// What somebody else has is left to him: it does not become another disk's.
func TestFileThatSomebodyHasIsNotUsedAgain(t *testing.T) {
	for name, have := range map[string]func(t *testing.T, path string) (at string, done func() error){
		"open": func(t *testing.T, path string) (string, func() error) {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), f.Close
		},
		"open for writing": func(t *testing.T, path string) (string, func() error) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), f.Close
		},
		"linked": func(t *testing.T, path string) (string, func() error) {
			backup := filepath.Join(filepath.Dir(path), "backup")
			if err := os.Link(path, backup); err != nil {
				t.Fatal(err)
			}
			return backup, func() error { return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c, run := start(t, dir)
			defer run()()
			d := create(t, c, "data", 1)
			until(t, "the file", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
			write(t, disks.Path(dir, d.ID), 0, "kept")
			at, done := have(t, disks.Path(dir, d.ID))
			remove(t, c, dir, d)
			until(t, "the removal", func() bool { return !strings.Contains(names(t, dir), "spare") })
			next := create(t, c, "next", 1)
			until(t, "the file", func() bool { return status(t, c, next.ID).SizeGiB == 1 })
			if had := inode(t, at); had == inode(t, disks.Path(dir, next.ID)) || read(t, at, 0) != "kept" {
				t.Errorf("it became the next disk's, and shows %q", read(t, at, 0))
			}
			if called, err := os.Readlink(at); err == nil && called != disks.Path(dir, d.ID)+" (deleted)" {
				t.Errorf("a device of it would be called %s", called)
			}
			if err := done(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A file with marks of its owner's is not used again: the next disk would have
// them, such as that a mkfs was broken off on it.
func TestFileWithMarksIsNotUsedAgain(t *testing.T) {
	dir := t.TempDir()
	c, run := start(t, dir)
	defer run()()
	d := create(t, c, "data", 1)
	path := disks.Path(dir, d.ID)
	until(t, "the file", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
	if err := syscall.Setxattr(path, "user.cloudsim.test", []byte("mark"), 0); err != nil {
		t.Skipf("this file system has no marks: %v", err)
	}
	before := inode(t, path)
	remove(t, c, dir, d)
	until(t, "the removal", func() bool { return names(t, dir) == "" })
	next := create(t, c, "next", 1)
	until(t, "the file", func() bool { return status(t, c, next.ID).SizeGiB == 1 })
	if n, err := syscall.Getxattr(disks.Path(dir, next.ID), "user.cloudsim.test", nil); err == nil {
		t.Errorf("inode %d, before %d, has a mark of %d bytes", inode(t, disks.Path(dir, next.ID)), before, n)
	}
}
