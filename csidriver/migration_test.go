package csidriver

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/csidriver/translate"
)

// inTree contains test data for an in-tree plugin: the parameters of a
// StorageClass, and a volume source for a PersistentVolume or a pod. The volume
// source refers to an existing disk.
type inTree struct{ plugin, parameters, disk, volume string }

var inTreePlugins = map[string]inTree{
	"cinder.csi.openstack.org": {"cinder", "{type: ssd, availability: nova, fsType: ext4}", "old-cinder", "cinder: {volumeID: old-cinder, fsType: ext4}"},
	"ebs.csi.aws.com":          {"aws-ebs", "{type: gp3, fsType: ext4}", "vol-0abc", "awsElasticBlockStore: {volumeID: 'aws://sim-1a/vol-0abc', fsType: ext4}"},
	"pd.csi.storage.gke.io":    {"gce-pd", "{type: pd-ssd, replication-type: none, fsType: ext4}", "old-pd", "gcePersistentDisk: {pdName: old-pd, fsType: ext4}"},
	"disk.csi.azure.com": {"azure-disk", "{skuname: Premium_LRS, kind: managed, fsType: xfs}", "old-azure",
		"azureDisk: {diskName: old-azure, diskURI: /subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/old-azure, kind: Managed, fsType: ext4, readOnly: false}"},
	"csi.vsphere.vmware.com": {"vsphere-volume", "{diskformat: thin, datastore: store, hostFailuresToTolerate: '1', forceProvisioning: 'true', iopslimit: '100', fsType: xfs}", "old-vsphere", "vsphereVolume: {volumePath: '[store] kubevols/old-vsphere.vmdk', fsType: ext4}"},
}

// TestMigration translates objects of each in-tree plugin with the CSI
// translation library of Kubernetes, as the provisioner, the attacher and the
// kubelet do. The test proves that the driver serves the translated calls under
// the legacy name and mounts the disks.
func TestMigration(t *testing.T) {
	b := newNodeBench(t, LegacyNames()...)
	for _, name := range LegacyNames() {
		old := inTreePlugins[name]
		t.Run(name, func(t *testing.T) {
			l := &legacyBench{bench: b, name: name, t: t}
			conn := dial(t, b.path(name+".sock"))
			l.control, l.node = csi.NewControllerClient(conn), csi.NewNodeClient(conn)
			must(t)(b.cloud.CreateDisk(t.Context(), cloudsim.CreateDisk{Name: old.disk, Zone: "sim-1a", Type: "balanced", SizeGiB: 1}))

			made := l.provision(old)
			l.use("made", made, "first")
			l.use("made", made, "again")
			l.use("old", l.volume(volumeDoc("{name: old}", "ReadWriteOnce", old.volume)), "first")
			inline := l.translate("apiVersion: v1\nkind: Pod\nmetadata: {name: pod}\nspec: {containers: [{name: c, image: i}], volumes: [{name: data, " + old.volume + "}]}\n")
			l.use("old", inline.(*corev1.PersistentVolume).Spec.CSI, "again") // the disk that the test used before
			_, err := l.control.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: made.VolumeHandle})
			wantCode(t, "delete", err, codes.OK)
			_, err = l.control.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: made.VolumeHandle})
			wantCode(t, "get the deleted volume", err, codes.NotFound)
		})
	}
}

// legacyBench calls the driver under a legacy name.
type legacyBench struct {
	*bench
	t       *testing.T
	name    string
	control csi.ControllerClient
	node    csi.NodeClient
}

func volumeDoc(meta, mode, source string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: %s\nspec:\n  capacity: {storage: 1Gi}\n  accessModes: [%s]\n  %s\n", meta, mode, source)
}

func (l *legacyBench) translate(doc string) any {
	l.t.Helper()
	all, err := translate.Read(strings.NewReader(doc))
	if err != nil || len(all) != 1 || all[0].Object == nil || all[0].Driver != l.name {
		l.t.Fatalf("%s\ngot the translation %+v, error %v; want one object for the driver %s", doc, all, err, l.name)
	}
	return all[0].Object
}

// volume returns the CSI volume that the attacher and the kubelet get for an
// in-tree volume.
func (l *legacyBench) volume(doc string) *corev1.CSIPersistentVolumeSource {
	l.t.Helper()
	return l.translate(doc).(*corev1.PersistentVolume).Spec.CSI
}

// provision creates a volume for an in-tree StorageClass, as
// external-provisioner does. It translates the class, and translates the new
// PersistentVolume back into an in-tree volume. It returns the CSI volume that
// the attacher and the kubelet get for this in-tree volume.
func (l *legacyBench) provision(old inTree) *corev1.CSIPersistentVolumeSource {
	l.t.Helper()
	class := l.translate("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: old}\nprovisioner: kubernetes.io/" + old.plugin + "\nparameters: " + old.parameters + "\n").(*storagev1.StorageClass)
	fsType := "ext4"
	req := l.request("pvc-"+old.plugin, func(r *csi.CreateVolumeRequest) {
		r.CapacityRange = &csi.CapacityRange{RequiredBytes: 4 * gib}
		r.AccessibilityRequirements.Requisite = []*csi.Topology{{Segments: map[string]string{legacyDrivers[l.name].zoneKey: "sim-1a"}}}
		r.Parameters = class.Parameters
		for k, v := range class.Parameters {
			if k == "csi.storage.k8s.io/fstype" || strings.EqualFold(k, "fsType") {
				fsType = v
			}
		}
		r.VolumeCapabilities = []*csi.VolumeCapability{mounted(fsType)}
		delete(r.Parameters, "csi.storage.k8s.io/fstype") // fsType stays in the parameters
	})
	v := must(l.t)(l.control.CreateVolume(l.t.Context(), req)).(*csi.CreateVolumeResponse).GetVolume()
	source, err := json.Marshal(corev1.CSIPersistentVolumeSource{Driver: l.name, VolumeHandle: v.GetVolumeId(), FSType: fsType, VolumeAttributes: v.GetVolumeContext()})
	if err != nil {
		l.t.Fatal(err)
	}
	back, err := translate.Read(strings.NewReader(volumeDoc("{name: made}", "ReadWriteOnce", "csi: "+string(source))))
	if err != nil || back[0].Object == nil || back[0].Object.(*corev1.PersistentVolume).Spec.CSI != nil {
		l.t.Fatalf("translate %s back: got %+v, %v", source, back, err)
	}
	raw, err := json.Marshal(back[0].Object)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.volume(string(raw))
}

// use attaches, stages and publishes a volume, and then undoes these steps. If round is "first",
// the method writes a file to the volume. In each round, the method checks the content of the file.
func (l *legacyBench) use(disk string, v *corev1.CSIPersistentVolumeSource, round string) {
	l.t.Helper()
	ctx, c, id := l.t.Context(), mounted(v.FSType), v.VolumeHandle
	vm := must(l.t)(l.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})).(*csi.NodeGetInfoResponse).GetNodeId()
	stage, pod := l.path("stage-"+l.name), l.path("pod-"+l.name)
	must(l.t)(l.control.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: vm, VolumeCapability: c, VolumeContext: v.VolumeAttributes}))
	must(l.t)(l.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: stage, VolumeCapability: c, VolumeContext: v.VolumeAttributes}))
	must(l.t)(l.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: id, StagingTargetPath: stage, TargetPath: pod, VolumeCapability: c, VolumeContext: v.VolumeAttributes}))
	if round == "first" {
		if err := os.WriteFile(pod+"/whose", []byte(disk+l.name), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(pod + "/whose"); string(got) != disk+l.name {
		l.t.Errorf("%s, %s: got %q, %v; want %q", id, round, got, err, disk+l.name)
	}
	must(l.t)(l.node.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: pod}))
	must(l.t)(l.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: pod}))
	must(l.t)(l.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: stage}))
	must(l.t)(l.control.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: vm}))
}
