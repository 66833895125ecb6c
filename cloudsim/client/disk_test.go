package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// everyDiskVerb is TestEveryVerb's part of disks, with an instance to attach to.
func everyDiskVerb(t *testing.T, c *client.Client, i cloudsim.Instance) {
	t.Helper()
	ctx := t.Context()
	if l := must(c.ListDiskTypes(ctx, cloudsim.ListOptions{}))(t); len(l.Items) != 3 {
		t.Errorf("disk types: %+v", l.Items)
	}
	if ty := must(c.GetDiskType(ctx, "fast"))(t); !ty.MultiAttach {
		t.Errorf("disk type: %+v", ty)
	}
	d := must(c.CreateDisk(ctx, cloudsim.CreateDisk{Name: "data", Zone: i.Zone, Type: "balanced", SizeGiB: 10}))(t)
	if diff := cmp.Diff(d, must(c.GetDisk(ctx, d.ID))(t)); diff != "" {
		t.Errorf("get differs from create: %s", diff)
	}
	if l := must(c.ListDisks(ctx, cloudsim.ListOptions{Zone: i.Zone}))(t); len(l.Items) != 1 {
		t.Errorf("disks of the zone: %+v", l.Items)
	}
	d = must(c.AttachDisk(ctx, d.ID, cloudsim.AttachDisk{Instance: i.ID, ReadOnly: true}))(t)
	want := []cloudsim.Attachment{{Instance: i.ID, ReadOnly: true, Device: "vdb", State: cloudsim.AttachmentAttached}}
	if diff := cmp.Diff(want, d.Attachments); diff != "" || d.State != cloudsim.DiskInUse {
		t.Errorf("attached: %s %s", d.State, diff)
	}
	if _, err := c.DeleteDisk(ctx, d.ID); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("deleting what is attached: %v", err)
	}
	if d = must(c.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 20}))(t); d.SizeGiB != 20 {
		t.Errorf("grown: %+v", d)
	}
	if _, err := c.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: 10}); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("shrinking: %v", err)
	}
	if d = must(c.DetachDisk(ctx, d.ID, cloudsim.DetachDisk{Instance: i.ID}))(t); d.State != cloudsim.DiskAvailable {
		t.Errorf("detached: %+v", d)
	}
	must(c.DeleteDisk(ctx, d.ID))(t)
	if _, err := c.GetDisk(ctx, d.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}
