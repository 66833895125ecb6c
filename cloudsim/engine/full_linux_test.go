package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// TestFullDisk fills the file system that contains the cloud's file. It proves that writes then
// return an error, and that reads succeed. When the file system has free space again, the cloud
// completes the due work. The cloud loses no data.
func TestFullDisk(t *testing.T) {
	const many = 1000 // the events need more space than the free pages of the file
	if os.Geteuid() != 0 {
		t.Skip("the small disk of the test needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("the small disk of the test cannot be created: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, filepath.Join(dir, "cloud.db"), func(c *engine.Config) { c.FrozenAt, c.Profile.Provision = newYear, time.Hour })
	defer down()
	large := map[string]string{} // large labels, so that each change needs more free space than the file has
	for n := range 50 {
		large[fmt.Sprint("label", n)] = strings.Repeat("x", 63)
	}
	for n := range many {
		if _, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprint("i", n), Zone: "sim-1a", Type: "small", Labels: large}); err != nil {
			t.Fatal(err)
		}
	}
	filler := filepath.Join(dir, "filler")
	if err := fill(filler); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	info, err := os.Stat(filler)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filler, info.Size()-1<<20); err != nil { // space for the change of the clock, and for a part of the due work
		t.Fatal(err)
	}
	ready := func() (n int) {
		all, _, err := cloudsim.All(ctx, e.ListInstances, cloudsim.ListOptions{})
		if err != nil {
			t.Errorf("read on a full disk: %v", err)
		}
		for _, i := range all {
			if i.State == cloudsim.InstanceRunning {
				n++
			}
		}
		return n
	}
	later := newYear.Add(2 * time.Hour)
	if _, err := e.SetClock(ctx, cloudsim.SetClock{Time: &later}); err != nil {
		t.Fatal(err)
	}
	for before := -1; ready() != before; time.Sleep(200 * time.Millisecond) {
		before = ready()
	}
	if n := ready(); n == many {
		t.Fatal("all instances run on a full disk, want some to wait until the disk has space")
	}
	for n := 0; err == nil && n < many; n++ {
		_, err = e.CreateAddress(ctx, cloudsim.CreateAddress{Name: fmt.Sprint("a", n), Labels: large})
	}
	if !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("write on a full disk: got error %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "all instances run when the disk has space again", func() bool { return ready() == many })
	if err := e.Check(); err != nil {
		t.Errorf("check of the engine: got error %v", err)
	}
}

// TestFullDiskOfStates proves that ImportState and SaveState return Unavailable if the file system
// for saved states is full. The error must not be Invalid, because the imported file is not
// damaged.
func TestFullDiskOfStates(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("the small disk of the test cannot be created: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, withStates(dir))
	defer down()
	state := changedState(t, func(*bbolt.Tx) error { return nil })
	for _, space := range []string{"for the file of the state", "for no file"} {
		_, err := e.ImportState(ctx, "s", bytes.NewReader(state))
		if cloudsim.KindOf(err) != cloudsim.Unavailable {
			t.Errorf("import to a disk with space %s: got error %v, want Unavailable", space, err)
		}
		if err := fill(filepath.Join(dir, "filler")); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	if _, err := e.SaveState(ctx, cloudsim.SaveState{Name: "s"}); cloudsim.KindOf(err) != cloudsim.Unavailable {
		t.Errorf("save to a full disk: got error %v, want Unavailable", err)
	}
}

func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, size := range []int{64 << 10, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(bytes.Repeat([]byte{1}, size))
		}
	}
	return errors.Join(err, f.Close())
}
