package interop

import (
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func ownDisk(id string) cloudsim.DiskID {
	return dialect.ID[cloudsim.DiskID]("disk", dialect.Number(id))
}

func newVolume(size int32, kind types.VolumeType) *ec2.CreateVolumeInput {
	return &ec2.CreateVolumeInput{AvailabilityZone: sdk.String("sim-1a"), Size: &size, VolumeType: kind}
}

func (w *world) volume(t *testing.T, id string) types.Volume {
	t.Helper()
	return must(w.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{id}}))(t).Volumes[0]
}

// testVolumes makes the calls about volumes and snapshots that the EBS CSI driver makes.
func testVolumes(t *testing.T, w *world) {
	ctx := t.Context()
	node := *must(w.RunInstances(ctx, runRequest(1, 1)))(t).Instances[0].InstanceId
	other := *must(w.RunInstances(ctx, runRequest(1, 1)))(t).Instances[0].InstanceId

	in := newVolume(10, types.VolumeTypeGp3)
	in.ClientToken, in.Encrypted, in.MultiAttachEnabled = sdk.String("pvc-1"), sdk.Bool(false), sdk.Bool(false)
	in.Iops, in.Throughput = sdk.Int32(4000), sdk.Int32(200)
	in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: []types.Tag{{Key: sdk.String("CSIVolumeName"), Value: sdk.String("pvc-1")}}}}
	made := must(w.CreateVolume(ctx, in))(t)
	id := *made.VolumeId
	if *made.Size != 10 || made.VolumeType != types.VolumeTypeGp3 || *made.Iops != 4000 || *made.Throughput != 200 || *made.AvailabilityZone != "sim-1a" || made.State != types.VolumeStateAvailable || len(made.Tags) != 1 {
		t.Errorf("new volume: got %+v", made)
	}
	if d := must(w.cloud.GetDisk(ctx, ownDisk(id)))(t); d.Type != "balanced" {
		t.Errorf("disk of a gp3 volume: got type %s, want balanced", d.Type)
	}
	if again := must(w.CreateVolume(ctx, in))(t); *again.VolumeId != id {
		t.Errorf("repeated request: got volume %s, want %s", *again.VolumeId, id)
	}
	in.Size = sdk.Int32(20)
	_, err := w.CreateVolume(ctx, in)
	mustFail(t, err, "IdempotentParameterMismatch")
	if got := must(w.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []types.Filter{{Name: sdk.String("tag:CSIVolumeName"), Values: []string{"pvc-1"}}, {Name: sdk.String("volume-type"), Values: []string{"gp3"}}}}))(t).Volumes; len(got) != 1 || *got[0].VolumeId != id {
		t.Errorf("volumes with the tag: got %+v", got)
	}
	if s := must(w.DescribeVolumeStatus(ctx, &ec2.DescribeVolumeStatusInput{VolumeIds: []string{id}}))(t).VolumeStatuses; len(s) != 1 || s[0].VolumeStatus.Status != types.VolumeStatusInfoStatusOk {
		t.Errorf("status of the volume: got %+v", s)
	}

	attach := &ec2.AttachVolumeInput{VolumeId: &id, InstanceId: &node, Device: sdk.String("/dev/xvdaa")}
	a := must(w.AttachVolume(ctx, attach))(t)
	if *a.VolumeId != id || *a.InstanceId != node || *a.Device != "/dev/xvdaa" || a.State != types.VolumeAttachmentStateAttached {
		t.Errorf("attachment: got %+v", a)
	}
	_, err = w.AttachVolume(ctx, attach)
	mustFail(t, err, "VolumeInUse")
	_, err = w.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
	mustFail(t, err, "VolumeInUse")
	second := *must(w.CreateVolume(ctx, newVolume(10, types.VolumeTypeGp2)))(t).VolumeId
	_, err = w.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &second, InstanceId: &node, Device: sdk.String("/dev/xvdaa")})
	mustFail(t, err, "InvalidParameterValue") // the device name is in use
	if v := w.volume(t, id); v.State != types.VolumeStateInUse || len(v.Attachments) != 1 || *v.Attachments[0].Device != "/dev/xvdaa" || *v.Attachments[0].InstanceId != node || len(v.Tags) != 1 {
		t.Errorf("attached volume: got %+v", v)
	}
	if b := w.shownInstance(t, node).BlockDeviceMappings; len(b) != 1 || *b[0].DeviceName != "/dev/xvdaa" || *b[0].Ebs.VolumeId != id || b[0].Ebs.Status != types.AttachmentStatusAttached {
		t.Errorf("block devices of the instance: got %+v", b)
	}
	if got := w.shownInstance(t, other).BlockDeviceMappings; len(got) != 0 {
		t.Errorf("block devices of another instance: got %+v, want none", got)
	}

	// An attached volume grows and gets another type in one request.
	_, err = w.DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{id}})
	mustFail(t, err, "InvalidVolumeModification.NotFound")
	m := must(w.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: &id, Size: sdk.Int32(20), VolumeType: types.VolumeTypeIo2, Iops: sdk.Int32(8000)}))(t).VolumeModification
	if *m.OriginalSize != 10 || m.OriginalVolumeType != types.VolumeTypeGp3 || *m.OriginalIops != 4000 || *m.TargetSize != 20 || m.TargetVolumeType != types.VolumeTypeIo2 || *m.TargetIops != 8000 || m.ModificationState != types.VolumeModificationStateCompleted {
		t.Errorf("modification: got %+v", m)
	}
	all := must(w.DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{}))(t).VolumesModifications
	if len(all) != 1 || *all[0].VolumeId != id || *all[0].TargetSize != 20 || *all[0].Progress != 100 || all[0].StartTime.IsZero() {
		t.Errorf("modifications: got %+v", all)
	}
	if v := w.volume(t, id); *v.Size != 20 || v.VolumeType != types.VolumeTypeIo2 || *v.Iops != 8000 || len(v.Tags) != 1 || *v.Attachments[0].Device != "/dev/xvdaa" {
		t.Errorf("modified volume: got %+v", v)
	}
	_, err = w.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: &id, Size: sdk.Int32(10)})
	mustFail(t, err, "InvalidParameterValue")

	// A volume from a snapshot has the size of the snapshot.
	s := must(w.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: &id, Description: sdk.String("before the upgrade"), TagSpecifications: []types.TagSpecification{
		{ResourceType: types.ResourceTypeSnapshot, Tags: []types.Tag{{Key: sdk.String("CSIVolumeSnapshotName"), Value: sdk.String("snapshot-1")}}},
	}}))(t)
	if *s.VolumeId != id || *s.VolumeSize != 20 || s.State != types.SnapshotStateCompleted || *s.Progress != "100%" || *s.OwnerId != "000000000001" || *s.Description != "before the upgrade" {
		t.Errorf("new snapshot: got %+v", s)
	}
	found := must(w.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}, Filters: []types.Filter{
		{Name: sdk.String("tag:CSIVolumeSnapshotName"), Values: []string{"snapshot-1"}}, {Name: sdk.String("volume-id"), Values: []string{id}}, {Name: sdk.String("status"), Values: []string{"completed"}},
	}}))(t).Snapshots
	if len(found) != 1 || *found[0].SnapshotId != *s.SnapshotId || len(found[0].Tags) != 1 || found[0].StartTime.IsZero() {
		t.Errorf("snapshots: got %+v", found)
	}
	if none := must(w.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{OwnerIds: []string{"amazon"}}))(t).Snapshots; len(none) != 0 {
		t.Errorf("snapshots of another owner: got %+v, want none", none)
	}
	_, err = w.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*s.SnapshotId}, Tags: []types.Tag{{Key: sdk.String("a"), Value: sdk.String("b")}}})
	mustFail(t, err, "UnsupportedOperation")
	copied := must(w.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: sdk.String("sim-1b"), SnapshotId: s.SnapshotId, VolumeType: types.VolumeTypeGp3}))(t)
	if *copied.Size != 20 || *copied.SnapshotId != *s.SnapshotId || *copied.AvailabilityZone != "sim-1b" {
		t.Errorf("volume from a snapshot: got %+v", copied)
	}
	_, err = w.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: copied.VolumeId, InstanceId: &node, Device: sdk.String("/dev/xvdab")})
	mustFail(t, err, "InvalidVolume.ZoneMismatch")
	must(w.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: s.SnapshotId}))(t)
	_, err = w.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: s.SnapshotId})
	mustFail(t, err, "InvalidSnapshot.NotFound")

	// The dialect refuses to detach a volume from an instance to which the volume is not attached.
	// It also refuses a forced detachment while the instance runs.
	_, err = w.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &id, InstanceId: &other})
	mustFail(t, err, "InvalidAttachment.NotFound")
	_, err = w.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &id, Force: sdk.Bool(true)})
	mustFail(t, err, "IncorrectState")
	must(w.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{node}}))(t)
	d := must(w.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &id, Force: sdk.Bool(true)}))(t)
	if d.State != types.VolumeAttachmentStateDetached || *d.Device != "/dev/xvdaa" || *d.InstanceId != node {
		t.Errorf("detached volume: got %+v", d)
	}
	_, err = w.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &id})
	mustFail(t, err, "IncorrectState")

	// The labels of a disk contain only the device names of its present attachments, because the
	// number of labels is limited.
	must(w.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &id, InstanceId: &other, Device: sdk.String("/dev/xvdab")}))(t)
	labels := must(w.cloud.GetDisk(ctx, ownDisk(id)))(t).Labels
	device := dialect.LabelPrefix + "device."
	if labels[device+string(ownInstance(other))] != "/dev/xvdab" || labels[device+string(ownInstance(node))] != "" {
		t.Errorf("device labels of a volume that moved to another instance: got %v, want only /dev/xvdab for the new instance", labels)
	}
	must(w.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &id}))(t)

	// An io2 volume can be attached to two instances at the same time, with different device names.
	shared := newVolume(10, types.VolumeTypeIo2)
	shared.Iops, shared.MultiAttachEnabled = sdk.Int32(2000), sdk.Bool(true)
	both := *must(w.CreateVolume(ctx, shared))(t).VolumeId
	for instance, device := range map[string]string{node: "/dev/xvdba", other: "/dev/xvdbb"} {
		must(w.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &both, InstanceId: &instance, Device: &device}))(t)
	}
	_, err = w.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &both})
	mustFail(t, err, "MissingParameter")
	for instance, device := range map[string]string{node: "/dev/xvdba", other: "/dev/xvdbb"} {
		if d := must(w.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &both, InstanceId: &instance, Device: &device}))(t); *d.Device != device {
			t.Errorf("detached volume: got %+v, want the device %s", d, device)
		}
	}
	for _, v := range []string{id, second, both, *copied.VolumeId} {
		must(w.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &v}))(t)
	}
	_, err = w.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
	mustFail(t, err, "InvalidVolume.NotFound")
	must(w.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{node, other}}))(t)
}

// TestVolumeStates proves that a volume has EC2's states while an operation runs, and that the
// SDK's waiters wait until the operation ends.
func TestVolumeStates(t *testing.T) {
	w, ctx := start(t, cloudtest.WithProfile(engine.Profile{Disk: time.Second})), t.Context()
	node := *must(w.RunInstances(ctx, runRequest(1, 1)))(t).Instances[0].InstanceId
	made := must(w.CreateVolume(ctx, newVolume(10, types.VolumeTypeGp3)))(t)
	if made.State != types.VolumeStateCreating {
		t.Errorf("new volume: got state %s", made.State)
	}
	attach := &ec2.AttachVolumeInput{VolumeId: made.VolumeId, InstanceId: &node, Device: sdk.String("/dev/xvdaa")}
	_, err := w.AttachVolume(ctx, attach)
	mustFail(t, err, "IncorrectState")
	one := &ec2.DescribeVolumesInput{VolumeIds: []string{*made.VolumeId}}
	wait := func() {
		t.Helper()
		if err := ec2.NewVolumeAvailableWaiter(w, func(o *ec2.VolumeAvailableWaiterOptions) {
			o.MinDelay = 50 * time.Millisecond
			o.MaxDelay = time.Second
		}).Wait(ctx, one, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	wait()
	if a := must(w.AttachVolume(ctx, attach))(t); a.State != types.VolumeAttachmentStateAttaching {
		t.Errorf("attachment: got %+v", a)
	}
	if err := ec2.NewVolumeInUseWaiter(w, func(o *ec2.VolumeInUseWaiterOptions) { o.MinDelay = 50 * time.Millisecond; o.MaxDelay = time.Second }).Wait(ctx, one, time.Minute); err != nil {
		t.Fatal(err)
	}
	must(w.cloud.WaitOperation(ctx, must(w.cloud.GetDisk(ctx, ownDisk(*made.VolumeId)))(t).Operation))(t)

	// A change of the size and the type needs two operations of the cloud. The first operation ends
	// before the dialect answers.
	m := must(w.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: made.VolumeId, Size: sdk.Int32(20), VolumeType: types.VolumeTypeIo2}))(t).VolumeModification
	if m.ModificationState != types.VolumeModificationStateModifying || *m.TargetSize != 20 || m.TargetVolumeType != types.VolumeTypeIo2 {
		t.Errorf("modification: got %+v", m)
	}
	_, err = w.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: made.VolumeId, Size: sdk.Int32(30)})
	mustFail(t, err, "IncorrectModificationState")
	must(w.cloud.WaitOperation(ctx, must(w.cloud.GetDisk(ctx, ownDisk(*made.VolumeId)))(t).Operation))(t)
	if all := must(w.DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{VolumeIds: one.VolumeIds}))(t).VolumesModifications; all[0].ModificationState != types.VolumeModificationStateCompleted {
		t.Errorf("modification after the operation: got %+v, want completed", all[0])
	}
	if d := must(w.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: made.VolumeId}))(t); d.State != types.VolumeAttachmentStateDetaching {
		t.Errorf("detachment: got %+v", d)
	}
	wait()
	s := must(w.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: made.VolumeId}))(t)
	if s.State != types.SnapshotStatePending {
		t.Errorf("new snapshot: got %+v", s)
	}
	from := newVolume(20, types.VolumeTypeGp3)
	from.SnapshotId = s.SnapshotId
	_, err = w.CreateVolume(ctx, from)
	mustFail(t, err, "IncorrectState")
	if err := ec2.NewSnapshotCompletedWaiter(w, func(o *ec2.SnapshotCompletedWaiterOptions) {
		o.MinDelay = 50 * time.Millisecond
		o.MaxDelay = time.Second
	}).Wait(ctx, &ec2.DescribeSnapshotsInput{SnapshotIds: []string{*s.SnapshotId}}, time.Minute); err != nil {
		t.Fatal(err)
	}
	must(w.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: made.VolumeId}))(t)
	if err := ec2.NewVolumeDeletedWaiter(w, func(o *ec2.VolumeDeletedWaiterOptions) { o.MinDelay = 50 * time.Millisecond; o.MaxDelay = time.Second }).Wait(ctx, one, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// TestRetriedVolume proves that the SDK creates only one volume if the reply is lost and the SDK
// repeats the request.
func TestRetriedVolume(t *testing.T) {
	w, ctx := start(t), t.Context()
	must(w.cloud.CreateFault(ctx, lostReply("disks.create")))(t)
	made := must(w.CreateVolume(ctx, newVolume(10, types.VolumeTypeGp3)))(t)
	if all := must(w.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{}))(t).Volumes; len(all) != 1 || *all[0].VolumeId != *made.VolumeId {
		t.Errorf("volumes: got %+v, want only %s", all, *made.VolumeId)
	}
}
