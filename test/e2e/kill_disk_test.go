package e2e

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// disk makes a call for the writer's disk n. If the writer already has this disk, the method
// attaches, detaches, resizes, deletes or reads the disk at random. Otherwise it creates the disk.
// If the writer has a snapshot, the method creates disk 1 from the snapshot. All other new disks
// are empty.
func (w *writer) disk(ctx context.Context, c *client.Client, n int) error {
	id, snapshot, to := w.disks[n], w.snapshot, w.instances[w.rng.IntN(len(w.instances))]
	name := fmt.Sprintf("disk-%d-%d", w.n, n)
	verb, size := w.rng.IntN(8), 1+w.rng.IntN(8)
	got, err := say(ctx, w, cloudsim.KindDisk, func(d cloudsim.Disk) string { return string(d.ID) }, func(ctx context.Context) (cloudsim.Disk, error) {
		switch {
		case id == "":
			req := cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "balanced", SizeGiB: 8}
			if n == 1 {
				req.SourceSnapshot = snapshot
			}
			return c.CreateDisk(ctx, req)
		case verb < 3 && to != "":
			return c.AttachDisk(ctx, id, cloudsim.AttachDisk{Instance: to})
		case verb < 5 && to != "":
			return c.DetachDisk(ctx, id, cloudsim.DetachDisk{Instance: to, Force: verb == 4})
		case verb == 5:
			return c.ResizeDisk(ctx, id, cloudsim.ResizeDisk{SizeGiB: 8 + size})
		case verb == 6:
			w.deleteSent[string(id)] = true
			return c.DeleteDisk(ctx, id)
		}
		return c.GetDisk(ctx, id)
	})
	switch {
	case err == nil:
		w.disks[n] = got.ID
	case id == "" && errors.Is(err, cloudsim.Exists): // an earlier request with a lost answer created the disk with other values
		if l, err := c.ListDisks(ctx, cloudsim.ListOptions{Name: name}); err == nil && len(l.Items) == 1 {
			w.disks[n] = l.Items[0].ID
		}
	case id != "" && (verb >= 5 || to == "") && w.checkNotFound(err, string(id)): // for an attach, NotFound may also mean that the instance is gone
		w.disks[n] = ""
	}
	return err
}

// snap creates, reads or deletes a snapshot of the writer's disk 0.
func (w *writer) snap(ctx context.Context, c *client.Client) error {
	id, verb := w.snapshot, w.rng.IntN(2)
	name := fmt.Sprintf("snap-%d", w.n)
	if id == "" && w.disks[0] == "" {
		return nil
	}
	got, err := say(ctx, w, cloudsim.KindSnapshot, func(s cloudsim.Snapshot) string { return string(s.ID) }, func(ctx context.Context) (cloudsim.Snapshot, error) {
		switch {
		case id == "":
			return c.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: name, Disk: w.disks[0]})
		case verb == 0:
			w.deleteSent[string(id)] = true
			return c.DeleteSnapshot(ctx, id)
		}
		return c.GetSnapshot(ctx, id)
	})
	switch {
	case err == nil:
		w.snapshot = got.ID
	case id == "" && errors.Is(err, cloudsim.Exists): // the existing snapshot belongs to an earlier disk, which the writer has deleted
		if l, err := c.ListSnapshots(ctx, cloudsim.ListOptions{Name: name}); err == nil && len(l.Items) == 1 {
			w.snapshot = l.Items[0].ID
		}
	case id != "" && w.checkNotFound(err, string(id)):
		w.snapshot = ""
	}
	return err
}
