package engine_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestAttachmentRefusals proves that the cloud returns an error in these cases:
//   - A request attaches a disk that the cloud is detaching.
//   - A request attaches a disk for writing to an instance that has a read-only attachment of the
//     disk.
//   - A request attaches a disk to an instance that is terminating or belongs to another project.
//   - A request detaches a disk from one instance while the cloud attaches the disk to another
//     instance.
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
		expectRefused(t, "attachment to a terminating instance", attach(d, going.ID, false), cloudsim.Conflict, "")
		expectRefused(t, "attachment without an instance", attach(d, "", false), cloudsim.Invalid, "instance")
		_, err := e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{})
		expectRefused(t, "detachment without an instance", err, cloudsim.Invalid, "instance")

		p := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: "other"}))(t)
		tok := must(e.CreateToken(ctx, cloudsim.CreateToken{Name: "t", Role: cloudsim.RoleWriter, Project: p.ID}))(t)
		their := must(e.Authorize(t.Context(), engine.Request{Secret: tok.Secret, Access: engine.Write}))(t)
		otherInstance := must(e.CreateInstance(their, cloudsim.CreateInstance{Name: "theirs", Zone: "sim-1a", Type: "small"}))(t)
		expectRefused(t, "attachment to an instance of another project", attach(d, otherInstance.ID, false), cloudsim.NotFound, "instance")

		must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: a.ID, ReadOnly: true}))(t)
		expectRefused(t, "attachment for writing of a disk with a read-only attachment", attach(d, a.ID, false), cloudsim.Conflict, "")
		must(e.AttachDisk(ctx, many.ID, cloudsim.AttachDisk{Instance: a.ID}))(t)
		rest()
		detach := cloudsim.DetachDisk{Instance: a.ID}
		got := must(e.DetachDisk(ctx, d.ID, detach))(t)
		if repeated := must(e.DetachDisk(ctx, d.ID, detach))(t); repeated.Revision != got.Revision {
			t.Errorf("repeated request: got %+v, want an unchanged disk", repeated)
		}
		expectRefused(t, "attachment during the detachment", attach(d, a.ID, true), cloudsim.Conflict, "")
		must(e.AttachDisk(ctx, many.ID, cloudsim.AttachDisk{Instance: b.ID}))(t)
		_, err = e.DetachDisk(ctx, many.ID, detach)
		expectRefused(t, "detachment from one instance during the attachment to another", err, cloudsim.Conflict, "")
		rest()
		got = must(e.DetachDisk(ctx, many.ID, detach))(t)
		if at, _ := got.Attachment(b.ID); at.State != cloudsim.AttachmentAttached {
			t.Errorf("attachment to the other instance after the detachment: got %+v, want state attached", at)
		}
		must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: b.ID}))(t)
		rest()
		must(e.DeleteInstance(ctx, b.ID))(t)
		if got = must(e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: b.ID, Force: true}))(t); got.State != cloudsim.DiskAvailable {
			t.Errorf("forced detachment from a terminating instance: got %+v, want state available", got)
		}
	})
}

// TestListDisksOfInstances proves that ListDisks with the filter Instances returns exactly the
// disks with an attachment to one of these instances. The state of the attachment does not matter.
// The filter also works together with other filters and on the second page. A fault can make
// ListDisks return an earlier state of the disks. In this case, the filter uses the attachments in
// this earlier state.
func TestListDisksOfInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), slowDisks)
		defer down()
		rest := func() { time.Sleep(21 * time.Second); synctest.Wait() }
		a, b := mustCreate(t, e, ctx, "a"), mustCreate(t, e, ctx, "b")
		first, other := mustCreateDisk(t, e, ctx, "first"), mustCreateDisk(t, e, ctx, "other")
		second, copied := mustCreateDisk(t, e, ctx, "second", shared), mustCreateDisk(t, e, ctx, "free")
		rest()
		lists := func(when string, ctx context.Context, o cloudsim.ListOptions, want ...cloudsim.DiskID) {
			t.Helper()
			var got []cloudsim.DiskID
			for _, d := range must(e.ListDisks(ctx, o))(t).Items {
				got = append(got, d.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got disks %v, want %v", when, got, want)
			}
		}
		of := func(i ...cloudsim.InstanceID) cloudsim.ListOptions { return cloudsim.ListOptions{Instances: i} }
		for d, i := range map[cloudsim.DiskID]cloudsim.InstanceID{first.ID: a.ID, second.ID: a.ID, other.ID: b.ID} {
			must(e.AttachDisk(ctx, d, cloudsim.AttachDisk{Instance: i}))(t)
		}
		lists("attaching", ctx, of(a.ID), first.ID, second.ID)
		rest()
		must(e.AttachDisk(ctx, second.ID, cloudsim.AttachDisk{Instance: b.ID}))(t)
		lists("attached", ctx, of(a.ID), first.ID, second.ID)
		lists("with a shared disk", ctx, of(b.ID), other.ID, second.ID)
		lists("without an instance", ctx, of("i-0000ff"))
		lists("of two instances", ctx, of(b.ID, a.ID), first.ID, other.ID, second.ID)
		onA := []cloudsim.InstanceID{a.ID}
		lists("with a name", ctx, cloudsim.ListOptions{Instances: onA, Name: "second"}, second.ID)
		lists("with another disk's name", ctx, cloudsim.ListOptions{Instances: onA, Name: "other"})
		lists("with a zone", ctx, cloudsim.ListOptions{Instances: onA, Zone: "sim-1b"})
		lists("with a source", ctx, cloudsim.ListOptions{Instances: onA, Source: string(copied.ID)})
		lists("second page", ctx, cloudsim.ListOptions{Instances: onA, After: string(first.ID), Limit: 1}, second.ID)
		if l := must(e.ListInstances(ctx, of(a.ID)))(t); len(l.Items) != 0 {
			t.Errorf("ListInstances with the filter Instances: got %+v, want none", l.Items)
		}
		rest()
		must(e.DetachDisk(ctx, first.ID, cloudsim.DetachDisk{Instance: a.ID}))(t)
		lists("detaching", ctx, of(a.ID), first.ID, second.ID)
		rest()
		lists("detached", ctx, of(a.ID), second.ID)

		mustFault(t, e, fault("stale", "disks.list", effect(cloudsim.FaultEffect{Type: cloudsim.FaultStaleRead, AgeSeconds: 30})))
		reader := enter(t, e, "secret", "default")
		hit := must(e.Decide(reader, engine.Subject{Operation: "disks.list"}))(t)
		lists("stale", engine.Under(reader, hit), of(a.ID), first.ID, second.ID)

		p := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: "empty"}))(t)
		lists("in another project", enter(t, e, "secret", string(p.ID)), of(a.ID))
	})
}

func TestResizeIsRefusedDuringCopy(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, withDiskData)
	defer down()
	d := mustCreateDisk(t, e, ctx, "data")
	s := mustSnapshot(t, e, ctx, "snap", d.ID)
	_, err := e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 20})
	expectRefused(t, "resize during the copy of a snapshot", err, cloudsim.Conflict, "")
	_, err = e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 65537})
	expectRefused(t, "resize beyond the maximum of the disk type", err, cloudsim.Invalid, "sizeGiB")
	if err := e.ReportSnapshots(ctx, []cloudsim.SnapshotReport{{ID: s.ID, Status: completeStatus(10)}}); err != nil {
		t.Fatal(err)
	}
	must(e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 20}))(t)
}
