package disks_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// start runs a cloud, and returns a client of the cloud. The second result is a function that
// starts disks.Run for the folder dir. This function returns the function stop, which ends
// disks.Run.
func start(t *testing.T, dir string) (*client.Client, func() (stop func())) {
	t.Helper()
	engines := make(chan *engine.Engine, 1)
	c := cloudtest.Start(t, cloudtest.WithConfig(func(c *engine.Config) { c.DiskData = true }), cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
		engines <- e
		<-ctx.Done()
		return nil
	}))
	e := <-engines
	return c, func() func() {
		ctx, cancel := context.WithCancel(engine.AsCloud(context.Background()))
		done := make(chan error, 1)
		go func() { done <- disks.Run(ctx, slog.New(slog.DiscardHandler), disks.Config{Dir: dir}, e) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

func status(t *testing.T, c *client.Client, id cloudsim.DiskID) cloudsim.DiskStatus {
	t.Helper()
	d, err := c.GetDisk(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d.Status
}

func create(t *testing.T, c *client.Client, name string, size int) cloudsim.Disk {
	t.Helper()
	d, err := c.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "balanced", SizeGiB: size})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func isGone(path string) bool { _, err := os.Stat(path); return errors.Is(err, fs.ErrNotExist) }

// The file of a disk has the size of the disk, but takes no space before the first write. Data
// stays when the disk grows. When a disk is deleted, the data plane deletes the file.
func TestFileFollowsDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disks")
	c, run := start(t, dir)
	defer run()()
	d := create(t, c, "data", 2)
	eventually.True(t, "disk file exists", func() bool { return status(t, c, d.ID).SizeGiB == 2 })
	path := disks.Path(dir, d.ID)
	info, err := os.Stat(path)
	if err != nil || info.Size() != 2<<30 || info.Mode().Perm() != 0o600 {
		t.Fatalf("disk file: got %v, error %v; want 2 GiB and mode 0600", info, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 > 1<<20 {
		t.Errorf("empty disk: got %d allocated bytes, want at most 1 MiB", st.Blocks*512)
	}
	write(t, path, 1<<30, "kept")
	if _, err := c.ResizeDisk(t.Context(), d.ID, cloudsim.ResizeDisk{SizeGiB: 3}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "disk file has the new size", func() bool { return status(t, c, d.ID).SizeGiB == 3 })
	if info, err = os.Stat(path); err != nil || info.Size() != 3<<30 || read(t, path, 1<<30) != "kept" {
		t.Errorf("resized disk: got %v, error %v, data %q; want 3 GiB and the same data", info, err, read(t, path, 1<<30))
	}
	if _, err := c.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "disk file is removed", func() bool { return isGone(path) })
}

// Earlier versions kept the files of deleted disks under names such as spare-000001.img. When the
// data plane starts, it deletes these files. It keeps files with similar names, e.g. spare-1.txt.
func TestStartDeletesSpareFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"spare-000001.img", "spare-00002a.img", "spare-.img", "spare-1.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("dead"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, run := start(t, dir)
	defer run()()
	d := create(t, c, "data", 1)
	eventually.True(t, "disk file exists", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
	if got, want := fileNames(t, dir), string(d.ID)+".img spare-.img spare-1.txt"; got != want {
		t.Errorf("folder: got %s, want %s", got, want)
	}
}

// When the data plane starts, it deletes the files of deleted disks. If it cannot delete one of
// these files, it still deletes the other files and serves the disks.
func TestStartSkipsFilesThatCannotBeDeleted(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "disk-eeeeee.img", "full"), 0o700), os.WriteFile(filepath.Join(dir, "disk-ffffff.img"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	c, run := start(t, dir)
	defer run()()
	d := create(t, c, "data", 1)
	eventually.True(t, "disk file exists", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
	if got, want := fileNames(t, dir), string(d.ID)+".img disk-eeeeee.img"; got != want {
		t.Errorf("folder: got %s, want %s", got, want)
	}
}

// The data plane follows no link in the folder that contains the files of the disks.
// Growing, copying or deleting a disk does not read or change the file that a link points
// to.
func TestLinksAreNotFollowed(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, run := start(t, dir)
	defer run()()
	d, source := create(t, c, "data", 1), create(t, c, "source", 1)
	for _, disk := range []cloudsim.DiskID{d.ID, source.ID} {
		eventually.True(t, "disk file exists", func() bool { return status(t, c, disk).SizeGiB == 1 })
	}
	if err := errors.Join(os.Remove(disks.Path(dir, d.ID)), os.Symlink(outside, disks.Path(dir, d.ID))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ResizeDisk(t.Context(), d.ID, cloudsim.ResizeDisk{SizeGiB: 2}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "disk reports an error", func() bool { return strings.Contains(status(t, c, d.ID).Error, "regular file") })

	read, err := c.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: "read", Zone: "sim-1a", Type: "balanced", SizeGiB: 2, SourceDisk: d.ID})
	if err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "copy reports an error", func() bool { return strings.Contains(status(t, c, read.ID).Error, "regular file") })
	if !isGone(disks.Path(dir, read.ID)) {
		t.Error("the data plane copied the target of a symbolic link")
	}

	next := cloudsim.DiskID("disk-000004")
	if err := os.Symlink(outside, disks.Path(dir, next)+".part"); err != nil {
		t.Fatal(err)
	}
	written, err := c.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: "written", Zone: "sim-1a", Type: "balanced", SizeGiB: 1, SourceDisk: source.ID})
	if err != nil || written.ID != next {
		t.Fatalf("copy: got disk %s, error %v; want disk %s", written.ID, err, next)
	}
	eventually.True(t, "copy exists", func() bool { return status(t, c, written.ID).SizeGiB == 1 })

	if _, err := c.DeleteDisk(t.Context(), read.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "disk can be deleted after the copy", func() bool { _, err := c.DeleteDisk(t.Context(), d.ID); return err == nil })
	eventually.True(t, "disk file is removed", func() bool { return fileNames(t, dir) == string(source.ID)+".img "+string(next)+".img" })
	if raw, err := os.ReadFile(outside); err != nil || string(raw) != "secret" {
		t.Errorf("target of the symbolic links: got %.20q, error %v; want it unchanged", raw, err)
	}
}

func fileNames(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		all = append(all, f.Name())
	}
	return strings.Join(all, " ")
}

func write(t *testing.T, path string, at int64, data string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(data), at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string, at int64) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 4)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// After a restart, the data plane applies the changes that the cloud made while the data plane did
// not run. It grows files and deletes the files of deleted disks. If the file of a disk is missing,
// it reports the data of this disk as lost.
func TestAfterRestart(t *testing.T) {
	dir := t.TempDir()
	c, run := start(t, dir)
	stop := run()
	grows, goes, lost := create(t, c, "grows", 1), create(t, c, "goes", 1), create(t, c, "lost", 1)
	for _, d := range []cloudsim.Disk{grows, goes, lost} {
		eventually.True(t, "disk file exists", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
	}
	stop()
	write(t, disks.Path(dir, grows.ID), 100, "kept")
	foreign := filepath.Join(dir, "notes.txt")
	if err := errors.Join(os.Remove(disks.Path(dir, lost.ID)), os.WriteFile(foreign, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteDisk(t.Context(), goes.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ResizeDisk(t.Context(), grows.ID, cloudsim.ResizeDisk{SizeGiB: 2}); err != nil {
		t.Fatal(err)
	}
	defer run()()
	eventually.True(t, "disk file has the new size", func() bool { return status(t, c, grows.ID).SizeGiB == 2 })
	eventually.True(t, "disk file is removed", func() bool { return isGone(disks.Path(dir, goes.ID)) })
	eventually.True(t, "disk reports lost data", func() bool { return strings.Contains(status(t, c, lost.ID).Error, "the data is lost") })
	if read(t, disks.Path(dir, grows.ID), 100) != "kept" || isGone(foreign) {
		t.Error("the data plane changed the data of the grown disk or removed a foreign file")
	}
}

func TestConfigNeedsAFolder(t *testing.T) {
	if err := (disks.Config{}).Validate(); err == nil {
		t.Error("Validate without a folder returned no error")
	}
}
