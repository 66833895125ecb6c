package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// TestKillMidCopy kills a cloud many times while the cloud copies data. An incomplete copy never
// gets its final name, and the cloud finishes all copies after a restart.
func TestKillMidCopy(t *testing.T) {
	kills := 20
	if testing.Short() {
		kills = 3
	}
	v := &victim{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(1, 2))}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	v.start()
	c := v.client()
	c.Project = "default"
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	var of []cloudsim.DiskID
	for _, name := range []string{"a", "b"} {
		d, err := c.CreateDisk(ctx, cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "balanced", SizeGiB: 1})
		if err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "its file, and the disk that is ready", func() bool {
			d, err = c.GetDisk(ctx, d.ID)
			return err == nil && d.Status.SizeGiB == 1 && d.State == cloudsim.DiskAvailable
		})
		of = append(of, d.ID)
		f, err := os.OpenFile(v.image(string(d.ID)), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(data, 1<<20)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	group, err1 := c.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "group", Disks: of})
	snapshot, err2 := c.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "snap", Disk: of[0]})
	copied, err3 := c.CreateDisk(ctx, cloudsim.CreateDisk{Name: "copy", Zone: "sim-1a", Type: "balanced", SourceDisk: of[1]})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	copies := []string{string(group.Snapshots[0]), string(group.Snapshots[1]), string(snapshot.ID), string(copied.ID)}
	mid := 0
	for n := 0; n < kills; n++ {
		c.HTTP.CloseIdleConnections()
		<-time.After(time.Duration(v.rng.IntN(60)) * time.Millisecond) // at a random point of a copy
		if parts, _ := filepath.Glob(v.image("*") + ".part"); len(parts) > 0 {
			mid++
		}
		v.kill()
		v.compareCopies(copies, data, false)
		v.start()
		c = v.client()
	}
	t.Logf("%d of %d kills hit a copy", mid, kills)
	for _, id := range []cloudsim.OperationID{group.Operation, snapshot.Operation, copied.Operation} {
		if op, err := c.WaitOperation(ctx, id); err != nil || op.State != cloudsim.OperationDone {
			t.Errorf("operation after the restarts: %+v, error %v", op, err)
		}
	}
	v.compareCopies(copies, data, true)
	ready(ctx, t, c, group.Snapshots)
	if parts, err := filepath.Glob(v.image("*") + ".part"); err != nil || len(parts) != 0 {
		t.Errorf("files of incomplete copies: %v, error %v", parts, err)
	}
	v.kill()
	c.HTTP.CloseIdleConnections()
}

func ready(ctx context.Context, t *testing.T, c *client.Client, ids []cloudsim.SnapshotID) {
	t.Helper()
	for _, id := range ids {
		if s, err := c.GetSnapshot(ctx, id); err != nil || !s.ReadyToUse {
			t.Errorf("the snapshot is not ready: %+v, error %v", s, err)
		}
	}
}

// image returns the path of the file that contains the data of a disk or a snapshot.
func (v *victim) image(id string) string { return filepath.Join(v.dir, "disks", id+".img") }

// compareCopies fails the test if a finished copy differs from the given data. If allFinished is
// true, a missing copy also fails the test.
func (v *victim) compareCopies(ids []string, data []byte, allFinished bool) {
	v.t.Helper()
	got := make([]byte, len(data))
	for _, id := range ids {
		f, err := os.Open(v.image(id))
		if errors.Is(err, os.ErrNotExist) && !allFinished {
			continue
		}
		if err == nil {
			_, err = f.ReadAt(got, 1<<20)
			err = errors.Join(err, f.Close())
		}
		if err == nil && !bytes.Equal(got, data) {
			err = fmt.Errorf("%s does not have the data of its source", id)
		}
		if err != nil {
			v.t.Fatal(err)
		}
	}
}
