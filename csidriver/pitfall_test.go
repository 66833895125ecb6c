package csidriver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestCopies proves that the driver refuses a copy that is smaller than its source or in another
// zone. It also proves that a repeated request for a snapshot returns the same snapshot, and that
// a snapshot stays after the deletion of its volume.
func TestCopies(t *testing.T) {
	b := newBench(t)
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 3 * gib })
	_, err := b.CreateVolume(t.Context(), b.request("smaller", from("", v)))
	wantCode(t, "a smaller copy", err, codes.OutOfRange)
	_, err = b.CreateVolume(t.Context(), b.request("elsewhere", from("", v), func(r *csi.CreateVolumeRequest) {
		r.CapacityRange.RequiredBytes = 3 * gib
		r.AccessibilityRequirements.Requisite = topologyOf(DefaultName, "sim-1b")
	}))
	wantCode(t, "a copy in another zone", err, codes.ResourceExhausted)
	var first *csi.Snapshot
	for range 2 {
		resp, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: v})
		if err != nil {
			t.Fatal(err)
		}
		if s := resp.GetSnapshot(); first != nil && (s.GetSnapshotId() != first.GetSnapshotId() || !s.GetCreationTime().AsTime().Equal(first.GetCreationTime().AsTime())) {
			t.Errorf("repeated request: got %v, want %v", s, first)
		}
		first = resp.GetSnapshot()
	}
	other := b.volume("pvc-2")
	_, err = b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: other})
	wantCode(t, "same name for another volume", err, codes.AlreadyExists)
	must(t)(b.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v}))
	restored := b.volume("pvc-3", from(first.GetSnapshotId(), ""), func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 4 * gib })
	if restored == "" {
		t.Error("the snapshot of a deleted volume was not restored")
	}
}

// newFarBench returns a bench. The cloud of this bench has a second region "far" with the zone
// "far-a".
func newFarBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), size: "small"}
	b.cloud = cloudtest.Start(t, cloudtest.WithConfig(func(c *engine.Config) {
		c.Catalogue.Regions = append(c.Catalogue.Regions, cloudsim.Region{Meta: cloudsim.Meta{Name: "far"}})
		c.Catalogue.Zones = append(c.Catalogue.Zones, cloudsim.Zone{Meta: cloudsim.Meta{Name: "far-a"}, Region: "far"})
	}))
	b.vm = b.instance("node-1", "sim-1a")
	b.serve(NodeConfig{Instance: b.vm.ID, DisksDir: b.dir})
	return b
}

// TestVolumeInZoneOfSource proves that the driver makes a volume only in a zone in which its source
// is available. If the source is not available in any permitted zone, the driver returns
// RESOURCE_EXHAUSTED, so that the scheduler tries another node.
func TestVolumeInZoneOfSource(t *testing.T) {
	b := newFarBench(t)
	in := func(zones ...string) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) {
			r.AccessibilityRequirements = &csi.TopologyRequirement{Preferred: topologyOf(DefaultName, zones...), Requisite: topologyOf(DefaultName, zones...)}
		}
	}
	regional := func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"replication": "regional"} }
	v := b.volume("pvc-1", in("sim-1c"))
	s := must(t)(b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: v})).(*csi.CreateSnapshotResponse).GetSnapshot().GetSnapshotId()
	restored := must(t)(b.cloud.GetDisk(t.Context(), cloudsim.DiskID(b.volume("restored", from(s, ""), in("far-a", "sim-1b"))))).(cloudsim.Disk)
	if restored.Zone != "sim-1b" {
		t.Errorf("restored volume: got zone %s, want sim-1b", restored.Zone)
	}
	copied := must(t)(b.cloud.GetDisk(t.Context(), cloudsim.DiskID(b.volume("copied", from("", v), regional, in("sim-1a", "sim-1b", "sim-1c"))))).(cloudsim.Disk)
	if !slices.Contains(copied.ReplicaZones, "sim-1c") {
		t.Errorf("regional copy of a volume in sim-1c: got zones %v", copied.ReplicaZones)
	}
	_, err := b.CreateVolume(t.Context(), b.request("nowhere", from(s, ""), in("far-a")))
	wantCode(t, "restore a snapshot in another region", err, codes.ResourceExhausted)
	_, err = b.CreateVolume(t.Context(), b.request("nor-there", from("", v), regional, in("sim-1a", "sim-1b")))
	wantCode(t, "regional copy outside the zone of its source", err, codes.ResourceExhausted)
}

// TestReplicationDiffers proves that a request for a regional volume does not
// return a zonal volume with the same name, and vice versa.
func TestReplicationDiffers(t *testing.T) {
	b := newBench(t)
	both := func(r *csi.CreateVolumeRequest) {
		r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: topologyOf(DefaultName, "sim-1a", "sim-1b")}
	}
	regional := func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"replication": "regional"} }
	b.volume("zonal", both)
	b.volume("regional", regional, both)
	_, err := b.CreateVolume(t.Context(), b.request("zonal", regional, both))
	wantCode(t, "a regional volume with the name of a zonal volume", err, codes.AlreadyExists)
	_, err = b.CreateVolume(t.Context(), b.request("regional", both))
	wantCode(t, "a zonal volume with the name of a regional volume", err, codes.AlreadyExists)
}

// TestSlowSnapshot proves that a repeated request during a slow snapshot does
// not take a second snapshot.
func TestSlowSnapshot(t *testing.T) {
	b := newBench(t)
	v := b.volume("pvc-1")
	hold := must(t)(b.cloud.CreateHold(t.Context(), cloudsim.CreateHold{Name: "slow", HoldSpec: cloudsim.HoldSpec{
		Transition: cloudsim.Transition{Kind: cloudsim.KindSnapshot, Verb: cloudsim.Any},
	}})).(cloudsim.Hold)
	take := func(ctx context.Context) (*csi.CreateSnapshotResponse, error) {
		return b.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: v})
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := take(short)
	wantCode(t, "request during the snapshot", err, codes.DeadlineExceeded)
	if err := b.cloud.DeleteHold(t.Context(), hold.ID); err != nil {
		t.Fatal(err)
	}
	second := must(t)(take(t.Context())).(*csi.CreateSnapshotResponse).GetSnapshot()
	all := must(t)(b.cloud.ListSnapshots(t.Context(), cloudsim.ListOptions{})).(cloudsim.List[cloudsim.Snapshot])
	if len(all.Items) != 1 || !second.GetReadyToUse() || second.GetSnapshotId() != string(all.Items[0].ID) {
		t.Errorf("got the snapshots %v and the answer %v, want one ready snapshot", all.Items, second)
	}
}

// TestExpandAgain proves that expanding is idempotent and that a volume never
// shrinks.
func TestExpandAgain(t *testing.T) {
	b := newBench(t)
	v := b.volume("pvc-1", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 2 * gib })
	for _, c := range []struct {
		least, most int64
		want        codes.Code
		have        int64
	}{{gib, 0, codes.OK, 2}, {2 * gib, 0, codes.OK, 2}, {3 * gib, 0, codes.OK, 3}, {3 * gib, 0, codes.OK, 3}, {gib, 2 * gib, codes.OutOfRange, 0}} {
		resp, err := b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: &csi.CapacityRange{RequiredBytes: c.least, LimitBytes: c.most}})
		wantCode(t, fmt.Sprintf("expand to %d GiB", c.least/gib), err, c.want)
		if err == nil && (resp.GetCapacityBytes() != c.have*gib || !resp.GetNodeExpansionRequired()) {
			t.Errorf("expand to %d GiB: got %v", c.least/gib, resp)
		}
	}
}

// TestExpandDuringCopy proves that an expansion returns ABORTED while the
// cloud makes a snapshot or a copy of the volume, so that the caller repeats
// the call. The code is not FAILED_PRECONDITION, because FAILED_PRECONDITION
// would mean that the volume cannot grow while a pod uses it.
func TestExpandDuringCopy(t *testing.T) {
	b := newBench(t)
	v := b.volume("pvc-1")
	b.publish(v, mounted("ext4"))
	size := int64(1)
	for name, c := range map[string]struct {
		kind cloudsim.ResourceKind
		copy func() error
	}{
		"snapshot": {cloudsim.KindSnapshot, func() error {
			_, err := b.cloud.CreateSnapshot(t.Context(), cloudsim.CreateSnapshot{Name: "snap", Disk: cloudsim.DiskID(v)})
			return err
		}},
		"copy": {cloudsim.KindDisk, func() error {
			_, err := b.cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: "copy", SourceDisk: cloudsim.DiskID(v), Zone: "sim-1a", Type: "balanced"})
			return err
		}},
	} {
		size++
		expand := func() error {
			_, err := b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: &csi.CapacityRange{RequiredBytes: size * gib}})
			return err
		}
		hold := must(t)(b.cloud.CreateHold(t.Context(), cloudsim.CreateHold{Name: "slow", HoldSpec: cloudsim.HoldSpec{
			Transition: cloudsim.Transition{Kind: c.kind, Verb: cloudsim.Create},
		}})).(cloudsim.Hold)
		if err := c.copy(); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "expand during a "+name, expand(), codes.Aborted)
		if err := b.cloud.DeleteHold(t.Context(), hold.ID); err != nil {
			t.Fatal(err)
		}
		err := expand()
		for begin := time.Now(); status.Code(err) == codes.Aborted && time.Since(begin) < time.Minute; {
			err = expand()
		}
		wantCode(t, "expand after the "+name, err, codes.OK)
	}
	_, err := b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: b.failedDisk("failed"), CapacityRange: &csi.CapacityRange{RequiredBytes: 9 * gib}})
	wantCode(t, "expand a failed disk", err, codes.FailedPrecondition)
}

// failedDisk makes a disk in the state "failed" and returns its id. The source of the disk is a
// snapshot without data, so the cloud cannot copy it.
func (b *bench) failedDisk(name string) string {
	b.t.Helper()
	s := b.lostSnapshot()
	d := must(b.t)(b.cloud.CreateDisk(b.t.Context(), cloudsim.CreateDisk{Name: name, SourceSnapshot: cloudsim.SnapshotID(s), Zone: "sim-1a", Type: "balanced"})).(cloudsim.Disk)
	b.awaitDisk(d.ID, func(d cloudsim.Disk) bool { return d.State == cloudsim.DiskFailed })
	return string(d.ID)
}

// lostSnapshot makes a snapshot and deletes the data of the snapshot. It returns the id of the
// snapshot.
func (b *bench) lostSnapshot() string {
	b.t.Helper()
	s := must(b.t)(b.CreateSnapshot(b.t.Context(), &csi.CreateSnapshotRequest{Name: "lost", SourceVolumeId: b.volume("lost")})).(*csi.CreateSnapshotResponse).GetSnapshot().GetSnapshotId()
	if err := os.Remove(filepath.Join(b.path("disks"), s+".img")); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// TestDiskOfFailedCopyIsDeleted proves that CreateVolume deletes the new disk if the cloud cannot
// copy the data of the source. Otherwise the disk would use space until a user deletes it.
func TestDiskOfFailedCopyIsDeleted(t *testing.T) {
	b := newBench(t)
	s := b.lostSnapshot()
	_, err := b.CreateVolume(t.Context(), b.request("pvc-1", func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s}}}
	}))
	wantCode(t, "create from lost data", err, codes.Internal)
	all := must(t)(b.cloud.ListDisks(t.Context(), cloudsim.ListOptions{})).(cloudsim.List[cloudsim.Disk])
	for _, d := range all.Items {
		if d.Name == "pvc-1" && d.State != cloudsim.DiskDeleting {
			t.Errorf("disk of the failed volume: got the state %s, want no disk", d.State)
		}
	}
}

func (b *bench) awaitDisk(id cloudsim.DiskID, is func(cloudsim.Disk) bool) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		d := must(b.t)(b.cloud.GetDisk(b.t.Context(), id)).(cloudsim.Disk)
		if is(d) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("disk %s did not reach the condition: state %s, status %+v", id, d.State, d.Status)
		}
	}
}

// TestLimit proves that a disk which the driver did not make reduces the volume
// limit of a node. If one more volume would exceed the limit,
// ControllerPublishVolume returns RESOURCE_EXHAUSTED, so that the kubelet reads
// the limit again.
func TestLimit(t *testing.T) {
	b := newBench(t)
	own := must(t)(b.cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: "own", Zone: "sim-1a", Type: "standard", SizeGiB: 1})).(cloudsim.Disk)
	must(t)(b.cloud.AttachDisk(t.Context(), own.ID, cloudsim.AttachDisk{Instance: b.vm.ID}))
	kind := must(t)(b.cloud.GetInstanceType(t.Context(), b.vm.Type)).(cloudsim.InstanceType)
	info := must(t)(b.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})).(*csi.NodeGetInfoResponse)
	if got, want := info.GetMaxVolumesPerNode(), int64(kind.MaxDisks-1); got != want {
		t.Errorf("got a limit of %d volumes, want %d", got, want)
	}
	for i := range info.GetMaxVolumesPerNode() {
		b.publish(b.volume(fmt.Sprint("pvc-", i)), mounted("ext4"))
	}
	v := b.volume("one-more")
	_, err := b.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v, NodeId: string(b.vm.ID), VolumeCapability: mounted("ext4")})
	wantCode(t, "one volume more than the limit", err, codes.ResourceExhausted)
}

func (b *bench) limit(node csi.NodeClient) int64 {
	b.t.Helper()
	return must(b.t)(node.NodeGetInfo(b.t.Context(), &csi.NodeGetInfoRequest{})).(*csi.NodeGetInfoResponse).GetMaxVolumesPerNode()
}

// The driver can run under several driver names on one node. The scheduler counts the volumes of
// each driver name separately, but an instance has one limit for all its disks.
// TestLimitWithSeveralDriverNames proves that a volume of one driver name reduces the limit that
// the driver reports for every other name.
func TestLimitWithSeveralDriverNames(t *testing.T) {
	const name = "ebs.csi.aws.com"
	b := newBench(t, name)
	conn := dial(t, b.path(name+".sock"))
	old, control := csi.NewNodeClient(conn), csi.NewControllerClient(conn)
	all := b.limit(b.NodeClient)
	b.publish(b.volume("pvc-1"), mounted("ext4"))
	for _, name := range []string{"pvc-2", "pvc-3"} {
		v := must(t)(control.CreateVolume(t.Context(), b.request(name, func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = nil }))).(*csi.CreateVolumeResponse).GetVolume()
		must(t)(control.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: string(b.vm.ID), VolumeCapability: mounted("ext4")}))
	}
	if got := b.limit(b.NodeClient); got != all-2 {
		t.Errorf("limit under the own name: got %d, want %d", got, all-2)
	}
	if got := b.limit(old); got != all-1 {
		t.Errorf("limit as %s: got %d, want %d", name, got, all-1)
	}
}

// TestDiskCountsUntilStaged attaches a user's disk to a node. It proves that this disk reduces the
// node's volume limit until the driver stages the disk. A staged disk belongs to a
// PersistentVolume. The scheduler counts this PersistentVolume, so the driver must not also
// subtract the disk from the limit.
func TestDiskCountsUntilStaged(t *testing.T) {
	const name = "ebs.csi.aws.com"
	b := newNodeBench(t, name)
	old := csi.NewNodeClient(dial(t, b.path(name+".sock")))
	d := must(t)(b.cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: "vol-0abc", Zone: "sim-1a", Type: "standard", SizeGiB: 1})).(cloudsim.Disk)
	all := b.limit(b.NodeClient)
	b.publish(string(d.ID), mounted("ext4"))
	want := func(state string, own, legacy int64) {
		t.Helper()
		if n, o := b.limit(b.NodeClient), b.limit(old); n != own || o != legacy {
			t.Errorf("%s: limit of the driver: got %d, want %d; limit under %s: got %d, want %d", state, n, own, name, o, legacy)
		}
	}
	want("attached", all-1, all-1)
	wantCode(t, "stage", b.stage(string(d.ID), mounted("ext4")), codes.OK)
	want("staged", all, all) // the staging path contains no driver name
	wantCode(t, "unstage", b.unstage(string(d.ID)), codes.OK)
	stage := b.path("csi/" + name + "/0/globalmount")
	must(t)(old.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "vol-0abc", StagingTargetPath: stage, VolumeCapability: mounted("ext4")}))
	want("staged under another name", all-1, all)
	must(t)(old.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "vol-0abc", StagingTargetPath: stage}))
}

// TestSingleWriter proves that the driver publishes a single-writer volume at
// only one target path. It publishes a multi-writer volume at several target
// paths on one node.
func TestSingleWriter(t *testing.T) {
	b := newNodeBench(t)
	v, c := b.volume("pvc-1"), mounted("ext4")
	b.publish(v, c)
	wantCode(t, "stage", b.stage(v, c), codes.OK)
	single := mounted("ext4")
	single.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	wantCode(t, "publish at a", b.show(v, "a", single, false), codes.OK)
	wantCode(t, "publish at a again", b.show(v, "a", single, false), codes.OK)
	wantCode(t, "publish at b", b.show(v, "b", single, false), codes.FailedPrecondition)
	wantCode(t, "publish at b for several writers", b.show(v, "b", c, false), codes.OK)
	for _, target := range []string{"a", "b"} {
		wantCode(t, "unpublish", b.hide(v, target), codes.OK)
	}
	wantCode(t, "unstage", b.unstage(v), codes.OK)
}

// TestSecretsAreNotLogged proves that the log of a call contains no secret,
// even after a panic.
func TestSecretsAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	calls := answer(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	req := &csi.CreateVolumeRequest{Name: "pvc-1", Secrets: map[string]string{"password": "hunter2"}}
	for _, handle := range []grpc.UnaryHandler{
		func(context.Context, any) (any, error) { return nil, invalidArgument("parameters", "are bad") },
		func(context.Context, any) (any, error) { panic("boom") },
		func(context.Context, any) (any, error) { return nil, nil },
	} {
		_, _ = calls(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Controller/CreateVolume"}, handle)
	}
	output := log.String()
	if secret, n := strings.Contains(output, "hunter2"), strings.Count(output, "call=CreateVolume"); secret || n < 3 {
		t.Errorf("log: contains the secret %t, has %d calls of CreateVolume; want false and at least 3:\n%s", secret, n, output)
	}
}
