package csidriver

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestLegacyNames creates, publishes, unpublishes and deletes a volume under the name of each
// legacy driver. It proves that the driver accepts the parameters of the legacy driver. It also
// proves that the driver accepts and returns ids in the format of the legacy driver.
func TestLegacyNames(t *testing.T) {
	b := newBench(t, LegacyNames()...)
	for name, c := range map[string]struct {
		parameters map[string]string
		handle     string
		node       string
	}{
		"cinder.csi.openstack.org": {map[string]string{"type": "ssd", "availability": "nova"}, "disk-", "i-"},
		"ebs.csi.aws.com":          {map[string]string{"type": "gp2", "encrypted": "true"}, "vol-", "i-"},
		"pd.csi.storage.gke.io":    {map[string]string{"type": "pd-ssd", "replication-type": "none"}, "projects/cloudsim/zones/UNSPECIFIED/disks/disk-", "projects/cloudsim/zones/UNSPECIFIED/instances/i-"},
		"disk.csi.azure.com":       {map[string]string{"skuname": "Premium_LRS", "kind": "managed"}, "/subscriptions/cloudsim/resourceGroups/cloudsim/providers/Microsoft.Compute/disks/disk-", "i-"},
		"csi.vsphere.vmware.com":   {map[string]string{"csimigration": "true"}, "[cloudsim] kubevols/disk-", "i-"},
	} {
		t.Run(name, func(t *testing.T) {
			key := legacyDrivers[name].zoneKey
			conn := dial(t, b.path(name+".sock"))
			control, node := csi.NewControllerClient(conn), csi.NewNodeClient(conn)
			plugin := must(t)(csi.NewIdentityClient(conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})).(*csi.GetPluginInfoResponse)
			info := must(t)(node.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})).(*csi.NodeGetInfoResponse)
			if plugin.GetName() != name || !strings.HasPrefix(info.GetNodeId(), c.node) || info.GetAccessibleTopology().GetSegments()[key] != "sim-1a" {
				t.Errorf("got the driver %v on the node %v, want the driver %s, a node id that begins with %s, and the zone sim-1a", plugin, info, name, c.node)
			}
			made := must(t)(control.CreateVolume(t.Context(), b.request("pvc-"+strings.ReplaceAll(name, ".", "-"), func(r *csi.CreateVolumeRequest) {
				r.Parameters, r.CapacityRange = c.parameters, &csi.CapacityRange{RequiredBytes: 4 * gib}
				r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{key: "sim-1a"}}}}
			}))).(*csi.CreateVolumeResponse).GetVolume()
			if !strings.HasPrefix(made.GetVolumeId(), c.handle) || made.GetAccessibleTopology()[0].GetSegments()[key] != "sim-1a" {
				t.Errorf("CreateVolume returned %v", made)
			}
			must(t)(control.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: made.GetVolumeId(), NodeId: info.GetNodeId(), VolumeCapability: mounted("ext4")}))
			l := must(t)(control.ListVolumes(t.Context(), &csi.ListVolumesRequest{})).(*csi.ListVolumesResponse)
			if e := l.GetEntries()[0]; e.GetVolume().GetVolumeId() != made.GetVolumeId() || e.GetStatus().GetPublishedNodeIds()[0] != info.GetNodeId() {
				t.Errorf("ListVolumes returned %v", l)
			}
			must(t)(control.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: made.GetVolumeId(), NodeId: info.GetNodeId()}))
			must(t)(control.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: made.GetVolumeId()}))
		})
	}
}

// TestLegacyHandles proves that the driver finds the disk by the name in the
// handle of an old PersistentVolume, for each handle format. For an unknown
// handle, ControllerGetVolume returns NotFound, and DeleteVolume succeeds.
func TestLegacyHandles(t *testing.T) {
	b := newBench(t, LegacyNames()...)
	old := must(t)(b.cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: "vol-0abc", Zone: "sim-1a", Type: "standard", SizeGiB: 1})).(cloudsim.Disk)
	for name, handle := range map[string]string{
		"cinder.csi.openstack.org": "vol-0abc",
		"ebs.csi.aws.com":          "vol-0abc",
		"pd.csi.storage.gke.io":    "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/vol-0abc",
		"disk.csi.azure.com":       "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/vol-0abc",
		"csi.vsphere.vmware.com":   "[store] kubevols/vol-0abc.vmdk",
	} {
		conn := dial(t, b.path(name+".sock"))
		control, node := csi.NewControllerClient(conn), csi.NewNodeClient(conn)
		got := must(t)(control.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: handle})).(*csi.ControllerGetVolumeResponse)
		if got.GetVolume().GetVolumeId() != handle {
			t.Errorf("%s: handle of %s: got %s, want %s", name, old.ID, got.GetVolume().GetVolumeId(), handle)
		}
		_, err := control.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: handle + "0"})
		wantCode(t, name+": get an unknown volume", err, codes.NotFound)
		_, err = control.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "gone"})
		wantCode(t, name+": delete an unknown volume", err, codes.OK)
		_, err = node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: b.path("nothing")})
		wantCode(t, name+": unpublish an unpublished volume", err, codes.OK)
		_, err = node.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: handle, StagingTargetPath: b.path("stage"), VolumeCapability: mounted("ext4")})
		wantCode(t, name+": stage a volume that is not attached", err, codes.FailedPrecondition)
	}
	if _, err := os.Stat(b.path("stage")); !os.IsNotExist(err) {
		t.Errorf("the staging folder exists: %v", err)
	}
}

// TestLegacyUnstage proves that unstaging uses the mounts of the machine and not
// the handle. Unstaging succeeds even if the cloud is down or has deleted the
// disk. It also succeeds if another disk has the handle as its name. If the path
// has a foreign mount, unstaging returns an error and does not remove the mount.
func TestLegacyUnstage(t *testing.T) {
	const name = "ebs.csi.aws.com"
	b := newNodeBench(t, name)
	conn := dial(t, b.path(name+".sock"))
	control, node := csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	unstage := func(handle, stage string) error {
		_, err := node.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: b.path(stage)})
		return err
	}
	begin := func(handle, stage string, c *csi.VolumeCapability) {
		t.Helper()
		must(t)(control.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: string(b.vm.ID), VolumeCapability: c}))
		must(t)(node.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: handle, StagingTargetPath: b.path(stage), VolumeCapability: c}))
		must(t)(node.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: handle, StagingTargetPath: b.path(stage), TargetPath: b.path(stage + "-pod"), VolumeCapability: c}))
	}
	end := func(handle, stage string) {
		t.Helper()
		for range 2 {
			_, err := node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: b.path(stage + "-pod")})
			wantCode(t, "unpublish "+handle, err, codes.OK)
		}
		for range 2 {
			wantCode(t, "unstage "+handle, unstage(handle, stage), codes.OK)
		}
		if left := b.loopFiles(); len(left) > 0 {
			t.Errorf("%s: loop devices stay: %v", handle, left)
		}
	}
	disk := func(name string) cloudsim.Disk {
		t.Helper()
		return must(t)(b.cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: name, Zone: "sim-1a", Type: "balanced", SizeGiB: 1})).(cloudsim.Disk)
	}

	made, err := control.CreateVolume(t.Context(), b.request("pvc-1", func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = nil }))
	if err != nil {
		t.Fatal(err)
	}
	handle := made.GetVolume().GetVolumeId()
	begin(handle, "down", mounted("ext4"))
	undo := b.injectFault("*", cloudsim.FaultEffect{Type: cloudsim.FaultDrop}, 0)
	end(handle, "down")
	undo()

	begin(handle, "named", raw())
	disk(handle)
	end(handle, "named")

	old := disk("old")
	begin("old", "gone", mounted("ext4"))
	must(t)(b.cloud.DetachDisk(t.Context(), old.ID, cloudsim.DetachDisk{Instance: b.vm.ID}))
	must(t)(b.cloud.DeleteDisk(t.Context(), old.ID))
	end("old", "gone")

	if err := os.Mkdir(b.path("other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("other", b.path("other"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unstage a foreign mount", unstage("vol-old", "other"), codes.FailedPrecondition)
	if err := unix.Unmount(b.path("other"), 0); err != nil {
		t.Fatal(err)
	}
}

// TestLegacyUnstageDuringStaging makes an unstaging call while a staging call at the same path
// runs. The handle contains the name of the disk instead of its id. The unstaging call returns
// ABORTED, and a repeated call unstages the volume.
func TestLegacyUnstageDuringStaging(t *testing.T) {
	const name = "ebs.csi.aws.com"
	b := newNodeBench(t, name)
	node := csi.NewNodeClient(dial(t, b.path(name+".sock")))
	d := must(t)(b.cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: "old", Zone: "sim-1a", Type: "balanced", SizeGiB: 1})).(cloudsim.Disk)
	b.publish(string(d.ID), mounted("ext4"))
	slow := must(t)(b.cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "slow", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "disks.get"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultLatency, LatencyMillis: 500},
	}})).(cloudsim.Fault)
	done := make(chan error, 1)
	go func() {
		_, err := node.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "old", StagingTargetPath: b.path("stage"), VolumeCapability: mounted("ext4")})
		done <- err
	}()
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		f, err := b.cloud.GetFault(t.Context(), slow.ID)
		if err != nil {
			t.Fatal(err)
		}
		begun = f.Hits > 0
	}
	unstage := func() error {
		_, err := node.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "old", StagingTargetPath: b.path("stage")})
		return err
	}
	wantCode(t, "unstage during the staging call", unstage(), codes.Aborted)
	wantCode(t, "stage", <-done, codes.OK)
	wantCode(t, "unstage", unstage(), codes.OK)
}

// TestLegacyUnknownParameters proves that the driver refuses a disk type or replication type that
// the legacy driver does not have. The error contains the refused value.
func TestLegacyUnknownParameters(t *testing.T) {
	for driver, parameters := range map[string]map[string]string{
		"ebs.csi.aws.com":       {"type": "io3"},
		"pd.csi.storage.gke.io": {"replication-type": "io3"},
	} {
		b := newBench(t, driver)
		_, err := csi.NewControllerClient(dial(t, b.path(driver+".sock"))).CreateVolume(t.Context(), b.request("pvc-1", func(r *csi.CreateVolumeRequest) {
			r.Parameters, r.AccessibilityRequirements = parameters, nil
		}))
		wantCode(t, driver+": unknown value io3", err, codes.InvalidArgument)
		if err == nil || !strings.Contains(err.Error(), "io3") {
			t.Errorf("%s: got the error %v, want one that contains io3", driver, err)
		}
	}
}

// TestLegacyFilesystem proves that a volume gets the filesystem type in the parameter FSType of an
// old StorageClass. For Azure disks, csi-translation-lib does not translate this parameter. If the
// volume capability contains another filesystem type, the driver refuses the request.
func TestLegacyFilesystem(t *testing.T) {
	const name = "disk.csi.azure.com"
	b := newBench(t, name)
	control := csi.NewControllerClient(dial(t, b.path(name+".sock")))
	for fsType, want := range map[string]codes.Code{"": codes.OK, "xfs": codes.OK, "ext4": codes.InvalidArgument} {
		made, err := control.CreateVolume(t.Context(), b.request("pvc-of-"+fsType+"0", func(r *csi.CreateVolumeRequest) {
			r.Parameters, r.AccessibilityRequirements = map[string]string{"FSType": "xfs"}, nil
			r.VolumeCapabilities = []*csi.VolumeCapability{mounted(fsType)}
		}))
		wantCode(t, "requested filesystem "+fsType, err, want)
		if err != nil {
			continue
		}
		disk, err := legacyDrivers[name].disk(t.Context(), b.cloud, made.GetVolume().GetVolumeId())
		if err != nil {
			t.Fatal(err)
		}
		if d := must(t)(b.cloud.GetDisk(t.Context(), cloudsim.DiskID(disk))).(cloudsim.Disk); d.Labels[contentLabel] != "xfs" {
			t.Errorf("requested filesystem %q: got the label %s, want xfs", fsType, d.Labels[contentLabel])
		}
	}
	must(t)(control.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"fsType": "xfs"}}))
}

// TestLegacyHandleOfAnotherName proves that the driver does not confuse a
// volume with another disk that has the volume's handle as its name.
func TestLegacyHandleOfAnotherName(t *testing.T) {
	for name, want := range map[string]codes.Code{"cinder.csi.openstack.org": codes.OK, "ebs.csi.aws.com": codes.FailedPrecondition} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, name)
			control := csi.NewControllerClient(dial(t, b.path(name+".sock")))
			made, err := control.CreateVolume(t.Context(), b.request("pvc-1", func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = nil }))
			if err != nil {
				t.Fatal(err)
			}
			handle := made.GetVolume().GetVolumeId()
			other, err := b.cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: handle, SizeGiB: 5, Zone: "sim-1a", Type: "balanced"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = control.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
			wantCode(t, "delete "+handle, err, want)
			if _, err := b.cloud.GetDisk(t.Context(), other.ID); err != nil {
				t.Errorf("other disk, whose name is the handle, after DeleteVolume: got error %v, want none", err)
			}
		})
	}
}
