package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// everyDiskVerb is a part of TestEveryVerb. It calls every operation of disks, and attaches disks
// to the instance i.
func everyDiskVerb(t *testing.T, c *client.Client, i cloudsim.Instance) {
	t.Helper()
	ctx := t.Context()
	if l := must(c.ListDiskTypes(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 3 {
		t.Errorf("disk types: got %+v, want 3", l.Items)
	}
	if ty := must(c.GetDiskType(ctx, "fast"))(t); !ty.MultiAttach {
		t.Errorf("disk type fast: got %+v, want multi-attach", ty)
	}
	d := must(c.CreateDisk(ctx, cloudsim.CreateDisk{Name: "data", Zone: i.Zone, Type: "balanced", SizeGiB: 10}))(t)
	if diff := cmp.Diff(d, must(c.GetDisk(ctx, d.ID))(t)); diff != "" {
		t.Errorf("GetDisk differs from CreateDisk: %s", diff)
	}
	if l := must(c.ListDisks(ctx, cloudsim.ListOptions{Zone: i.Zone}))(t); len(l.Items) != 1 {
		t.Errorf("disks of the zone: got %+v, want 1", l.Items)
	}
	old := d.Revision
	if d = must(c.UpdateDisk(ctx, d.ID, cloudsim.UpdateDisk{Labels: map[string]string{"a": "b"}}, old))(t); d.Labels["a"] != "b" {
		t.Errorf("updated disk: got %+v, want the label a=b", d)
	}
	if _, err := c.UpdateDisk(ctx, d.ID, cloudsim.UpdateDisk{Labels: map[string]string{}}, old); !errors.Is(err, cloudsim.Stale) {
		t.Errorf("update of an old revision: got error %v, want Stale", err)
	}
	d = must(c.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID, ReadOnly: true}))(t)
	want := []cloudsim.Attachment{{Instance: i.ID, ReadOnly: true, Device: "vdb", State: cloudsim.AttachmentAttached}}
	if diff := cmp.Diff(want, d.Attachments); diff != "" || d.State != cloudsim.DiskInUse {
		t.Errorf("attached disk: got state %s, want in-use; attachments differ: %s", d.State, diff)
	}
	for instance, want := range map[cloudsim.InstanceID]int{i.ID: 1, "i-0000ff": 0} {
		if l := must(c.ListDisks(ctx, cloudsim.ListOptions{Instances: []cloudsim.InstanceID{instance}}))(t); len(l.Items) != want {
			t.Errorf("disks of instance %s: got %+v, want %d", instance, l.Items, want)
		}
	}
	if _, err := c.DeleteDisk(ctx, d.ID); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("deletion of an attached disk: got error %v, want Conflict", err)
	}
	if d = must(c.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 20}))(t); d.SizeGiB != 20 {
		t.Errorf("resized disk: got %+v, want 20 GiB", d)
	}
	if _, err := c.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 10}); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("resize to a smaller size: got error %v, want Invalid", err)
	}
	if d = must(c.ModifyDisk(ctx, d.ID, cloudsim.ModifyDisk{IOPS: 4000}))(t); d.IOPS != 4000 {
		t.Errorf("modified disk: got %+v, want 4000 IOPS", d)
	}
	everySnapshotVerb(t, c, d)
	everyPoolVerb(t, c, d)
	report := cloudsim.ReportDevices{Devices: []cloudsim.DeviceReport{{Disk: d.ID, Ready: true}}}
	if i := must(c.ReportDevices(ctx, i.ID, report))(t); !i.ReportsDevices || !must(c.GetDisk(ctx, d.ID))(t).Attachments[0].Ready {
		t.Errorf("reported devices: got instance %+v", i)
	}
	if i := must(c.ForgetDevices(ctx, i.ID))(t); i.ReportsDevices || must(c.GetDisk(ctx, d.ID))(t).Attachments[0].Ready {
		t.Errorf("forgotten devices: got instance %+v", i)
	}
	if d = must(c.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}))(t); d.State != cloudsim.DiskAvailable {
		t.Errorf("detached disk: got %+v, want state available", d)
	}
	must(c.DeleteDisk(ctx, d.ID))(t)
	if _, err := c.GetDisk(ctx, d.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("GetDisk after the deletion: got error %v, want NotFound", err)
	}
}

func everySnapshotVerb(t *testing.T, c *client.Client, d cloudsim.Disk) {
	t.Helper()
	ctx := t.Context()
	s := must(c.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "snap", Disk: d.ID}))(t)
	if diff := cmp.Diff(s, must(c.GetSnapshot(ctx, s.ID))(t)); diff != "" || !s.ReadyToUse {
		t.Errorf("GetSnapshot differs from CreateSnapshot, or the snapshot is not ready: %s", diff)
	}
	g := must(c.CreateSnapshotGroup(ctx, cloudsim.CreateSnapshotGroup{Name: "group", Disks: []cloudsim.DiskID{d.ID}}))(t)
	if diff := cmp.Diff(g, must(c.GetSnapshotGroup(ctx, g.ID))(t)); diff != "" || len(g.Snapshots) != 1 {
		t.Errorf("GetSnapshotGroup differs from CreateSnapshotGroup, or has not 1 snapshot: %s", diff)
	}
	for source, want := range map[string]int{string(d.ID): 2, "disk-ffffff": 0} {
		if l := must(c.ListSnapshots(ctx, cloudsim.ListOptions{Source: source}))(t); len(l.Items) != want {
			t.Errorf("snapshots of %s: got %+v, want %d", source, l.Items, want)
		}
	}
	if l := must(c.ListSnapshotGroups(ctx, cloudsim.ListOptions{Name: "group"}))(t); len(l.Items) != 1 {
		t.Errorf("snapshot groups: got %+v, want 1", l.Items)
	}
	if _, err := c.CreateSnapshot(ctx, cloudsim.CreateSnapshot{Name: "more", Disk: "disk-ffffff"}); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("snapshot of a missing disk: got error %v, want NotFound", err)
	}
	if _, err := c.DeleteSnapshot(ctx, g.Snapshots[0]); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("deletion of a snapshot of a group: got error %v, want Conflict", err)
	}
	must(c.DeleteSnapshotGroup(ctx, g.ID))(t)
	must(c.DeleteSnapshot(ctx, s.ID))(t)
	if _, err := c.GetSnapshot(ctx, s.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("GetSnapshot after the deletion: got error %v, want NotFound", err)
	}
}

func everyPoolVerb(t *testing.T, c *client.Client, d cloudsim.Disk) {
	t.Helper()
	ctx := t.Context()
	name := cloudsim.DiskPoolName(d.Zone, d.Type)
	if p := must(c.GetDiskPool(ctx, name))(t); p.UsedGiB != d.SizeGiB {
		t.Errorf("disk pool: got %+v, want the disk's size as UsedGiB", p)
	}
	if l := must(c.ListDiskPools(ctx, cloudsim.ListOptions{Zone: d.Zone}))(t); len(l.Items) != 3 {
		t.Errorf("disk pools of the zone: got %+v, want 3", l.Items)
	}
	must(c.SetDiskPool(ctx, name, cloudsim.SetDiskPool{SizeGiB: d.SizeGiB}))(t)
	_, err := c.CreateDisk(ctx, cloudsim.CreateDisk{Name: "more", Zone: d.Zone, Type: d.Type, SizeGiB: 1})
	if !errors.Is(err, cloudsim.Exhausted) {
		t.Errorf("disk that exceeds its pool: got error %v, want Exhausted", err)
	}
}
