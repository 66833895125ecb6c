package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// withDiskData configures the cloud to wait for reports of a data plane about disk data. The test
// itself sends these reports.
func withDiskData(c *engine.Config) { c.DiskData = true }

func mustSnapshot(t *testing.T, e *engine.Engine, ctx context.Context, name string, of cloudsim.DiskID) cloudsim.Snapshot {
	t.Helper()
	return must(e.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: name, Disk: of}))(t)
}

// expectRefused fails the test unless err has the given kind. If field is not
// "", the error must also name that field.
func expectRefused(t *testing.T, operation string, err error, kind cloudsim.Kind, field string) {
	t.Helper()
	ce, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || ce.Kind != kind || field != "" && (len(ce.Fields) != 1 || ce.Fields[0].Field != field) {
		t.Errorf("%s: got error %v, want kind %s and field %q (\"\" means any)", operation, err, kind, field)
	}
}

// completeStatus returns the status that a data plane reports for complete data of the given size
// in GiB.
func completeStatus(size int) cloudsim.DiskStatus { return cloudsim.DiskStatus{SizeGiB: size} }

var gone = cloudsim.DiskStatus{Error: "its data is lost", Lost: true}

// TestSnapshotIsReadyWithItsData proves that a snapshot becomes ready when the configured duration
// is over and its data is complete. The order of these two events does not matter, and the cloud
// may restart between them. The operation ends when the snapshot becomes ready.
func TestSnapshotIsReadyWithItsData(t *testing.T) {
	for name, early := range map[string]bool{"data first": true, "time first": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path, ctx := file(t), engine.AsCloud(t.Context())
				e, down := boot(t, path, slowDisks, withDiskData)
				defer func() { down() }()
				d := mustCreateDisk(t, e, ctx, "data")
				time.Sleep(21 * time.Second)
				synctest.Wait()
				s := mustSnapshot(t, e, ctx, "snap", d.ID)
				report := func() {
					if err := e.ReportSnapshots(ctx, []cloudsim.SnapshotReport{{ID: s.ID, Status: completeStatus(10)}}); err != nil {
						t.Fatal(err)
					}
				}
				if early {
					report()
				}
				if s = must(e.GetSnapshot(ctx, s.ID))(t); s.State != cloudsim.SnapshotCreating || s.ReadyToUse || s.SizeGiB != 10 || s.Disk != d.ID || s.Region != "sim-1" {
					t.Errorf("snapshot at the start: got %+v", s)
				}
				time.Sleep(10 * time.Second)
				down()
				e, down = boot(t, path, slowDisks, withDiskData)
				time.Sleep(11 * time.Second)
				synctest.Wait()
				if !early {
					if s = must(e.GetSnapshot(ctx, s.ID))(t); s.State != cloudsim.SnapshotCopying || s.ReadyToUse {
						t.Errorf("snapshot at its due time, without data: got %+v", s)
					}
					if op := must(e.GetOperation(ctx, s.Operation))(t); op.Over() {
						t.Errorf("operation of the snapshot before its data is complete: got %+v, want it open", op)
					}
					report()
				}
				if s = must(e.GetSnapshot(ctx, s.ID))(t); s.State != cloudsim.SnapshotReady || !s.ReadyToUse {
					t.Errorf("snapshot at the end: got %+v", s)
				}
				if op := must(e.GetOperation(ctx, s.Operation))(t); op.State != cloudsim.OperationDone || op.Verb != cloudsim.Create {
					t.Errorf("operation of the snapshot at the end: got %+v, want verb create and state done", op)
				}
				rev := s.Revision
				report()
				if s = must(e.GetSnapshot(ctx, s.ID))(t); s.Revision != rev {
					t.Errorf("revision after a repeated report: got %d, want %d", s.Revision, rev)
				}
			})
		})
	}
}

func TestSnapshotCreateIsIdempotentAndChecked(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	d, other := mustCreateDisk(t, e, ctx, "data"), mustCreateDisk(t, e, ctx, "other")
	s := mustSnapshot(t, e, ctx, "snap", d.ID)
	if repeated := mustSnapshot(t, e, ctx, "snap", d.ID); repeated.Revision != s.Revision || !repeated.CreatedAt.Equal(s.CreatedAt) {
		t.Errorf("repeated request: got %+v, want the first snapshot %+v", repeated, s)
	}
	_, err := e.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "snap", Disk: other.ID})
	expectRefused(t, "repeated request for another disk", err, cloudsim.Exists, "")
	_, err = e.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "snap", Disk: d.ID, Labels: map[string]string{"a": "b"}})
	expectRefused(t, "repeated request with other labels", err, cloudsim.Exists, "")
	_, err = e.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "more", Disk: "disk-ffffff"})
	expectRefused(t, "snapshot of a missing disk", err, cloudsim.NotFound, "disk")
	_, err = e.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "more"})
	expectRefused(t, "snapshot without a disk", err, cloudsim.Invalid, "disk")
	mustSnapshot(t, e, ctx, "third", other.ID)
	for source, want := range map[string]int{string(d.ID): 1, string(other.ID): 1, "disk-ffffff": 0, "": 2} {
		if l := must(e.ListSnapshots(ctx, cloudsim.ListOptions{Source: source}))(t); len(l.Items) != want {
			t.Errorf("snapshots of source %q: got %+v", source, l.Items)
		}
	}
	must(e.DeleteDisk(ctx, d.ID))(t)
	if s = must(e.GetSnapshot(ctx, s.ID))(t); !s.ReadyToUse {
		t.Errorf("snapshot after the deletion of its disk: got %+v", s)
	}
	must(e.DeleteSnapshot(ctx, s.ID))(t)
	_, err = e.GetSnapshot(ctx, s.ID)
	expectRefused(t, "read of a deleted snapshot", err, cloudsim.NotFound, "")
}

// TestSourceStaysWhileItIsCopied proves that a client cannot delete the source of a copy before the
// copy is complete.
func TestSourceStaysWhileItIsCopied(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, withDiskData)
	defer down()
	d := mustCreateDisk(t, e, ctx, "data")
	s := mustSnapshot(t, e, ctx, "snap", d.ID)
	if s.State != cloudsim.SnapshotCopying {
		t.Fatalf("snapshot before the data plane's report: got %+v, want it copying", s)
	}
	restore := cloudsim.CreateDisk{Name: "restored", Zone: "sim-1b", Type: "balanced", SourceSnapshot: s.ID}
	_, err := e.CreateDisk(ctx, restore)
	expectRefused(t, "disk from a snapshot that is not ready", err, cloudsim.Conflict, "")
	_, err = e.DeleteDisk(ctx, d.ID)
	expectRefused(t, "deletion of the disk of a snapshot that is not ready", err, cloudsim.Conflict, "")
	report := func(of cloudsim.DiskStatus) error {
		return e.ReportSnapshots(ctx, []cloudsim.SnapshotReport{{ID: s.ID, Status: of}, {ID: "snap-ffffff"}})
	}
	if err := report(cloudsim.DiskStatus{Error: "no space"}); err != nil {
		t.Fatal(err)
	}
	if s = must(e.GetSnapshot(ctx, s.ID))(t); s.State != cloudsim.SnapshotCopying || s.Status.Error != "no space" {
		t.Errorf("snapshot without space: got %+v", s)
	}
	if err := report(completeStatus(10)); err != nil {
		t.Fatal(err)
	}
	r := must(e.CreateDisk(ctx, restore))(t)
	if r.State != cloudsim.DiskCopying || r.SizeGiB != 10 || r.SourceSnapshot != s.ID {
		t.Fatalf("disk from the snapshot: got %+v, want state copying, 10 GiB and source %s", r, s.ID)
	}
	_, err = e.DeleteSnapshot(ctx, s.ID)
	expectRefused(t, "deletion of the snapshot of a disk that is not ready", err, cloudsim.Conflict, "")
	copied := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "copy", Zone: "sim-1a", Type: "fast", SourceDisk: d.ID}))(t)
	_, err = e.DeleteDisk(ctx, d.ID)
	expectRefused(t, "deletion of the source of a disk that is not ready", err, cloudsim.Conflict, "")
	for _, made := range []cloudsim.Disk{r, copied} {
		if err := e.ReportDisk(ctx, made.ID, completeStatus(10)); err != nil {
			t.Fatal(err)
		}
		now := must(e.GetDisk(ctx, made.ID))(t)
		if op := must(e.GetOperation(ctx, now.Operation))(t); now.State != cloudsim.DiskAvailable || op.State != cloudsim.OperationDone {
			t.Errorf("disk with complete data: got %+v and operation %+v", now, op)
		}
	}
	must(e.DeleteSnapshot(ctx, s.ID))(t)
	must(e.DeleteDisk(ctx, d.ID))(t)
	if repeated := must(e.CreateDisk(ctx, restore))(t); repeated.ID != r.ID {
		t.Errorf("repeated request after the deletion of the source: got %+v", repeated)
	}
	if l := must(e.ListDisks(ctx, cloudsim.ListOptions{Source: string(s.ID)}))(t); len(l.Items) != 1 || l.Items[0].ID != r.ID {
		t.Errorf("disks of the snapshot: got %+v", l.Items)
	}
}

// TestLostSourceFails proves that a copy fails if the data of its source is lost. The only
// operation that the cloud permits on the failed copy is the deletion.
func TestLostSourceFails(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, withDiskData)
	defer down()
	d := mustCreateDisk(t, e, ctx, "data")
	if err := e.ReportDisk(ctx, d.ID, gone); err != nil {
		t.Fatal(err)
	}
	if d = must(e.GetDisk(ctx, d.ID))(t); d.State != cloudsim.DiskAvailable {
		t.Errorf("disk that lost its data: got %+v, want state available", d)
	}
	s := mustSnapshot(t, e, ctx, "snap", d.ID)
	c := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "copy", Zone: "sim-1a", Type: "fast", SourceDisk: d.ID}))(t)
	if err := errors.Join(e.ReportDisk(ctx, c.ID, gone), e.ReportSnapshots(ctx, []cloudsim.SnapshotReport{{ID: s.ID, Status: gone}})); err != nil {
		t.Fatal(err)
	}
	s, c = must(e.GetSnapshot(ctx, s.ID))(t), must(e.GetDisk(ctx, c.ID))(t)
	if s.State != cloudsim.SnapshotFailed || c.State != cloudsim.DiskFailed {
		t.Errorf("copies of a disk that lost its data: got snapshot %+v and disk %+v, want both failed", s, c)
	}
	for _, id := range []cloudsim.OperationID{s.Operation, c.Operation} {
		if op := must(e.GetOperation(ctx, id))(t); op.State != cloudsim.OperationFailed || !strings.Contains(op.Error.Detail, "lost") {
			t.Errorf("operation of a failed copy: got %+v, want state failed and the word lost", op)
		}
	}
	_, err := e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "third", Zone: "sim-1a", Type: "fast", SourceSnapshot: s.ID})
	expectRefused(t, "disk from a failed snapshot", err, cloudsim.Conflict, "")
	_, err = e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "third", Zone: "sim-1a", Type: "fast", SourceDisk: c.ID})
	expectRefused(t, "copy of a failed disk", err, cloudsim.Conflict, "")
	_, err = e.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "third", Disk: c.ID})
	expectRefused(t, "snapshot of a failed disk", err, cloudsim.Conflict, "")
	must(e.DeleteSnapshot(ctx, s.ID))(t)
	must(e.DeleteDisk(ctx, c.ID))(t)
	must(e.DeleteDisk(ctx, d.ID))(t)
}

// TestNoDataPlaneAnyMore proves that incomplete copies become ready if the cloud restarts and no
// longer has a data plane.
func TestNoDataPlaneAnyMore(t *testing.T) {
	path, ctx := file(t), engine.AsCloud(t.Context())
	e, down := boot(t, path, instant, withDiskData)
	d := mustCreateDisk(t, e, ctx, "data")
	s := mustSnapshot(t, e, ctx, "snap", d.ID)
	g := must(e.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{d.ID}}))(t)
	c := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "copy", Zone: "sim-1a", Type: "fast", SourceDisk: d.ID}))(t)
	down()
	e, down = boot(t, path, instant)
	defer down()
	s, g, c = must(e.GetSnapshot(ctx, s.ID))(t), must(e.GetSnapshotGroup(ctx, g.ID))(t), must(e.GetDisk(ctx, c.ID))(t)
	if !s.ReadyToUse || !g.ReadyToUse || c.State != cloudsim.DiskAvailable {
		t.Errorf("copies without a data plane: got snapshot %+v, group %+v and disk %+v, want all ready", s, g, c)
	}
}

// TestSnapshotDeletionTakesTime proves that a snapshot is in state deleting for
// some time. Its name stays in use until the deletion ends.
func TestSnapshotDeletionTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), slowDisks)
		defer down()
		rest := func() { time.Sleep(21 * time.Second); synctest.Wait() }
		d := mustCreateDisk(t, e, ctx, "data")
		_, err := e.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "early", Disk: d.ID})
		expectRefused(t, "snapshot of a disk during its creation", err, cloudsim.Conflict, "")
		rest()
		s := mustSnapshot(t, e, ctx, "snap", d.ID)
		g := must(e.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{d.ID}}))(t)
		rest()
		for range 2 {
			if s, err := e.DeleteSnapshot(ctx, s.ID); err != nil || s.State != cloudsim.SnapshotDeleting {
				t.Fatalf("deletion of a snapshot: got %+v, error %v", s, err)
			}
			if g, err := e.DeleteSnapshotGroup(ctx, g.ID); err != nil || g.State != cloudsim.SnapshotDeleting {
				t.Fatalf("deletion of a group: got %+v, error %v", g, err)
			}
		}
		_, err = e.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "snap", Disk: d.ID})
		expectRefused(t, "snapshot with the name of a snapshot in deletion", err, cloudsim.Conflict, "")
		_, err = e.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{d.ID}})
		expectRefused(t, "group with the name of a group in deletion", err, cloudsim.Conflict, "")
		rest()
		_, err = e.GetSnapshot(ctx, s.ID)
		expectRefused(t, "read of a deleted snapshot", err, cloudsim.NotFound, "")
		_, err = e.GetSnapshotGroup(ctx, g.ID)
		expectRefused(t, "read of a deleted group", err, cloudsim.NotFound, "")
		if l := must(e.ListSnapshots(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 0 {
			t.Errorf("snapshots after the deletion: got %+v, want none", l.Items)
		}
	})
}

// TestSnapshotGroup proves that the cloud creates and deletes the members of a group together, and
// that all members become ready together.
func TestSnapshotGroup(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, withDiskData)
	defer down()
	a, b := mustCreateDisk(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "b")
	create := func(name string, of ...cloudsim.DiskID) (cloudsim.SnapshotGroup, error) {
		return e.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: name, Disks: of})
	}
	_, err := create("group", a.ID, "disk-ffffff")
	expectRefused(t, "group with a missing disk", err, cloudsim.NotFound, "disks")
	if l := must(e.ListSnapshots(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 0 {
		t.Errorf("snapshots of an incomplete group: got %+v", l.Items)
	}
	_, err = create("group")
	expectRefused(t, "group without disks", err, cloudsim.Invalid, "disks")
	g := must(create("group", b.ID, a.ID))(t)
	if repeated := must(create("group", a.ID, b.ID))(t); repeated.Revision != g.Revision || g.State != cloudsim.SnapshotCopying {
		t.Errorf("repeated request with the disks in the other order: got %+v, want the first group %+v, in state copying", repeated, g)
	}
	_, err = create("group", a.ID)
	expectRefused(t, "repeated request with other disks", err, cloudsim.Exists, "")
	_, err = e.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{a.ID, b.ID}, Labels: map[string]string{"a": "b"}})
	expectRefused(t, "repeated request with other labels", err, cloudsim.Exists, "")

	one := []cloudsim.SnapshotReport{{ID: g.Snapshots[0], Status: completeStatus(10)}}
	both := append(slices.Clone(one), cloudsim.SnapshotReport{ID: g.Snapshots[1], Status: completeStatus(10)})
	states := func() (all []cloudsim.SnapshotState) {
		for _, id := range g.Snapshots {
			s := must(e.GetSnapshot(ctx, id))(t)
			if s.Group != g.ID || s.ReadyToUse != (s.State == cloudsim.SnapshotReady) {
				t.Errorf("member: got %+v, want group %s, and ReadyToUse only in state ready", s, g.ID)
			}
			all = append(all, s.State)
		}
		g = must(e.GetSnapshotGroup(ctx, g.ID))(t)
		return append(all, g.State)
	}
	for _, step := range []struct {
		report []cloudsim.SnapshotReport
		want   cloudsim.SnapshotState
	}{{one, cloudsim.SnapshotCopying}, {both, cloudsim.SnapshotReady}} {
		if err := e.ReportSnapshots(ctx, step.report); err != nil {
			t.Fatal(err)
		}
		for _, s := range states() {
			if s != step.want {
				t.Errorf("snapshot or group after %d reports of complete data: got state %s, want %s", len(step.report), s, step.want)
			}
		}
	}
	if op := must(e.GetOperation(ctx, g.Operation))(t); op.State != cloudsim.OperationDone || op.Target != string(g.ID) {
		t.Errorf("operation of the group: got %+v, want state done and target %s", op, g.ID)
	}
	_, err = e.DeleteSnapshot(ctx, g.Snapshots[0])
	expectRefused(t, "deletion of a snapshot of the group", err, cloudsim.Conflict, "")
	r := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "restored", Zone: "sim-1a", Type: "fast", SourceSnapshot: g.Snapshots[1]}))(t)
	_, err = e.DeleteSnapshotGroup(ctx, g.ID)
	expectRefused(t, "deletion of the group during the copy of a disk from its snapshot", err, cloudsim.Conflict, "")
	if err := e.ReportDisk(ctx, r.ID, completeStatus(10)); err != nil {
		t.Fatal(err)
	}
	must(e.DeleteSnapshotGroup(ctx, g.ID))(t)
	for _, id := range g.Snapshots {
		_, err = e.GetSnapshot(ctx, id)
		expectRefused(t, "read of a snapshot of a deleted group", err, cloudsim.NotFound, "")
	}
}

// TestSnapshotGroupFailsAsAWhole proves that a group and all its members fail if the data of one
// member is lost.
func TestSnapshotGroupFailsAsAWhole(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, withDiskData)
	defer down()
	a, b := mustCreateDisk(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "b")
	g := must(e.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{a.ID, b.ID}}))(t)
	if err := e.ReportSnapshots(ctx, []cloudsim.SnapshotReport{{ID: g.Snapshots[1], Status: gone}}); err != nil {
		t.Fatal(err)
	}
	g = must(e.GetSnapshotGroup(ctx, g.ID))(t)
	op := must(e.GetOperation(ctx, g.Operation))(t)
	if g.State != cloudsim.SnapshotFailed || op.State != cloudsim.OperationFailed || !strings.Contains(op.Error.Detail, "lost") {
		t.Errorf("group with a lost member: got %+v and operation %+v, want both failed", g, op)
	}
	for _, id := range g.Snapshots {
		if s := must(e.GetSnapshot(ctx, id))(t); s.State != cloudsim.SnapshotFailed {
			t.Errorf("snapshot of the failed group: got %+v, want state failed", s)
		}
	}
	must(e.DeleteSnapshotGroup(ctx, g.ID))(t)
}

// TestSnapshotsOfAnotherProject proves that callers of another project cannot
// see or use a snapshot.
func TestSnapshotsOfAnotherProject(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	d := mustCreateDisk(t, e, ctx, "data")
	s := mustSnapshot(t, e, ctx, "snap", d.ID)
	p := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: "other"}))(t)
	tok := must(e.CreateToken(ctx, cloudsim.CreateToken{Name: "t", Role: cloudsim.RoleWriter, Project: p.ID}))(t)
	their := must(e.Authorize(t.Context(), engine.Request{Secret: tok.Secret, Access: engine.Write}))(t)
	_, err := e.GetSnapshot(their, s.ID)
	expectRefused(t, "read of the snapshot from another project", err, cloudsim.NotFound, "")
	_, err = e.CreateSnapshot(their, cloudsim.CreateSnapshot{Name: "snap", Disk: d.ID})
	expectRefused(t, "snapshot of the disk from another project", err, cloudsim.NotFound, "disk")
	_, err = e.CreateDisk(their, cloudsim.CreateDisk{Name: "x", Zone: "sim-1a", Type: "fast", SourceSnapshot: s.ID})
	expectRefused(t, "disk from the snapshot, created in another project", err, cloudsim.NotFound, "sourceSnapshot")
	_, err = e.CreateDisk(their, cloudsim.CreateDisk{Name: "x", Zone: "sim-1a", Type: "fast", SourceDisk: d.ID})
	expectRefused(t, "copy of the disk, created in another project", err, cloudsim.NotFound, "sourceDisk")
	if l := must(e.ListSnapshots(their, cloudsim.ListOptions{Source: string(d.ID)}))(t); len(l.Items) != 0 {
		t.Errorf("ListSnapshots from another project: got %+v, want none", l.Items)
	}
	mine := must(e.CreateDisk(their, cloudsim.CreateDisk{Name: "x", Zone: "sim-1a", Type: "fast", SizeGiB: 4}))(t)
	must(e.CreateSnapshotGroup(their, cloudsim.CreateSnapshotGroup{Name: "g", Disks: []cloudsim.DiskID{mine.ID}}))(t)
	must(e.DeleteDisk(their, mine.ID))(t)
	expectRefused(t, "deletion of a project with snapshots", e.DeleteProject(ctx, p.ID), cloudsim.Conflict, "")
}

// TestReleasedCopyWaitsForItsData deletes a fault that blocks the creation of a snapshot, a group
// and a disk. It proves that all three still become ready only after the data plane has reported
// complete data.
func TestReleasedCopyWaitsForItsData(t *testing.T) {
	e, down := boot(t, file(t), frozen, withDiskData, func(c *engine.Config) { c.Profile = engine.Profile{Disk: time.Minute} })
	defer down()
	ctx := enter(t, e, "secret", engine.DefaultProject)
	d := mustCreateDisk(t, e, ctx, "data")
	advance(t, e, ctx, time.Hour)
	stuck := mustFault(t, e, fault("stuck", "*", effect(cloudsim.FaultEffect{Type: cloudsim.FaultStuckState})))
	under := engine.Under(ctx, engine.Strike{Fault: &stuck})
	s := mustSnapshot(t, e, under, "snap", d.ID)
	g := must(e.CreateSnapshotGroup(under, cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{d.ID}}))(t)
	c := must(e.CreateDisk(under, cloudsim.CreateDisk{Name: "copy", Zone: "sim-1a", Type: "fast", SourceDisk: d.ID}))(t)
	if err := e.DeleteFault(ctx, stuck.ID); err != nil {
		t.Fatal(err)
	}
	advance(t, e, ctx, time.Hour)
	expectCopies := func(state cloudsim.SnapshotState, disk cloudsim.DiskState, over bool) {
		t.Helper()
		s, g, c := must(e.GetSnapshot(ctx, s.ID))(t), must(e.GetSnapshotGroup(ctx, g.ID))(t), must(e.GetDisk(ctx, c.ID))(t)
		if s.State != state || g.State != state || c.State != disk {
			t.Errorf("states: got snapshot %s, group %s and disk %s, want %s, %s and %s", s.State, g.State, c.State, state, state, disk)
		}
		for _, id := range []cloudsim.OperationID{s.Operation, g.Operation, c.Operation} {
			if op := must(e.GetOperation(ctx, id))(t); op.Over() != over {
				t.Errorf("operation %s: got over %t, want %t", id, op.Over(), over)
			}
		}
	}
	expectCopies(cloudsim.SnapshotCopying, cloudsim.DiskCopying, false)
	reportComplete(t, e, ctx, c.ID, s.ID, g.Snapshots[0])
	expectCopies(cloudsim.SnapshotReady, cloudsim.DiskAvailable, true)
}

func reportComplete(t *testing.T, e *engine.Engine, ctx context.Context, disk cloudsim.DiskID, snapshots ...cloudsim.SnapshotID) {
	t.Helper()
	var reports []cloudsim.SnapshotReport
	for _, id := range snapshots {
		reports = append(reports, cloudsim.SnapshotReport{ID: id, Status: completeStatus(10)})
	}
	if err := errors.Join(e.ReportSnapshots(ctx, reports), e.ReportDisk(ctx, disk, completeStatus(10))); err != nil {
		t.Fatal(err)
	}
}
