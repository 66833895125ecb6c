package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestAttachmentRefusals proves that AttachDisk and DetachDisk return an error
// while an attachment of the disk changes. They also return an error for a disk
// of another project.
func TestAttachmentRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), func(c *engine.Config) { c.Profile = engine.Profile{Disk: 20 * time.Second, Shutdown: time.Hour} })
		defer down()
		rest := func() { time.Sleep(21 * time.Second); synctest.Wait() }
		a, b, going := mustCreate(t, e, ctx, "a"), mustCreate(t, e, ctx, "b"), mustCreate(t, e, ctx, "going")
		d, many := mustCreateDisk(t, e, ctx, "data"), mustCreateDisk(t, e, ctx, "many", shared)
		must(e.DeleteInstance(ctx, going.ID))(t)
		attach := func(d cloudsim.Disk, to cloudsim.InstanceID, readOnly bool) error {
			_, err := e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: to, ReadOnly: readOnly})
			return err
		}
		rest()
		refused(t, "to one that terminates", attach(d, going.ID, false), cloudsim.Conflict, "")
		refused(t, "to nothing", attach(d, "", false), cloudsim.Invalid, "instance")
		_, err := e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{})
		refused(t, "from nothing", err, cloudsim.Invalid, "instance")

		p := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: "other"}))(t)
		tok := must(e.CreateToken(ctx, cloudsim.CreateToken{Name: "t", Role: cloudsim.RoleWriter, Project: p.ID}))(t)
		their := must(e.Authorize(t.Context(), engine.Request{Secret: tok.Secret, Access: engine.Write}))(t)
		theirs := must(e.CreateInstance(their, cloudsim.CreateInstance{Name: "theirs", Zone: "sim-1a", Type: "small"}))(t)
		refused(t, "to another project's", attach(d, theirs.ID, false), cloudsim.NotFound, "instance")

		must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: a.ID, ReadOnly: true}))(t)
		refused(t, "for writing, while it is read-only", attach(d, a.ID, false), cloudsim.Conflict, "")
		must(e.AttachDisk(ctx, many.ID, cloudsim.AttachDisk{Instance: a.ID}))(t)
		rest()
		detach := cloudsim.DetachDisk{Instance: a.ID}
		got := must(e.DetachDisk(ctx, d.ID, detach))(t)
		if again := must(e.DetachDisk(ctx, d.ID, detach))(t); again.Revision != got.Revision {
			t.Errorf("repeated request: got %+v", again)
		}
		refused(t, "while it is detaching", attach(d, a.ID, true), cloudsim.Conflict, "")
		must(e.AttachDisk(ctx, many.ID, cloudsim.AttachDisk{Instance: b.ID}))(t)
		_, err = e.DetachDisk(ctx, many.ID, detach)
		refused(t, "from one, while it is attaching to another", err, cloudsim.Conflict, "")
		rest()
		got = must(e.DetachDisk(ctx, many.ID, detach))(t)
		if at, _ := got.Attachment(b.ID); at.State != cloudsim.AttachmentAttached {
			t.Errorf("attachment of the other instance: got %+v", at)
		}
		must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: b.ID}))(t)
		rest()
		must(e.DeleteInstance(ctx, b.ID))(t)
		if got = must(e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: b.ID, Force: true}))(t); got.State != cloudsim.DiskAvailable {
			t.Errorf("forced detachment from a terminating instance: got %+v", got)
		}
	})
}

// TestResizeWaitsForCopies proves that a disk cannot grow while a snapshot of
// the disk is being taken.
func TestResizeWaitsForCopies(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, kept)
	defer down()
	d := mustCreateDisk(t, e, ctx, "data")
	s := mustSnapshot(t, e, ctx, "snap", d.ID)
	_, err := e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 20})
	refused(t, "while a snapshot is taken", err, cloudsim.Conflict, "")
	_, err = e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 65537})
	refused(t, "above its type", err, cloudsim.Invalid, "sizeGiB")
	if err := e.ReportSnapshots(ctx, []cloudsim.SnapshotReport{{ID: s.ID, Status: whole(10)}}); err != nil {
		t.Fatal(err)
	}
	must(e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 20}))(t)
}
