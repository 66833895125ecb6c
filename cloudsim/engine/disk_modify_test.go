package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestModifyDisk proves that the cloud can modify an attached disk, and that only one modification
// of a disk runs at a time. If the disk already has the requested values, the request does not
// begin a modification.
func TestModifyDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), slowDisks)
		defer down()
		rest := func() { time.Sleep(21 * time.Second); synctest.Wait() }
		i := mustCreate(t, e, ctx, "a")
		d := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "data", Zone: "sim-1a", Type: "balanced", SizeGiB: 10, IOPS: 4000}))(t)
		modify := func(req cloudsim.ModifyDisk) (cloudsim.Disk, error) { return e.ModifyDisk(ctx, d.ID, req) }
		_, err := modify(cloudsim.ModifyDisk{IOPS: 5000})
		expectRefused(t, "modification during the creation", err, cloudsim.Conflict, "")
		rest()
		was := must(modify(cloudsim.ModifyDisk{IOPS: 4000, Type: "balanced"}))(t)
		if was.State != cloudsim.DiskAvailable || was.ModifiedAt != nil {
			t.Errorf("modification without a change: got %+v, want state available and no modifiedAt", was)
		}
		must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}))(t)
		rest()
		got := must(modify(cloudsim.ModifyDisk{Type: "fast", ThroughputMiBps: 600}))(t)
		if got.State != cloudsim.DiskModifying || got.Type != "fast" || got.IOPS != 10_000 || got.ThroughputMiBps != 600 || got.ModifiedAt == nil {
			t.Errorf("modification of the type: got %+v, want state modifying, type fast, 10000 IOPS, 600 MiB/s and modifiedAt", got)
		}
		if repeated := must(modify(cloudsim.ModifyDisk{Type: "fast", ThroughputMiBps: 600}))(t); repeated.Revision != got.Revision {
			t.Errorf("repeated request: got %+v, want revision %d", repeated, got.Revision)
		}
		_, err = modify(cloudsim.ModifyDisk{IOPS: 20_000})
		expectRefused(t, "second modification at the same time", err, cloudsim.Conflict, "")
		rest()
		if got = must(e.GetDisk(ctx, d.ID))(t); got.State != cloudsim.DiskInUse {
			t.Errorf("disk after the modification: got %+v, want state in-use", got)
		}
		if op := must(e.GetOperation(ctx, got.Operation))(t); op.Verb != cloudsim.Modify || op.State != cloudsim.OperationDone {
			t.Errorf("operation of the modification: got %+v, want verb modify and state done", op)
		}
		if got = must(modify(cloudsim.ModifyDisk{IOPS: 20_000}))(t); got.IOPS != 20_000 || got.ThroughputMiBps != 600 {
			t.Errorf("second modification without a cool-down: got %+v", got)
		}
		rest()
		must(e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}))(t)
		rest()
		must(e.DeleteDisk(ctx, d.ID))(t)
		_, err = modify(cloudsim.ModifyDisk{IOPS: 20_000})
		expectRefused(t, "modification to the present IOPS during the deletion", err, cloudsim.Conflict, "")
		_, err = e.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 10})
		expectRefused(t, "resize to the present size during the deletion", err, cloudsim.Conflict, "")
	})
}

func TestModifyDiskIsChecked(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	small := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "small", Zone: "sim-1a", Type: "balanced", SizeGiB: 1}))(t)
	large := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "large", Zone: "sim-1a", Type: "fast", SizeGiB: 20_000}))(t)
	many := mustCreateDisk(t, e, ctx, "many", shared)
	for name, tc := range map[string]struct {
		id    cloudsim.DiskID
		req   cloudsim.ModifyDisk
		kind  cloudsim.Kind
		field string
	}{
		"no field":                                     {small.ID, cloudsim.ModifyDisk{}, cloudsim.Invalid, "type"},
		"unknown type":                                 {small.ID, cloudsim.ModifyDisk{Type: "nope"}, cloudsim.Invalid, "type"},
		"disk too small for the type":                  {small.ID, cloudsim.ModifyDisk{Type: "fast"}, cloudsim.Invalid, "type"},
		"disk too large for the type":                  {large.ID, cloudsim.ModifyDisk{Type: "balanced"}, cloudsim.Invalid, "type"},
		"multi-attach disk, type without multi-attach": {many.ID, cloudsim.ModifyDisk{Type: "balanced"}, cloudsim.Invalid, "type"},
		"too many IOPS":                                {small.ID, cloudsim.ModifyDisk{IOPS: 16_001}, cloudsim.Invalid, "iops"},
		"too few MiB/s":                                {small.ID, cloudsim.ModifyDisk{ThroughputMiBps: 49}, cloudsim.Invalid, "throughputMiBps"},
		"unknown disk":                                 {"disk-ffffff", cloudsim.ModifyDisk{IOPS: 1}, cloudsim.NotFound, ""},
	} {
		_, err := e.ModifyDisk(ctx, tc.id, tc.req)
		expectRefused(t, name, err, tc.kind, tc.field)
	}
}

// TestModifyCooldown proves that ModifyDisk returns Conflict if the last modification was less than
// DiskCooldown ago. Even then, ModifyDisk returns no error if the disk already has the requested
// values.
func TestModifyCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), instant, func(c *engine.Config) { c.DiskCooldown = time.Hour })
		defer down()
		d := mustCreateDisk(t, e, ctx, "data")
		must(e.ModifyDisk(ctx, d.ID, cloudsim.ModifyDisk{IOPS: 20_000}))(t)
		time.Sleep(time.Hour - time.Second)
		must(e.ModifyDisk(ctx, d.ID, cloudsim.ModifyDisk{IOPS: 20_000}))(t)
		_, err := e.ModifyDisk(ctx, d.ID, cloudsim.ModifyDisk{IOPS: 30_000})
		expectRefused(t, "modification during the cool-down", err, cloudsim.Conflict, "")
		time.Sleep(2 * time.Second)
		must(e.ModifyDisk(ctx, d.ID, cloudsim.ModifyDisk{IOPS: 30_000}))(t)
	})
}

// TestDiskOfSource proves that CreateDisk makes valid copies of snapshots and disks. CreateDisk
// returns an error if the copy is invalid, for example if the copy is smaller than its source.
func TestDiskOfSource(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, func(c *engine.Config) {
		c.Catalogue.Regions = append(c.Catalogue.Regions, cloudsim.Region{Meta: cloudsim.Meta{Name: "far"}})
		c.Catalogue.Zones = append(c.Catalogue.Zones, cloudsim.Zone{Meta: cloudsim.Meta{Name: "far-a"}, Region: "far"})
	})
	defer down()
	d := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "data", Zone: "sim-1a", Type: "balanced", SizeGiB: 10}))(t)
	both := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "both", ReplicaZones: []string{"sim-1a", "sim-1b"}, Type: "balanced", SizeGiB: 10}))(t)
	s := mustSnapshot(t, e, ctx, "snap", d.ID)
	one := func(zone, ty string, size int) cloudsim.CreateDisk {
		return cloudsim.CreateDisk{Name: "new", Zone: zone, Type: ty, SizeGiB: size}
	}
	two := cloudsim.CreateDisk{Name: "new", ReplicaZones: []string{"sim-1b", "sim-1c"}, Type: "balanced"}
	for name, tc := range map[string]struct {
		req   cloudsim.CreateDisk
		of    cloudsim.DiskID // source disk; "" if the source is the snapshot
		kind  error           // expected error; nil for none
		field string
	}{
		"same size as the snapshot":                         {one("sim-1b", "balanced", 0), "", nil, ""},
		"larger than the snapshot":                          {one("sim-1b", "fast", 11), "", nil, ""},
		"smaller than the snapshot":                         {one("sim-1b", "fast", 9), "", cloudsim.Invalid, "sizeGiB"},
		"snapshot of another region":                        {one("far-a", "fast", 0), "", cloudsim.Invalid, "sourceSnapshot"},
		"same size as the source disk":                      {one("sim-1a", "balanced", 0), d.ID, nil, ""},
		"larger than the source disk":                       {one("sim-1a", "balanced", 11), d.ID, nil, ""},
		"smaller than the source disk":                      {one("sim-1a", "balanced", 9), d.ID, cloudsim.Invalid, "sizeGiB"},
		"larger than the type permits":                      {one("sim-1a", "balanced", 16385), d.ID, cloudsim.Invalid, "sizeGiB"},
		"another type than the source disk":                 {one("sim-1a", "fast", 0), d.ID, cloudsim.Invalid, "type"},
		"another zone than the source disk":                 {one("sim-1b", "balanced", 0), d.ID, cloudsim.Invalid, "sourceDisk"},
		"regional copy of a zonal disk":                     {cloudsim.CreateDisk{Name: "new", ReplicaZones: []string{"sim-1a", "sim-1c"}, Type: "balanced"}, d.ID, nil, ""},
		"regional copy without the zone of the source disk": {two, d.ID, cloudsim.Invalid, "sourceDisk"},
		"zonal copy of a regional disk":                     {one("sim-1a", "balanced", 0), both.ID, cloudsim.Invalid, "sourceDisk"},
		"regional copy in other zones than the source disk": {two, both.ID, cloudsim.Invalid, "sourceDisk"},
		"unknown source disk":                               {one("sim-1a", "balanced", 0), "disk-ffffff", cloudsim.NotFound, "sourceDisk"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.req.SourceDisk = tc.of; tc.of == "" {
				tc.req.SourceSnapshot = s.ID
			}
			got, err := e.CreateDisk(ctx, tc.req)
			if tc.kind != nil {
				expectRefused(t, name, err, cloudsim.KindOf(tc.kind), tc.field)
				return
			}
			if want := max(10, tc.req.SizeGiB); err != nil || got.SizeGiB != want || got.State != cloudsim.DiskAvailable {
				t.Fatalf("disk of a source: got %+v, error %v", got, err)
			}
			if repeated := must(e.CreateDisk(ctx, tc.req))(t); repeated.Revision != got.Revision {
				t.Errorf("repeated request: got %+v, want revision %d", repeated, got.Revision)
			}
			must(e.DeleteDisk(ctx, got.ID))(t)
		})
	}
}

// TestDiskPages deletes the last disk of a page before it reads the next page. It proves that the
// next page begins after the deleted disk. For an invalid page token, ListDisks returns Invalid.
func TestDiskPages(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	for _, name := range []string{"a", "b", "c"} {
		mustCreateDisk(t, e, ctx, name)
	}
	first := must(e.ListDisks(ctx, cloudsim.ListOptions{Limit: 2}))(t)
	must(e.DeleteDisk(ctx, first.Items[1].ID))(t)
	if rest := must(e.ListDisks(ctx, cloudsim.ListOptions{Limit: 2, After: first.Next}))(t); len(rest.Items) != 1 || rest.Items[0].Name != "c" || rest.Next != "" {
		t.Errorf("page after the cursor %s: got %+v, want only disk c", first.Next, rest)
	}
	for _, token := range []string{"-1", "0", "garbage", "i-000001"} {
		_, err := e.ListDisks(ctx, cloudsim.ListOptions{After: token})
		expectRefused(t, "cursor "+token, err, cloudsim.Invalid, "after")
	}
}

// TestModifyWhenTheClockIsSetBack proves that ModifyDisk permits a modification although a user has
// set the clock back to a time before the last modification.
func TestModifyWhenTheClockIsSetBack(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), frozen, instant)
	defer down()
	d := mustCreateDisk(t, e, ctx, "data")
	advance(t, e, ctx, time.Hour)
	must(e.ModifyDisk(ctx, d.ID, cloudsim.ModifyDisk{IOPS: 20_000}))(t)
	must(e.SetClock(ctx, cloudsim.SetClock{Time: &newYear}))(t)
	must(e.ModifyDisk(ctx, d.ID, cloudsim.ModifyDisk{IOPS: 30_000}))(t)
}
