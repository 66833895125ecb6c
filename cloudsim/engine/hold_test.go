package engine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestHold proves that a hold keeps work unfinished, even after a restart of the cloud. The hold
// also blocks work that began before the client created the hold. After the deletion of the hold,
// all work ends.
func TestHold(t *testing.T) {
	path, ctx := file(t), engine.AsCloud(t.Context())
	e, stop := boot(t, path, frozen)
	a := mustCreate(t, e, ctx, "a")
	h, err := e.CreateHold(ctx, cloudsim.CreateHold{Name: "h", HoldSpec: cloudsim.HoldSpec{
		Transition: cloudsim.Transition{Kind: cloudsim.KindInstance, Verb: cloudsim.Create},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := mustCreate(t, e, ctx, "b")
	advance(t, e, ctx, time.Hour)
	stop()
	e, stop = boot(t, path)
	defer stop()
	advance(t, e, ctx, time.Hour)
	state := func(id cloudsim.InstanceID, want cloudsim.InstanceState) {
		t.Helper()
		if i, err := e.GetInstance(ctx, id); err != nil || i.State != want {
			t.Errorf("%s: got state %s, error %v, want %s", id, i.State, err, want)
		}
	}
	state(a.ID, cloudsim.InstanceProvisioning)
	state(b.ID, cloudsim.InstanceProvisioning)
	if op, err := e.GetOperation(ctx, a.Operation); err != nil || op.HeldBy != string(h.ID) || op.Percent != 99 || op.Over() {
		t.Errorf("operation of the held creation: got %+v, error %v, want it open at 99 %%, held by %s", op, err, h.ID)
	}
	if _, err := e.ReleaseOperation(ctx, a.Operation); err != nil {
		t.Fatal(err)
	}
	advance(t, e, ctx, 0)
	state(a.ID, cloudsim.InstanceRunning)
	state(b.ID, cloudsim.InstanceProvisioning)
	if err := e.DeleteHold(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	advance(t, e, ctx, 0)
	state(b.ID, cloudsim.InstanceRunning)
}

// TestDeleteHoldNamesTheCaller proves that an event of each released operation contains the caller
// of DeleteHold. The event also contains the cause "holds.delete". To complete an operation, the
// engine sets another caller and cause in the transaction. Before it releases the next operation,
// it must restore the earlier values.
func TestDeleteHoldNamesTheCaller(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen)
	defer stop()
	h := must(e.CreateHold(ctx, cloudsim.CreateHold{Name: "h", HoldSpec: cloudsim.HoldSpec{
		Transition: cloudsim.Transition{Kind: cloudsim.KindInstance, Verb: cloudsim.Create},
	}}))(t)
	held := []cloudsim.OperationID{mustCreate(t, e, ctx, "a").Operation, mustCreate(t, e, ctx, "b").Operation}
	advance(t, e, ctx, time.Hour)
	admin := must(e.Authorize(t.Context(), engine.Request{Secret: "secret", Project: engine.AllProjects, Operation: "holds.delete", Access: engine.Write}))(t)
	if err := e.DeleteHold(admin, h.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range held {
		l := must(e.ListEvents(ctx, cloudsim.WatchOptions{ID: string(id)}))(t)
		if !slices.ContainsFunc(l.Items, func(ev cloudsim.Event) bool { return ev.Caller == engine.AdminToken && ev.Cause == "holds.delete" }) {
			t.Errorf("events of operation %s: got %+v, want one event with the caller %s and the cause holds.delete", id, l.Items, engine.AdminToken)
		}
	}
}

// TestCancel proves that CancelOperation moves an instance from the state provisioning or starting
// to the next state in the table instanceMoves of package cloudsim. When the due time of the
// cancelled work comes, the work does not change the instance. If the table has no cancellation for
// the instance's state, CancelOperation returns Conflict, and the work continues.
func TestCancel(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen)
	defer stop()
	cancel := func(id cloudsim.OperationID) error {
		t.Helper()
		op, err := e.CancelOperation(ctx, id)
		if err == nil && (op.State != cloudsim.OperationCancelled || op.Error == nil || op.EndedAt == nil) {
			t.Errorf("cancelled operation: got %+v, want state cancelled, with an error and an end time", op)
		}
		return err
	}
	a := mustCreate(t, e, ctx, "a")
	advance(t, e, ctx, slow.Provision/2)
	if op, _ := e.GetOperation(ctx, a.Operation); op.Percent != 50 {
		t.Errorf("progress at half of the time: got %d%%", op.Percent)
	}
	if err := cancel(a.Operation); err != nil {
		t.Error(err)
	}
	if _, err := e.GetInstance(ctx, a.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("instance of a cancelled creation: got error %v, want NotFound", err)
	}
	b := mustCreate(t, e, ctx, "b")
	if b.InternalIP() != a.InternalIP() {
		t.Errorf("address of the next instance: got %s, want the address %s of the cancelled creation", b.InternalIP(), a.InternalIP())
	}
	advance(t, e, ctx, time.Hour)
	b, _ = e.StopInstance(ctx, b.ID)
	if err := cancel(b.Operation); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("cancellation of a stop: got error %v, want Conflict", err)
	}
	advance(t, e, ctx, time.Hour)
	b, err := e.StartInstance(ctx, b.ID)
	if err = errors.Join(err, cancel(b.Operation)); err != nil {
		t.Error(err)
	}
	if err := cancel(b.Operation); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("second cancellation of the start: got error %v, want Conflict", err)
	}
	advance(t, e, ctx, time.Hour) // the due time of the cancelled start has passed
	if b, _ = e.GetInstance(ctx, b.ID); b.State != cloudsim.InstanceStopped {
		t.Errorf("state after a cancelled start: got %s, want stopped", b.State)
	}
}

// TestCancelDisksAndLoadBalancers proves three effects of CancelOperation.
// After the cancellation of an attachment, the disk is not attached. After the
// cancellation of a detachment, the disk stays attached. After the cancellation
// of a creation, the disk or load balancer does not exist.
func TestCancelDisksAndLoadBalancers(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen, func(c *engine.Config) { c.Profile.Disk = time.Minute })
	defer stop()
	i := mustCreate(t, e, ctx, "i")
	make := func(name string) cloudsim.Disk {
		d, err := e.CreateDisk(ctx, cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "balanced", SizeGiB: 10})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d, gone := make("d"), make("gone")
	_, err := e.CancelOperation(ctx, gone.Operation)
	if _, missing := e.GetDisk(ctx, gone.ID); err != nil || !errors.Is(missing, cloudsim.NotFound) {
		t.Errorf("cancelled disk creation: got error %v from the cancellation and %v from GetDisk, want none and NotFound", err, missing)
	}
	advance(t, e, ctx, time.Hour)
	check := func(operation string, err error, want cloudsim.DiskState, attached int) {
		t.Helper()
		advance(t, e, ctx, time.Hour)
		if d, _ = e.GetDisk(ctx, d.ID); err != nil || d.State != want || len(d.Attachments) != attached {
			t.Errorf("disk after the %s: got state %s with %d attachments, error %v, want state %s with %d", operation, d.State, len(d.Attachments), err, want, attached)
		}
	}
	d, err = e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID})
	_, err2 := e.CancelOperation(ctx, d.Operation)
	check("cancelled attachment", errors.Join(err, err2), cloudsim.DiskAvailable, 0)
	_, err = e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID})
	check("attachment", err, cloudsim.DiskInUse, 1)
	d, err = e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID})
	_, err2 = e.CancelOperation(ctx, d.Operation)
	check("cancelled detachment", errors.Join(err, err2), cloudsim.DiskInUse, 1)

	lb, err := e.CreateLoadBalancer(ctx, cloudsim.CreateLoadBalancer{Name: "lb", Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{
		Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 30080}},
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthHTTP, Port: 10256, Path: "/healthz"},
	}})
	_, err2 = e.CancelOperation(ctx, lb.Operation)
	if _, missing := e.GetLoadBalancer(ctx, lb.ID); errors.Join(err, err2) != nil || !errors.Is(missing, cloudsim.NotFound) {
		t.Errorf("cancelled load balancer creation: got error %v from the creation, %v from the cancellation and %v from GetLoadBalancer, want only NotFound from GetLoadBalancer", err, err2, missing)
	}
}

// TestDurations proves that the durations from SetDurations override the durations in
// Config.Profile.
func TestDurations(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen)
	defer stop()
	if _, err := e.SetDurations(ctx, cloudsim.WorkDurations{Items: []cloudsim.WorkDuration{
		{Transition: cloudsim.Transition{Kind: cloudsim.KindInstance, Verb: cloudsim.Create}, Millis: 500},
		{Transition: cloudsim.Transition{Kind: cloudsim.Any, Verb: cloudsim.Stop}, Millis: 0},
	}}); err != nil {
		t.Fatal(err)
	}
	i := mustCreate(t, e, ctx, "a")
	advance(t, e, ctx, 499*time.Millisecond)
	before, _ := e.GetInstance(ctx, i.ID)
	advance(t, e, ctx, time.Millisecond)
	after, _ := e.GetInstance(ctx, i.ID)
	if before.State != cloudsim.InstanceProvisioning || after.State != cloudsim.InstanceRunning {
		t.Errorf("state of the new instance: got %s after 499 ms and %s after 500 ms, want provisioning and running", before.State, after.State)
	}
	if i, err := e.StopInstance(ctx, i.ID); err != nil || i.State != cloudsim.InstanceStopped {
		t.Errorf("stop without a delay: got state %s, error %v, want stopped", i.State, err)
	}
	if i, err := e.StartInstance(ctx, i.ID); err != nil || i.State != cloudsim.InstanceStarting {
		t.Errorf("start with the delay of the profile: got state %s, error %v, want starting", i.State, err)
	}
}

// TestReleaseOfOperationsThatEndTogether proves that DeleteHold releases all held operations, even
// if the end of one held operation also ends another held operation. Here the termination of an
// instance ends the detachment of its disk.
func TestReleaseOfOperationsThatEndTogether(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen, func(c *engine.Config) { c.Profile = engine.Profile{Disk: 20 * time.Second, Shutdown: 20 * time.Second} })
	defer stop()
	i, d := mustCreate(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "data")
	advance(t, e, ctx, time.Hour)
	must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}))(t)
	advance(t, e, ctx, time.Hour)
	h := must(e.CreateHold(ctx, cloudsim.CreateHold{Name: "all", HoldSpec: cloudsim.HoldSpec{Transition: cloudsim.Transition{Kind: "*", Verb: "*"}}}))(t)
	must(e.DeleteInstance(ctx, i.ID))(t)
	detaching := must(e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}))(t)
	advance(t, e, ctx, time.Hour)
	if err := e.DeleteHold(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	if op := must(e.GetOperation(ctx, detaching.Operation))(t); !op.Over() || op.HeldBy != "" {
		t.Errorf("operation of the detachment: got %+v, want it ended and without a hold", op)
	}
	if d = must(e.GetDisk(ctx, d.ID))(t); d.State != cloudsim.DiskAvailable {
		t.Errorf("disk after the release of both operations: got %+v, want state available", d)
	}
}

// TestHeldWorkWhenTheClockIsSetBack creates a hold and waits until the held work is due. Then it
// sets the clock back to a time before the due time, and deletes the hold. It proves that the work
// ends at its due time, and not earlier.
func TestHeldWorkWhenTheClockIsSetBack(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen)
	defer stop()
	h := must(e.CreateHold(ctx, cloudsim.CreateHold{Name: "all", HoldSpec: cloudsim.HoldSpec{Transition: cloudsim.Transition{Kind: "*", Verb: "*"}}}))(t)
	i := mustCreate(t, e, ctx, "a")
	advance(t, e, ctx, time.Hour)
	back := newYear
	must(e.SetClock(ctx, cloudsim.SetClock{Time: &back}))(t)
	if err := e.DeleteHold(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	if i = must(e.GetInstance(ctx, i.ID))(t); i.State != cloudsim.InstanceProvisioning {
		t.Errorf("state before the due time: got %s", i.State)
	}
	advance(t, e, ctx, time.Hour)
	if i = must(e.GetInstance(ctx, i.ID))(t); i.State != cloudsim.InstanceRunning {
		t.Errorf("state at the due time: got %s", i.State)
	}
}

// TestHoldOfCopies creates a hold while the data plane copies the data of new disks and snapshots.
// The test then restarts the cloud without a data plane. A cloud without a data plane completes
// unfinished copies when it starts. The test proves that the cloud does not complete the copies
// that the hold blocks.
func TestHoldOfCopies(t *testing.T) {
	path, ctx := file(t), engine.AsCloud(t.Context())
	e, stop := boot(t, path, instant, withDiskData)
	defer func() { stop() }()
	d := mustCreateDisk(t, e, ctx, "data")
	s, lost := mustSnapshot(t, e, ctx, "snap", d.ID), mustSnapshot(t, e, ctx, "lost", d.ID)
	g := must(e.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{d.ID}}))(t)
	c := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "copy", Zone: "sim-1a", Type: "fast", SourceDisk: d.ID}))(t)
	h := must(e.CreateHold(ctx, cloudsim.CreateHold{Name: "h", HoldSpec: cloudsim.HoldSpec{Transition: cloudsim.Transition{Kind: "*", Verb: cloudsim.Create}}}))(t)
	reportComplete(t, e, ctx, c.ID, s.ID, g.Snapshots[0])
	if err := e.ReportSnapshots(ctx, []cloudsim.SnapshotReport{{ID: lost.ID, Status: gone}}); err != nil {
		t.Fatal(err)
	}
	expectHeld := func() {
		t.Helper()
		for _, id := range []cloudsim.OperationID{s.Operation, lost.Operation, g.Operation, c.Operation} {
			if op := must(e.GetOperation(ctx, id))(t); op.Over() || op.HeldBy != string(h.ID) {
				t.Errorf("operation: got %+v, want an operation that the hold keeps unfinished", op)
			}
		}
		if s := must(e.GetSnapshot(ctx, g.Snapshots[0]))(t); s.State != cloudsim.SnapshotCopying {
			t.Errorf("member of the group: got %s, want copying", s.State)
		}
	}
	expectHeld()
	stop()
	e, stop = boot(t, path, instant)
	expectHeld()
	stop()
	e, stop = boot(t, path, instant, withDiskData)
	if err := e.DeleteHold(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	s, g, c = must(e.GetSnapshot(ctx, s.ID))(t), must(e.GetSnapshotGroup(ctx, g.ID))(t), must(e.GetDisk(ctx, c.ID))(t)
	if !s.ReadyToUse || !g.ReadyToUse || c.State != cloudsim.DiskAvailable {
		t.Errorf("copies after the deletion of the hold: got snapshot %+v, group %+v and disk %+v, want all ready", s, g, c)
	}
	if lost = must(e.GetSnapshot(ctx, lost.ID))(t); lost.State != cloudsim.SnapshotFailed {
		t.Errorf("snapshot without data after the deletion of the hold: got %+v, want failed", lost)
	}
}
