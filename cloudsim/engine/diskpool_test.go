package engine_test

import (
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestDiskPools proves that a pool limits the disks of its type and zone. The
// usage of the pools stays correct after each operation on disks and after a
// restart.
func TestDiskPools(t *testing.T) {
	path, ctx := file(t), engine.AsCloud(t.Context())
	e, down := boot(t, path, instant)
	defer func() { down() }()
	if l := must(e.ListDiskPools(ctx, cloudsim.ListOptions{Zone: "sim-1b"}))(t); len(l.Items) != 3 || l.Items[0].Name != "sim-1b.balanced" || l.Items[0].FreeGiB != 1<<20 {
		t.Errorf("pools of a zone: got %+v", l.Items)
	}
	const fast, balanced = "sim-1a.fast", "sim-1a.balanced"
	set := func(pool string, size int) { must(e.SetDiskPool(ctx, pool, cloudsim.SetDiskPool{SizeGiB: size}))(t) }
	expect := func(step, pool string, used, left int) {
		t.Helper()
		if p := must(e.GetDiskPool(ctx, pool))(t); p.UsedGiB != used || p.FreeGiB != left {
			t.Errorf("%s: %s has %d used, %d free; want %d, %d", step, pool, p.UsedGiB, p.FreeGiB, used, left)
		}
	}
	set(fast, 25)
	a := mustCreateDisk(t, e, ctx, "a")
	expect("one disk", fast, 10, 15)
	mustCreateDisk(t, e, ctx, "a")
	expect("repeated request", fast, 10, 15)
	mustCreateDisk(t, e, ctx, "b")
	_, err := e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "c", Zone: "sim-1a", Type: "fast", SizeGiB: 6})
	expectRefused(t, "creation beyond the pool", err, cloudsim.Exhausted, "")
	if err == nil || !strings.Contains(err.Error(), "sim-1a.fast has 5 of 25 GiB left") {
		t.Errorf("CreateDisk beyond the pool: got error %v, want it to contain \"sim-1a.fast has 5 of 25 GiB left\"", err)
	}
	_, err = e.ResizeDisk(ctx, a.ID, cloudsim.ResizeDisk{SizeGiB: 16})
	expectRefused(t, "resize beyond the pool", err, cloudsim.Exhausted, "")
	must(e.ResizeDisk(ctx, a.ID, cloudsim.ResizeDisk{SizeGiB: 15}))(t)
	expect("grown", fast, 25, 0)
	must(e.ModifyDisk(ctx, a.ID, cloudsim.ModifyDisk{Type: "balanced"}))(t)
	expect("disk of another type", fast, 10, 15)
	expect("disk of another type", balanced, 15, 1<<20-15)
	set(balanced, 15)
	set(fast, 12)
	_, err = e.ModifyDisk(ctx, a.ID, cloudsim.ModifyDisk{Type: "fast"})
	expectRefused(t, "modification to a type without space in its pool", err, cloudsim.Exhausted, "")
	expect("refused", balanced, 15, 0)
	must(e.ModifyDisk(ctx, a.ID, cloudsim.ModifyDisk{IOPS: 5000}))(t) // a change of the IOPS needs no space
	expect("more IOPS in a full pool", balanced, 15, 0)
	set(fast, 5)
	expect("pool smaller than its disks", fast, 10, 0)
	down()
	e, down = boot(t, path, instant)
	expect("after a restart", fast, 10, 0)
	must(e.DeleteDisk(ctx, a.ID))(t)
	expect("deleted", balanced, 0, 15)
	_, err = e.SetDiskPool(ctx, "sim-1a.nope", cloudsim.SetDiskPool{})
	expectRefused(t, "size of an unknown pool", err, cloudsim.NotFound, "")
	_, err = e.SetDiskPool(ctx, fast, cloudsim.SetDiskPool{SizeGiB: -1})
	expectRefused(t, "negative size of a pool", err, cloudsim.Invalid, "sizeGiB")
}

// TestRegionalDisk proves that a regional disk uses space in the pools of both its zones. If one
// pool has too little space, CreateDisk fails and reserves no space in the other pool. A caller can
// attach the disk to an instance in either zone.
func TestRegionalDisk(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, func(c *engine.Config) {
		c.Catalogue.Regions = append(c.Catalogue.Regions, cloudsim.Region{Meta: cloudsim.Meta{Name: "far"}})
		c.Catalogue.Zones = append(c.Catalogue.Zones, cloudsim.Zone{Meta: cloudsim.Meta{Name: "far-a"}, Region: "far"})
	})
	defer down()
	create := func(name string, zones ...string) (cloudsim.Disk, error) {
		return e.CreateDisk(ctx, cloudsim.CreateDisk{Name: name, ReplicaZones: zones, Type: "balanced", SizeGiB: 10})
	}
	_, err := create("x", "sim-1a", "nope")
	expectRefused(t, "disk in an unknown zone", err, cloudsim.Invalid, "replicaZones")
	_, err = create("x", "sim-1a", "far-a")
	expectRefused(t, "disk in zones of two regions", err, cloudsim.Invalid, "replicaZones")
	d := must(create("x", "sim-1b", "sim-1a"))(t)
	if repeated := must(create("x", "sim-1a", "sim-1b"))(t); repeated.Revision != d.Revision || d.Zone != "" || d.Region != "sim-1" {
		t.Errorf("repeated request with the zones in the other order: got %+v, want the first disk %+v", repeated, d)
	}
	_, err = create("x", "sim-1a", "sim-1c")
	expectRefused(t, "repeated request with other zones", err, cloudsim.Exists, "")
	must(e.SetDiskPool(ctx, "sim-1b.balanced", cloudsim.SetDiskPool{SizeGiB: 15}))(t)
	_, err = create("y", "sim-1a", "sim-1b")
	expectRefused(t, "creation with one full pool of two", err, cloudsim.Exhausted, "")
	for _, pool := range []string{"sim-1a.balanced", "sim-1b.balanced"} {
		if p := must(e.GetDiskPool(ctx, pool))(t); p.UsedGiB != 10 {
			t.Errorf("pool after a refused disk: got %+v, want 10 used GiB", p)
		}
	}
	for zone, want := range map[string]int{"sim-1a": 1, "sim-1b": 1, "sim-1c": 0, "": 1} {
		if l := must(e.ListDisks(ctx, cloudsim.ListOptions{Zone: zone}))(t); len(l.Items) != want {
			t.Errorf("disks of zone %q: got %+v", zone, l.Items)
		}
	}
	for _, zone := range []string{"sim-1a", "sim-1b"} {
		i := must(e.CreateInstance(ctx, cloudsim.CreateInstance{Name: zone, Zone: zone, Type: "small"}))(t)
		must(e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID}))(t)
		must(e.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}))(t)
	}
	i := must(e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "c", Zone: "sim-1c", Type: "small"}))(t)
	_, err = e.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID})
	expectRefused(t, "attachment in a zone without a replica", err, cloudsim.Invalid, "instance")
	_, err = e.ModifyDisk(ctx, d.ID, cloudsim.ModifyDisk{Type: "fast"})
	expectRefused(t, "modification to a type that is not regional", err, cloudsim.Invalid, "type")
}

// TestRegionalDiskSurvivesItsZone proves that a fault for a zone hits calls
// about the zonal disks in this zone. The fault does not hit calls about
// regional disks. During the fault, a caller can attach a regional disk to
// an instance in the disk's other zone.
func TestRegionalDiskSurvivesItsZone(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	a := mustCreate(t, e, ctx, "a")
	b := must(e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "b", Zone: "sim-1b", Type: "small"}))(t)
	zonal := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "zonal", Zone: "sim-1a", Type: "balanced", SizeGiB: 1}))(t)
	regional := must(e.CreateDisk(ctx, cloudsim.CreateDisk{Name: "regional", ReplicaZones: []string{"sim-1a", "sim-1b"}, Type: "balanced", SizeGiB: 1}))(t)
	must(e.AttachDisk(ctx, regional.ID, cloudsim.AttachDisk{Instance: a.ID}))(t)
	must(e.StopInstance(ctx, a.ID))(t)
	must(e.CreateFault(ctx, cloudsim.CreateFault{Name: "outage", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "disks.*", Zone: "sim-1a"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError, Kind: "unavailable"},
	}}))(t)
	for id, want := range map[cloudsim.DiskID]bool{zonal.ID: true, regional.ID: false} {
		hit := must(e.Decide(ctx, engine.Subject{Operation: "disks.detach", Target: string(id)}))(t)
		if (hit.Fault != nil) != want {
			t.Errorf("call disks.detach about %s: got hit %t, want hit %t", id, !want, want)
		}
	}
	must(e.DetachDisk(ctx, regional.ID, cloudsim.DetachDisk{Instance: a.ID, Force: true}))(t)
	if got := must(e.AttachDisk(ctx, regional.ID, cloudsim.AttachDisk{Instance: b.ID}))(t); got.State != cloudsim.DiskInUse {
		t.Errorf("attachment in the other zone: got %+v, want it in use", got)
	}
}
