package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func slowDisks(c *engine.Config) { c.Profile = engine.Profile{Disk: 20 * time.Second} }

func mustCreateDisk(t *testing.T, e *engine.Engine, ctx context.Context, name string, change ...func(*cloudsim.CreateDisk)) cloudsim.Disk {
	t.Helper()
	req := cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "fast", SizeGiB: 10}
	for _, c := range change {
		c(&req)
	}
	d, err := e.CreateDisk(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func shared(r *cloudsim.CreateDisk) { r.MultiAttach = true }

// TestDiskLife proves that a disk has an intermediate state during each
// operation, even if the cloud restarts during the operation.
func TestDiskLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, ctx := file(t), engine.AsCloud(t.Context())
		e, down := boot(t, path, slowDisks)
		defer func() { down() }()
		i, d := mustCreate(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "data")
		for _, step := range []struct {
			act   func() (cloudsim.Disk, error)
			via   cloudsim.DiskState
			state cloudsim.DiskState
		}{
			{func() (cloudsim.Disk, error) { return e.GetDisk(ctx, d.ID) }, cloudsim.DiskCreating, cloudsim.DiskAvailable},
			{func() (cloudsim.Disk, error) { return e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 11}) }, cloudsim.DiskResizing, cloudsim.DiskAvailable},
			{func() (cloudsim.Disk, error) { return e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}) }, cloudsim.DiskAttaching, cloudsim.DiskInUse},
			{func() (cloudsim.Disk, error) { return e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 12}) }, cloudsim.DiskResizing, cloudsim.DiskInUse},
			{func() (cloudsim.Disk, error) { return e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}) }, cloudsim.DiskDetaching, cloudsim.DiskAvailable},
		} {
			got, err := step.act()
			if err != nil || got.State != step.via {
				t.Fatalf("disk directly after the call: got state %s, error %v, want %s", got.State, err, step.via)
			}
			if repeated, err := step.act(); err != nil || repeated.Revision != got.Revision {
				t.Errorf("repeated request while the disk is %s: got revision %d, error %v, want revision %d", got.State, repeated.Revision, err, got.Revision)
			}
			time.Sleep(10 * time.Second)
			down()
			e, down = boot(t, path, slowDisks)
			time.Sleep(11 * time.Second)
			synctest.Wait()
			if got, err = e.GetDisk(ctx, d.ID); err != nil || got.State != step.state {
				t.Fatalf("disk after the due time of its operation: got state %s, error %v, want %s", got.State, err, step.state)
			}
			if op, err := e.GetOperation(ctx, got.Operation); err != nil || op.State != cloudsim.OperationDone {
				t.Errorf("operation after its due time: got %+v, error %v, want state done", op, err)
			}
		}
		if got, err := e.DeleteDisk(ctx, d.ID); err != nil || got.State != cloudsim.DiskDeleting || got.SizeGiB != 12 || len(got.Attachments) != 0 {
			t.Fatalf("deletion of a resized disk: got %+v, error %v", got, err)
		}
		if _, err := e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "data", Zone: "sim-1a", Type: "fast", SizeGiB: 10}); !errors.Is(err, cloudsim.Conflict) {
			t.Errorf("new disk with the name of a disk in deletion: got error %v, want Conflict", err)
		}
		time.Sleep(21 * time.Second)
		synctest.Wait()
		if _, err := e.GetDisk(ctx, d.ID); !errors.Is(err, cloudsim.NotFound) {
			t.Errorf("read of the deleted disk: got error %v, want NotFound", err)
		}
	})
}

func TestDiskCreateIsIdempotentAndChecked(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	d := mustCreateDisk(t, e, ctx, "data")
	if repeated := mustCreateDisk(t, e, ctx, "data"); repeated.ID != d.ID || repeated.Revision != d.Revision || d.IOPS != 10_000 {
		t.Errorf("repeated request: got %+v, want the first disk %+v, with 10000 IOPS", repeated, d)
	}
	for name, tc := range map[string]struct {
		change func(*cloudsim.CreateDisk)
		kind   cloudsim.Kind
		field  string
	}{
		"other size":                    {func(r *cloudsim.CreateDisk) { r.Name, r.SizeGiB = "data", 11 }, cloudsim.Exists, ""},
		"other zone":                    {func(r *cloudsim.CreateDisk) { r.Name, r.Zone = "data", "sim-1b" }, cloudsim.Exists, ""},
		"unknown zone":                  {func(r *cloudsim.CreateDisk) { r.Zone = "nope" }, cloudsim.Invalid, "zone"},
		"unknown type":                  {func(r *cloudsim.CreateDisk) { r.Type = "nope" }, cloudsim.Invalid, "type"},
		"size below the type's minimum": {func(r *cloudsim.CreateDisk) { r.SizeGiB = 3 }, cloudsim.Invalid, "sizeGiB"},
		"size above the type's maximum": {func(r *cloudsim.CreateDisk) { r.SizeGiB = 65537 }, cloudsim.Invalid, "sizeGiB"},
		"too many IOPS":                 {func(r *cloudsim.CreateDisk) { r.IOPS = 100_001 }, cloudsim.Invalid, "iops"},
		"other source":                  {func(r *cloudsim.CreateDisk) { r.Name, r.SourceDisk = "data", d.ID }, cloudsim.Exists, ""},
		"other IOPS":                    {func(r *cloudsim.CreateDisk) { r.Name, r.IOPS = "data", 20_000 }, cloudsim.Exists, ""},
		"other MiB/s":                   {func(r *cloudsim.CreateDisk) { r.Name, r.ThroughputMiBps = "data", 501 }, cloudsim.Exists, ""},
		"other type":                    {func(r *cloudsim.CreateDisk) { r.Name, r.Type = "data", "balanced" }, cloudsim.Exists, ""},
		"other labels":                  {func(r *cloudsim.CreateDisk) { r.Name, r.Labels = "data", map[string]string{"a": "b"} }, cloudsim.Exists, ""},
		"shared":                        {func(r *cloudsim.CreateDisk) { r.Name, r.MultiAttach = "data", true }, cloudsim.Exists, ""},
		"bad name":                      {func(r *cloudsim.CreateDisk) { r.Name = "-" }, cloudsim.Invalid, "name"},
		"too few IOPS":                  {func(r *cloudsim.CreateDisk) { r.IOPS = 999 }, cloudsim.Invalid, "iops"},
		"too few MiB/s":                 {func(r *cloudsim.CreateDisk) { r.ThroughputMiBps = 99 }, cloudsim.Invalid, "throughputMiBps"},
		"too many MiB/s":                {func(r *cloudsim.CreateDisk) { r.ThroughputMiBps = 4001 }, cloudsim.Invalid, "throughputMiBps"},
		"type without regional disks":   {func(r *cloudsim.CreateDisk) { r.Zone, r.ReplicaZones = "", []string{"sim-1a", "sim-1b"} }, cloudsim.Invalid, "replicaZones"},
		"type without multi-attach":     {func(r *cloudsim.CreateDisk) { r.Type, r.MultiAttach = "balanced", true }, cloudsim.Invalid, "multiAttach"},
	} {
		t.Run(name, func(t *testing.T) {
			req := cloudsim.CreateDisk{Name: "other", Zone: "sim-1a", Type: "fast", SizeGiB: 10}
			tc.change(&req)
			_, err := e.CreateDisk(ctx, req)
			ce, ok := errors.AsType[*cloudsim.Error](err)
			if !ok || ce.Kind != tc.kind || tc.field != "" && (len(ce.Fields) != 1 || ce.Fields[0].Field != tc.field) {
				t.Errorf("CreateDisk: got error %v, want kind %s and field %q", err, tc.kind, tc.field)
			}
		})
	}
}

func TestAttachRules(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	a, b := mustCreate(t, e, ctx, "a"), mustCreate(t, e, ctx, "b")
	far, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "far", Zone: "sim-1b", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	d, many := mustCreateDisk(t, e, ctx, "data"), mustCreateDisk(t, e, ctx, "many", shared)
	attach := func(d cloudsim.Disk, to cloudsim.InstanceID, readOnly bool) (cloudsim.Disk, error) {
		return e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: to, ReadOnly: readOnly})
	}
	if _, err := attach(d, "i-ffffff", false); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("attachment to an unknown instance: got error %v, want NotFound", err)
	}
	if _, err := attach(d, far.ID, false); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("attachment to an instance in another zone: got error %v, want Invalid", err)
	}
	first, err := attach(d, a.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	if repeated, err := attach(d, a.ID, false); err != nil || repeated.Revision != first.Revision {
		t.Errorf("repeated attachment: got revision %d, error %v, want revision %d", repeated.Revision, err, first.Revision)
	}
	if _, err := attach(d, a.ID, true); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("repeated attachment with another mode: got error %v, want Conflict", err)
	}
	if _, err := attach(d, b.ID, false); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("attachment to a second instance: got error %v, want Conflict", err)
	}
	for n, to := range []cloudsim.InstanceID{a.ID, b.ID} {
		got, err := attach(many, to, false)
		if err != nil || len(got.Attachments) != n+1 || got.State != cloudsim.DiskInUse {
			t.Fatalf("attachment to instance %d: got %+v, %v", n+1, got, err)
		}
	}
	if at, _ := must(e.GetDisk(ctx, many.ID))(t).Attachment(a.ID); at.Device != "vdc" {
		t.Errorf("device of the second disk of an instance: got %q", at.Device)
	}
	left, err := e.DetachDisk(ctx, many.ID, cloudsim.DetachDisk{Instance: a.ID})
	if err != nil || left.State != cloudsim.DiskInUse || len(left.Attachments) != 1 {
		t.Errorf("attachments after one of two detachments: got %+v, %v", left, err)
	}
	for n := range 7 { // an instance of type small can have eight disks
		if _, err := attach(mustCreateDisk(t, e, ctx, fmt.Sprintf("more-%d", n)), a.ID, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := attach(mustCreateDisk(t, e, ctx, "ninth"), a.ID, false); !errors.Is(err, cloudsim.Exhausted) {
		t.Errorf("attachment above the limit: got error %v, want Exhausted", err)
	}
	if got, err := e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: b.ID}); err != nil || got.State != cloudsim.DiskInUse {
		t.Errorf("detachment from an instance that does not have the disk: got %+v, error %v, want state in-use and no error", got, err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestReportDisk proves that a report changes only the status of a disk, and
// that a second report with the same status writes no event.
func TestReportDisk(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	d := mustCreateDisk(t, e, ctx, "data")
	for range 2 {
		if err := e.ReportDisk(ctx, d.ID, cloudsim.DiskStatus{SizeGiB: 10}); err != nil {
			t.Fatal(err)
		}
	}
	if got := must(e.GetDisk(ctx, d.ID))(t); got.Status.SizeGiB != 10 || got.Revision != d.Revision+1 {
		t.Errorf("disk after two equal reports: got %+v, want one event after revision %d", got, d.Revision)
	}
	if err := e.ReportDisk(ctx, "disk-ffffff", cloudsim.DiskStatus{}); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("report about an unknown disk: got error %v, want NotFound", err)
	}
}

// TestForcedDetach proves that a detachment with Force takes no time and requires a stopped
// instance.
func TestForcedDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), slowDisks)
		defer down()
		i, d := mustCreate(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "data")
		time.Sleep(21 * time.Second)
		synctest.Wait()
		must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}))(t)
		time.Sleep(21 * time.Second)
		synctest.Wait()
		force := cloudsim.DetachDisk{Instance: i.ID, Force: true}
		if _, err := e.DetachDisk(ctx, d.ID, force); !errors.Is(err, cloudsim.Conflict) {
			t.Errorf("forced detachment from a running instance: got error %v, want Conflict", err)
		}
		must(e.StopInstance(ctx, i.ID))(t)
		must(e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}))(t) // without Force, the detachment would take 20 s
		got, err := e.DetachDisk(ctx, d.ID, force)
		if err != nil || got.State != cloudsim.DiskAvailable || len(got.Attachments) != 0 {
			t.Fatalf("forced detachment from a stopped instance: got %+v, error %v, want state available and no attachments", got, err)
		}
		if op := must(e.GetOperation(ctx, got.Operation))(t); op.State != cloudsim.OperationDone {
			t.Errorf("operation of the forced detachment: got %+v, want state done", op)
		}
		time.Sleep(21 * time.Second) // the work item of the normal detachment does nothing
		synctest.Wait()
		if late := must(e.GetDisk(ctx, d.ID))(t); late.Revision != got.Revision {
			t.Errorf("disk after the due time of the normal detachment: got %+v, want revision %d", late, got.Revision)
		}
	})
}

// TestTerminationDetaches proves that the termination of an instance detaches
// its disks, in each of the states attached, attaching and detaching.
func TestTerminationDetaches(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(context.Context, *engine.Engine, cloudsim.Disk, cloudsim.InstanceID) error
		want   cloudsim.OperationState
	}{
		"attached": {func(context.Context, *engine.Engine, cloudsim.Disk, cloudsim.InstanceID) error {
			time.Sleep(21 * time.Second)
			synctest.Wait()
			return nil
		}, cloudsim.OperationDone},
		"attaching": {func(context.Context, *engine.Engine, cloudsim.Disk, cloudsim.InstanceID) error { return nil }, cloudsim.OperationFailed},
		"detaching": {func(ctx context.Context, e *engine.Engine, d cloudsim.Disk, i cloudsim.InstanceID) error {
			_, err := e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i})
			return err
		}, cloudsim.OperationDone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := engine.AsCloud(t.Context())
				e, down := boot(t, file(t), slowDisks)
				defer down()
				i, d := mustCreate(t, e, ctx, "a"), mustCreateDisk(t, e, ctx, "data")
				time.Sleep(21 * time.Second)
				synctest.Wait()
				must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}))(t)
				if err := tc.before(ctx, e, d, i.ID); err != nil {
					t.Fatal(err)
				}
				must(e.DeleteInstance(ctx, i.ID))(t) // the instance terminates at once
				got := must(e.GetDisk(ctx, d.ID))(t)
				if got.State != cloudsim.DiskAvailable || len(got.Attachments) != 0 {
					t.Errorf("disk of a terminated instance: got %+v, want it available", got)
				}
				if op := must(e.GetOperation(ctx, got.Operation))(t); op.State != tc.want {
					t.Errorf("last operation of the disk: got %+v, want state %s", op, tc.want)
				}
			})
		})
	}
}
