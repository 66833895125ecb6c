package csidriver

import (
	"context"
	"maps"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestOneNameIsOneVolume proves that concurrent CreateVolume calls with the
// same name create only one volume. Each call returns this volume or ABORTED.
func TestOneNameIsOneVolume(t *testing.T) {
	b := newBench(t)
	var all sync.WaitGroup
	got := make([]string, 32)
	for i := range got {
		all.Go(func() {
			resp, err := b.CreateVolume(t.Context(), b.request("pvc-1"))
			if err == nil {
				got[i] = resp.GetVolume().GetVolumeId()
			} else if status.Code(err) != codes.Aborted {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if l, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil || len(l.GetEntries()) != 1 {
		t.Fatalf("got %d volumes, %v; want 1", len(l.GetEntries()), err)
	}
	for _, id := range got {
		if id != "" && id != "disk-000001" {
			t.Errorf("got volume %q, want disk-000001", id)
		}
	}
}

// TestOneCloudCallPerRPC proves that the driver does not poll an operation that the cloud finishes
// at once. For the lifecycle of a volume, the controller needs only four calls to the cloud.
func TestOneCloudCallPerRPC(t *testing.T) {
	b := newBench(t)
	if err := b.cloud.ResetBill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.controllerCycle(t.Context(), "pvc-1"); err != nil {
		t.Fatal(err)
	}
	bill, err := b.cloud.Bill(t.Context(), cloudsim.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, row := range bill.Rows {
		got[row.Operation] = row.Calls
	}
	if want := map[string]uint64{"disks.create": 1, "disks.attach": 1, "disks.detach": 1, "disks.delete": 1}; !maps.Equal(got, want) {
		t.Errorf("got calls %v, want %v", got, want)
	}
}

// TestSameNameAgain proves that a different request with the same name gets
// ALREADY_EXISTS. A compatible request gets the existing volume.
func TestSameNameAgain(t *testing.T) {
	b := newBench(t)
	first := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 5 * gib })
	other := b.volume("pvc-2", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 5 * gib })
	for name, c := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		want   codes.Code
	}{
		"smaller": {func(r *csi.CreateVolumeRequest) {}, codes.OK},
		"no size": {func(r *csi.CreateVolumeRequest) { r.CapacityRange = nil }, codes.OK},
		"larger":  {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 6 * gib }, codes.AlreadyExists},
		"less":    {func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = 4 * gib }, codes.AlreadyExists},
		"block":   {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{raw()} }, codes.AlreadyExists},
		"type":    {func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"type": "standard"} }, codes.AlreadyExists},
		"iops":    {func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"iops": "4000"} }, codes.AlreadyExists},
		"zone": {func(r *csi.CreateVolumeRequest) {
			r.AccessibilityRequirements.Requisite = topologyOf(DefaultName, "sim-1b")
		}, codes.AlreadyExists},
		"other zone": {func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = nil }, codes.OK},
		"source":     {func(r *csi.CreateVolumeRequest) { from("", other)(r); r.CapacityRange = nil }, codes.AlreadyExists},
	} {
		resp, err := b.CreateVolume(t.Context(), b.request("pvc-1", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = gib }, c.change))
		wantCode(t, name, err, c.want)
		if err == nil && resp.GetVolume().GetVolumeId() != first {
			t.Errorf("%s: got volume %s, want the existing volume %s", name, resp.GetVolume().GetVolumeId(), first)
		}
	}
}

// TestMinimumSizeOfType proves that a volume gets at least the minimum size of
// its disk type. If the limit of the request is smaller than this minimum, the
// request fails. A request without a limit creates a volume of the minimum size,
// and a repetition of this request returns the same volume.
func TestMinimumSizeOfType(t *testing.T) {
	b := newBench(t)
	small := func(most int64) *csi.CreateVolumeRequest {
		return b.request("pvc-1", func(r *csi.CreateVolumeRequest) {
			r.Parameters, r.CapacityRange = map[string]string{"type": "fast"}, &csi.CapacityRange{RequiredBytes: gib, LimitBytes: most}
		})
	}
	_, err := b.CreateVolume(t.Context(), small(2*gib))
	wantCode(t, "limit below the minimum size", err, codes.OutOfRange)
	for range 2 {
		v := must(t)(b.CreateVolume(t.Context(), small(0))).(*csi.CreateVolumeResponse).GetVolume()
		if v.GetVolumeId() != "disk-000001" || v.GetCapacityBytes() != 4*gib {
			t.Errorf("got volume %v, want disk-000001 with 4 GiB", v)
		}
	}
	s := must(t)(b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "small", SourceVolumeId: b.volume("small")})).(*csi.CreateSnapshotResponse).GetSnapshot()
	v := must(t)(b.CreateVolume(t.Context(), b.request("copy", func(r *csi.CreateVolumeRequest) {
		from(s.GetSnapshotId(), "")(r)
		r.Parameters, r.CapacityRange = map[string]string{"type": "fast"}, nil
	}))).(*csi.CreateVolumeResponse).GetVolume()
	if v.GetCapacityBytes() != 4*gib {
		t.Errorf("volume from a smaller snapshot: got %v, want 4 GiB", v)
	}
}

// TestBadRequests proves that the driver refuses invalid requests, such as
// sizes that would overflow. A refused request creates no volume.
func TestBadRequests(t *testing.T) {
	b := newBench(t)
	size := func(least, most int64) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: least, LimitBytes: most}
		}
	}
	for name, c := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		want   codes.Code
	}{
		"huge":                          {size(math.MaxInt64, 0), codes.OutOfRange},
		"negative":                      {size(-1, 0), codes.InvalidArgument},
		"negative limit":                {size(0, -1), codes.InvalidArgument},
		"limit below size":              {size(2*gib, gib), codes.InvalidArgument},
		"limit that is not a whole GiB": {size(67108865, 67108865), codes.OutOfRange},
		"above the type's maximum":      {size(20000*gib, 0), codes.OutOfRange},
		"unknown zone": {func(r *csi.CreateVolumeRequest) {
			r.AccessibilityRequirements.Requisite = topologyOf(DefaultName, "mars")
		}, codes.ResourceExhausted},
		"unknown key":          {func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"color": "red"} }, codes.InvalidArgument},
		"iops is not a number": {func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"iops": "many"} }, codes.InvalidArgument},
		"unknown type":         {func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"type": "gold"} }, codes.InvalidArgument},
		"type without regional volumes": {func(r *csi.CreateVolumeRequest) {
			r.Parameters, r.CapacityRange.RequiredBytes = map[string]string{"type": "fast", "replication": "regional"}, 4*gib
			r.AccessibilityRequirements = nil
		}, codes.InvalidArgument},
		"unknown filesystem": {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{mounted("ntfs")} }, codes.InvalidArgument},
		"unknown snapshot":   {from("snap-00ffff", ""), codes.NotFound},
		"unknown volume":     {from("", "disk-00ffff"), codes.NotFound},
		"path as volume id":  {from("", "../x"), codes.NotFound},
	} {
		_, err := b.CreateVolume(t.Context(), b.request("pvc-x", c.change))
		wantCode(t, name, err, c.want)
	}
	if l, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil || len(l.GetEntries()) != 0 {
		t.Errorf("got %d volumes after refused requests, %v; want none", len(l.GetEntries()), err)
	}
}

func from(snapshot, volume string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volume}}}
		if snapshot != "" {
			r.VolumeContentSource.Type = &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}}
		}
	}
}

// TestPages proves that the pages of ListVolumes together contain every
// existing volume, even if a caller deletes a volume between two pages. The
// driver refuses an unknown page token.
func TestPages(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		b.volume(name)
	}
	seen, token := map[string]bool{}, ""
	for {
		l, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range l.GetEntries() {
			seen[e.GetVolume().GetVolumeId()] = true
		}
		if token == "" { // delete a volume of the first page
			must(t)(b.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: l.GetEntries()[0].GetVolume().GetVolumeId()}))
		}
		if token = l.GetNextToken(); token == "" {
			break
		}
	}
	if len(seen) != 5 {
		t.Errorf("pages show the volumes %v, want 5", seen)
	}
	for _, token := range []string{"-1", "0", "x", "99999999999999999999"} {
		_, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: token})
		wantCode(t, "starting token "+token, err, codes.Aborted)
	}
	_, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	wantCode(t, "max_entries -1", err, codes.InvalidArgument)
	_, err = b.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 10_000}) // more than a page of the cloud
	wantCode(t, "max_entries 10000", err, codes.OK)
}

// TestSnapshotPages proves that the pages of ListSnapshots together contain
// every snapshot of a volume once, even if a caller deletes a snapshot between
// two pages. The driver refuses an unknown page token.
func TestSnapshotPages(t *testing.T) {
	b := newBench(t)
	v, other := b.volume("pvc-1"), b.volume("pvc-2")
	take := func(name, of string) string {
		return must(t)(b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: of})).(*csi.CreateSnapshotResponse).GetSnapshot().GetSnapshotId()
	}
	want := map[string]int{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		want[take(name, v)] = 1
	}
	take("other", other)
	seen, token, pages := map[string]int{}, "", 0
	for pages == 0 || token != "" {
		l, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: 2, StartingToken: token, SourceVolumeId: v})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range l.GetEntries() {
			seen[e.GetSnapshot().GetSnapshotId()]++
		}
		if token, pages = l.GetNextToken(), pages+1; pages == 1 { // delete the snapshot with the id in the page token
			must(t)(b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: l.GetEntries()[1].GetSnapshot().GetSnapshotId()}))
		}
	}
	if !maps.Equal(seen, want) || pages != 3 {
		t.Errorf("got %d pages with %v, want 3 pages with %v", pages, seen, want)
	}
	if l := must(t)(b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})).(*csi.ListSnapshotsResponse); len(l.GetEntries()) != 5 {
		t.Errorf("got %d snapshots of all volumes, want 5", len(l.GetEntries()))
	}
	for _, token := range []string{"-1", "0", "x", "disk-000001", "99999999999999999999"} {
		_, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{StartingToken: token})
		wantCode(t, "starting token "+token, err, codes.Aborted)
	}
	_, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: -1})
	wantCode(t, "max_entries -1", err, codes.InvalidArgument)
}

// TestPublishing proves that the driver does not delete an attached volume. It
// also proves that ListVolumes shows no attachment to a node after the cloud
// has deleted the node's instance.
func TestPublishing(t *testing.T) {
	b := newBench(t)
	other := b.instance("node-2", "sim-1a")
	v := b.volume("pvc-1")
	var publishContext map[string]string
	attach := func(to cloudsim.InstanceID, readOnly bool) error {
		resp, err := b.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v, NodeId: string(to), VolumeCapability: mounted("ext4"), Readonly: readOnly})
		if err == nil && to == b.vm.ID {
			if publishContext != nil && !maps.Equal(publishContext, resp.GetPublishContext()) {
				t.Errorf("repeated publish call: got context %v, want %v", resp.GetPublishContext(), publishContext)
			}
			publishContext = resp.GetPublishContext()
		}
		return err
	}
	detach := func(volume, from string) error {
		_, err := b.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: from})
		return err
	}
	wantCode(t, "attach to an unknown node", attach("i-00ffff", false), codes.NotFound)
	wantCode(t, "attach", attach(b.vm.ID, false), codes.OK)
	wantCode(t, "attach again", attach(b.vm.ID, false), codes.OK)
	wantCode(t, "attach again read-only", attach(b.vm.ID, true), codes.AlreadyExists)
	wantCode(t, "attach to another node", attach(other.ID, false), codes.FailedPrecondition)
	_, err := b.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v})
	wantCode(t, "delete in use", err, codes.FailedPrecondition)
	l, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(l.GetEntries()[0].GetStatus().GetPublishedNodeIds()) != 1 {
		t.Errorf("got volumes %v, %v; want one published node", l, err)
	}
	must(t)(b.cloud.DeleteInstance(t.Context(), b.vm.ID))
	l, err = b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(l.GetEntries()[0].GetStatus().GetPublishedNodeIds()) != 0 {
		t.Errorf("a deleted node still has the volume: %v, %v", l, err)
	}
	wantCode(t, "detach from a deleted node", detach(v, string(b.vm.ID)), codes.OK)
	wantCode(t, "detach an unknown volume", detach("disk-00ffff", string(b.vm.ID)), codes.OK)
	wantCode(t, "attach to another node after that", attach(other.ID, false), codes.OK)
	wantCode(t, "detach from all nodes", detach(v, ""), codes.OK)
	for range 2 {
		_, err := b.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v})
		wantCode(t, "delete", err, codes.OK)
	}
}

// TestForcedDetach proves that the driver detaches a volume by force from a
// stopped instance, but not from a running instance.
func TestForcedDetach(t *testing.T) {
	b := newBench(t)
	v := b.volume("pvc-1")
	b.publish(v, mounted("ext4"))
	hold := must(t)(b.cloud.CreateHold(t.Context(), cloudsim.CreateHold{Name: "stuck", HoldSpec: cloudsim.HoldSpec{
		Transition: cloudsim.Transition{Kind: cloudsim.KindDisk, Verb: cloudsim.Detach},
	}})).(cloudsim.Hold)
	detach := func(most time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		_, err := b.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID)})
		return err
	}
	wantCode(t, "detach from a running node", detach(300*time.Millisecond), codes.DeadlineExceeded)
	must(t)(b.cloud.StopInstance(t.Context(), b.vm.ID))
	wantCode(t, "detach from a stopped node", detach(time.Minute), codes.OK)
	if d := must(t)(b.cloud.GetDisk(t.Context(), cloudsim.DiskID(v))).(cloudsim.Disk); len(d.Attachments) != 0 {
		t.Errorf("the disk is still attached: %+v", d.Attachments)
	}
	wantCode(t, "detach again", detach(time.Minute), codes.OK)
	if err := b.cloud.DeleteHold(t.Context(), hold.ID); err != nil {
		t.Fatal(err)
	}
}

// TestNoRegionalCapacityWithOneZone proves that a zone has no capacity for regional disks if its
// region has no other zone. A regional disk needs two zones of one region for its replicas.
func TestNoRegionalCapacityWithOneZone(t *testing.T) {
	b := newFarBench(t)
	for zone, want := range map[string]bool{"far-a": false, "sim-1a": true} {
		got, err := b.GetCapacity(t.Context(), &csi.GetCapacityRequest{
			Parameters: map[string]string{"replication": "regional"}, AccessibleTopology: topologyOf(DefaultName, zone)[0],
		})
		if err != nil || (got.GetAvailableCapacity() > 0) != want || (got.GetMaximumVolumeSize() != nil) != want {
			t.Errorf("regional capacity of %s: got %v, %v; want capacity %t", zone, got, err, want)
		}
	}
}

// TestCapacityOfRegionalDisks proves that a disk type without regional disks has no regional
// capacity. For other types, the regional capacity of a zone is the smaller of two values: the free
// space in this zone, and the largest free space in another zone. A regional disk needs both zones
// for its replicas.
func TestCapacityOfRegionalDisks(t *testing.T) {
	b := newBench(t)
	capacity := func(diskType, replication string) int64 {
		t.Helper()
		got, err := b.GetCapacity(t.Context(), &csi.GetCapacityRequest{
			Parameters: map[string]string{"type": diskType, "replication": replication}, AccessibleTopology: topologyOf(DefaultName, "sim-1a")[0],
		})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetAvailableCapacity() / gib
	}
	if n := capacity("fast", "zonal"); n == 0 {
		t.Error("zonal capacity of type fast: got 0 GiB")
	}
	if n := capacity("fast", "regional"); n != 0 {
		t.Errorf("regional capacity of type fast: got %d GiB, want 0", n)
	}
	for _, zone := range []string{"sim-1b", "sim-1c"} {
		if _, err := b.cloud.SetDiskPool(t.Context(), cloudsim.DiskPoolName(zone, "balanced"), cloudsim.SetDiskPool{SizeGiB: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if n := capacity("balanced", "regional"); n != 7 {
		t.Errorf("regional capacity of type balanced: got %d GiB, want 7", n)
	}
	got, err := b.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"type": "balanced", "replication": "regional"}})
	if n := got.GetAvailableCapacity() / gib; err != nil || n != 14 {
		t.Errorf("regional capacity of all zones: got %d GiB, %v; want 14, because sim-1b and sim-1c store the second replicas", n, err)
	}
}
