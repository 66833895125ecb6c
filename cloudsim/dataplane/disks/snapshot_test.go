package disks_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func snapshot(t *testing.T, c *client.Client, name string, disk cloudsim.DiskID) cloudsim.Snapshot {
	t.Helper()
	s, err := c.CreateSnapshot(t.Context(), cloudsim.CreateSnapshot{Name: name, Disk: disk})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// awaitOperation waits for the operation on a resource. It fails the test if the operation
// failed.
func awaitOperation(t *testing.T, c *client.Client, resource cloudsim.Resource) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if op, err := c.WaitOperation(ctx, resource.Head().Operation); err != nil || op.State != cloudsim.OperationDone {
		t.Fatalf("operation: got %+v, error %v; want done", op, err)
	}
}

func copyOf(t *testing.T, c *client.Client, req cloudsim.CreateDisk) cloudsim.Disk {
	t.Helper()
	req.Zone, req.Type = "sim-1a", "balanced"
	d, err := c.CreateDisk(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A snapshot is a sparse, read-only file with the data of the disk at the time of the snapshot. The
// initial data of a new disk is the data of its source, which is a snapshot or another disk. A
// later write to a disk changes neither snapshots nor other disks.
func TestCopies(t *testing.T) {
	dir := t.TempDir()
	c, run := start(t, dir)
	defer run()()
	d := create(t, c, "data", 2)
	eventually.True(t, "disk file exists", func() bool { return status(t, c, d.ID).SizeGiB == 2 })
	path := disks.Path(dir, d.ID)
	for _, at := range []int64{0, 1 << 30, 2<<30 - 4} {
		write(t, path, at, "then")
	}
	s := snapshot(t, c, "snap", d.ID)
	awaitOperation(t, c, s)
	write(t, path, 1<<30, "late")
	info, err := os.Stat(disks.SnapshotPath(dir, s.ID))
	if err != nil || info.Size() != 2<<30 || info.Mode().Perm() != 0o400 {
		t.Fatalf("snapshot file: got %v, error %v; want 2 GiB and mode 0400", info, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 > 1<<20 {
		t.Errorf("snapshot of three blocks: got %d allocated bytes, want at most 1 MiB", st.Blocks*512)
	}
	restored := copyOf(t, c, cloudsim.CreateDisk{Name: "restored", SourceSnapshot: s.ID, SizeGiB: 3})
	copied := copyOf(t, c, cloudsim.CreateDisk{Name: "copied", SourceDisk: d.ID})
	for name, tc := range map[string]struct {
		d    cloudsim.Disk
		size int64
		mid  string
	}{"restored": {restored, 3, "then"}, "copied": {copied, 2, "late"}} {
		awaitOperation(t, c, tc.d)
		path := disks.Path(dir, tc.d.ID)
		info, err := os.Stat(path)
		if err != nil || info.Size() != tc.size<<30 || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: got %v, error %v; want %d GiB and mode 0600", name, info, err, tc.size)
		}
		for at, want := range map[int64]string{0: "then", 1 << 30: tc.mid, 2<<30 - 4: "then"} {
			if got := read(t, path, at); got != want {
				t.Errorf("%s: got data %q at %d, want %q", name, got, at, want)
			}
		}
		write(t, path, 0, "own.")
	}
	if read(t, path, 0) != "then" || read(t, disks.SnapshotPath(dir, s.ID), 0) != "then" {
		t.Error("a write to a copy changed its source")
	}
	if _, err := c.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "disk file is removed", func() bool { return isGone(path) })
	secondCopy := copyOf(t, c, cloudsim.CreateDisk{Name: "again", SourceSnapshot: s.ID})
	awaitOperation(t, c, secondCopy)
	if got := read(t, disks.Path(dir, secondCopy.ID), 1<<30); got != "then" {
		t.Errorf(`disk of the snapshot: got data %q, want "then"`, got)
	}
	if _, err := c.DeleteSnapshot(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "snapshot file is removed", func() bool { return isGone(disks.SnapshotPath(dir, s.ID)) })
	if left, err := filepath.Glob(filepath.Join(dir, "*.part")); err != nil || len(left) != 0 {
		t.Errorf("partial files: got %v, error %v; want none", left, err)
	}
}

// A copy fails if the file of its source is missing. The error says that the data is lost. The
// data plane does not make an empty file. Deleting the failed copies leaves no files.
func TestCopyOfMissingFileFails(t *testing.T) {
	dir := t.TempDir()
	c, run := start(t, dir)
	defer run()()
	d := create(t, c, "data", 1)
	eventually.True(t, "disk file exists", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
	kept := snapshot(t, c, "kept", d.ID)
	awaitOperation(t, c, kept)
	if err := errors.Join(os.Remove(disks.Path(dir, d.ID)), os.Remove(disks.SnapshotPath(dir, kept.ID))); err != nil {
		t.Fatal(err)
	}
	s := snapshot(t, c, "snap", d.ID)
	r := copyOf(t, c, cloudsim.CreateDisk{Name: "restored", SourceSnapshot: kept.ID})
	for _, id := range []cloudsim.OperationID{s.Operation, r.Operation} {
		op, err := c.WaitOperation(t.Context(), id)
		if err != nil || op.State != cloudsim.OperationFailed || !strings.Contains(op.Error.Detail, "the data is lost") || strings.Contains(op.Error.Detail, dir) {
			t.Errorf("operation: got %+v, error %v; want failed because the data is lost", op, err)
		}
	}
	if _, err := c.DeleteDisk(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
	if _, err := c.DeleteSnapshot(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	if !isGone(disks.Path(dir, r.ID)) || !isGone(disks.SnapshotPath(dir, s.ID)) {
		t.Error("files of failed copies exist")
	}
}

// After a restart, the data plane makes the snapshots that clients requested while the data plane
// was stopped. It deletes the files of deleted snapshots and of interrupted copies, and reports a
// lost snapshot.
func TestCopiesAfterRestart(t *testing.T) {
	dir := t.TempDir()
	c, run := start(t, dir)
	stop := run()
	d := create(t, c, "data", 1)
	eventually.True(t, "disk file exists", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
	write(t, disks.Path(dir, d.ID), 100, "kept")
	old, lost := snapshot(t, c, "old", d.ID), snapshot(t, c, "lost", d.ID)
	awaitOperation(t, c, old)
	awaitOperation(t, c, lost)
	stop()
	s := snapshot(t, c, "snap", d.ID)
	g, err := c.CreateSnapshotGroup(t.Context(), cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{d.ID}})
	if err != nil {
		t.Fatal(err)
	}
	part := disks.SnapshotPath(dir, s.ID) + ".part"
	stray := disks.SnapshotPath(dir, "snap-ffffff") + ".part"
	if _, err := c.DeleteSnapshot(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(part, []byte("half"), 0o600), os.WriteFile(stray, []byte("half"), 0o600), os.Remove(disks.SnapshotPath(dir, lost.ID))); err != nil {
		t.Fatal(err)
	}
	defer run()()
	awaitOperation(t, c, s)
	awaitOperation(t, c, g)
	for _, id := range []cloudsim.SnapshotID{s.ID, g.Snapshots[0]} {
		if got := read(t, disks.SnapshotPath(dir, id), 100); got != "kept" {
			t.Errorf("snapshot %s: got data %q, want kept", id, got)
		}
	}
	eventually.True(t, "snapshot reports lost data", func() bool {
		now, err := c.GetSnapshot(t.Context(), lost.ID)
		return err == nil && now.Status.Lost
	})
	if !isGone(part) || !isGone(stray) || !isGone(disks.SnapshotPath(dir, old.ID)) {
		t.Error("files of incomplete or deleted copies exist")
	}
}

// counter writes increasing numbers to all files until the test calls stop. It writes each number
// to the first file before it writes the number to the second file. The function pause returns the
// time between two numbers.
func counter(t *testing.T, pause func() time.Duration, paths ...string) (stop func()) {
	t.Helper()
	var writing sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	writing.Go(func() {
		for n := uint64(1); ctx.Err() == nil; n++ {
			for _, p := range paths {
				f, err := os.OpenFile(p, os.O_WRONLY, 0)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = f.WriteAt(binary.BigEndian.AppendUint64(nil, n), 0)
				if err := errors.Join(err, f.Close()); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause()):
			}
		}
	})
	return func() { cancel(); writing.Wait() }
}

func counted(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 8)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(b)
}

// All snapshots of a group contain the data of the same instant. If a write to
// the first disk comes before a write to the second disk, the snapshots contain
// both writes, only the first write, or neither write.
func TestGroupIsOneInstant(t *testing.T) {
	dir := t.TempDir()
	c, run := start(t, dir)
	defer run()()
	a, b := create(t, c, "a", 1), create(t, c, "b", 1)
	bulk := bytes.Repeat([]byte("data"), 8<<20)
	for _, d := range []cloudsim.Disk{a, b} {
		eventually.True(t, "disk file exists", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
		write(t, disks.Path(dir, d.ID), 4096, string(bulk))
	}
	// The data plane copies the disks of a group only in a pause between writes. A slow machine
	// needs a longer pause for the copies. So the test makes the pauses longer until the snapshot
	// group is ready.
	var pause atomic.Int64
	defer counter(t, func() time.Duration { return time.Duration(pause.Load()) }, disks.Path(dir, a.ID), disks.Path(dir, b.ID))()
	for n := range 8 {
		pause.Store(int64(200 * time.Millisecond))
		g, err := c.CreateSnapshotGroup(t.Context(), cloudsim.CreateSnapshotGroup{Name: "group-" + string(rune('a'+n)), Disks: []cloudsim.DiskID{a.ID, b.ID}})
		if err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "snapshot group is ready", func() bool {
			pause.Add(int64(time.Millisecond))
			now, err := c.GetSnapshotGroup(t.Context(), g.ID)
			return err == nil && now.ReadyToUse
		})
		first, second := counted(t, disks.SnapshotPath(dir, g.Snapshots[0])), counted(t, disks.SnapshotPath(dir, g.Snapshots[1]))
		if first != second && first != second+1 {
			t.Errorf("one snapshot group: got counters %d and %d, want a difference of at most 1", first, second)
		}
		if _, err := c.DeleteSnapshotGroup(t.Context(), g.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// If the file system cannot clone files, the data plane cannot copy a disk while a program writes
// to it without a pause. The snapshot waits, and its status has the reason. When the writes end,
// the data plane makes the snapshot.
func TestBusyDiskWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("needs half a minute for the time limit")
	}
	dir := t.TempDir()
	c, run := start(t, dir)
	defer run()()
	d := create(t, c, "data", 1)
	eventually.True(t, "disk file exists", func() bool { return status(t, c, d.ID).SizeGiB == 1 })
	stop := counter(t, func() time.Duration { return time.Microsecond }, disks.Path(dir, d.ID))
	s := snapshot(t, c, "snap", d.ID)
	eventually.True(t, "copy fails at the time limit, or is a clone", func() bool {
		now, err := c.GetSnapshot(t.Context(), s.ID)
		return err == nil && (now.ReadyToUse || strings.Contains(now.Status.Error, "programs write to the disk all the time"))
	})
	stop()
	awaitOperation(t, c, s)
	if _, err := os.Stat(disks.SnapshotPath(dir, s.ID)); errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
