package translate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// For each in-tree plugin that has disk volumes, TestTranslationRoundTrip
// translates a volume to a CSI volume and back. It proves that the result
// belongs to the original plugin.
func TestTranslationRoundTrip(t *testing.T) {
	for plugin, source := range map[string]string{
		"kubernetes.io/cinder":     "cinder: {volumeID: disk-000001, fsType: ext4}",
		"kubernetes.io/aws-ebs":    "awsElasticBlockStore: {volumeID: vol-000001, fsType: ext4}",
		"kubernetes.io/gce-pd":     "gcePersistentDisk: {pdName: disk-000001, fsType: ext4}",
		"kubernetes.io/azure-disk": "azureDisk: {diskName: disk-1, diskURI: /subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/disk-1, kind: Managed, fsType: ext4, readOnly: false}",
	} {
		csiAnswer := translateOne(t, "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: old}\nspec:\n  capacity: {storage: 1Gi}\n  accessModes: [ReadWriteOnce]\n  "+source+"\n")
		pv, ok := csiAnswer.Object.(*corev1.PersistentVolume)
		if !ok || csiAnswer.Plugin != plugin || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != csiAnswer.Driver {
			t.Errorf("%s: got %+v, want a CSI volume of this plugin's driver", plugin, csiAnswer)
			continue
		}
		back := volume("back", pv)
		old, ok := back.Object.(*corev1.PersistentVolume)
		if !ok || old.Spec.CSI != nil || back.Plugin != plugin {
			t.Errorf("%s translated back: got %+v, want an in-tree volume of this plugin", plugin, back)
		}
	}
}

func translateOne(t *testing.T, doc string) Answer {
	t.Helper()
	all, err := Read(strings.NewReader(doc))
	if err != nil || len(all) != 1 {
		t.Fatalf("got %v, %v; want one answer", all, err)
	}
	return all[0]
}

func TestClasses(t *testing.T) {
	a := translateOne(t, "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: old}\nprovisioner: kubernetes.io/cinder\nparameters: {type: ssd, fsType: ext4}\n")
	sc, ok := a.Object.(*storagev1.StorageClass)
	if !ok || sc.Provisioner != "cinder.csi.openstack.org" || sc.Parameters["csi.storage.k8s.io/fstype"] != "ext4" || sc.Parameters["type"] != "ssd" || len(a.Notes) > 0 {
		t.Errorf("StorageClass of cinder: got %+v, want the provisioner cinder.csi.openstack.org, the type ssd, the filesystem ext4 and no notes", a)
	}
	lost := translateOne(t, "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: old}\nprovisioner: kubernetes.io/vsphere-volume\nparameters: {color: red}\n")
	if len(lost.Notes) != 1 || !strings.Contains(lost.Notes[0], "color") {
		t.Errorf("StorageClass with an unknown parameter: got %+v, want one note about color", lost)
	}
}

func TestInline(t *testing.T) {
	a := translateOne(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: []\n  volumes:\n  - {name: tmp, emptyDir: {}}\n  - {name: data, gcePersistentDisk: {pdName: d}}\n")
	pv, ok := a.Object.(*corev1.PersistentVolume)
	if !ok || a.From != "Pod/p volume data" || !strings.HasSuffix(pv.Spec.CSI.VolumeHandle, "/disks/d") || len(a.Notes) != 1 {
		t.Errorf("inline volume of a pod: got %+v, want a PersistentVolume with the handle .../disks/d and one note", a)
	}
}

// TestUntranslatableObjects proves that the answer contains the reason if Read
// cannot translate an object.
func TestUntranslatableObjects(t *testing.T) {
	for doc, want := range map[string]string{
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\nprovisioner: kubernetes.io/rbd\n":                       "no CSI driver replaces kubernetes.io/rbd",
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\nprovisioner: ebs.csi.aws.com\n":                         "is already a CSI driver",
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {nfs: {server: s, path: /}}\n":                               "no CSI driver replaces the plugin",
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {csi: {driver: csi.cloudsim.dev, volumeHandle: disk-1}}\n":   "does not replace an in-tree plugin",
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {csi: {driver: disk.csi.azure.com, volumeHandle: disk-1}}\n": "could not get disk name",
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {awsElasticBlockStore: {volumeID: \"aws://z/disk-1\"}}\n":    "Invalid format",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n":                                                       "defines no volume",
		"kind: Deployment\nmetadata: {name: a}\n": "only StorageClasses",
	} {
		if a := translateOne(t, doc); a.Object != nil || !strings.Contains(a.Why, want) {
			t.Errorf("%s\ngot %+v, want the reason %q", doc, a, want)
		}
	}
	for doc, want := range map[string]string{
		"kind: PersistentVolume\nspec: {color: red}\n": "document 1: PersistentVolume/",
		"# nothing\n---\n}":                            "document 2: ",
		"root:x:0:0:root:/root:/bin/bash\n":            "document 1: not a Kubernetes object",
		"metadata: {name: a}\n":                        "the field kind is missing",
		"# nothing\n":                                  "contains no object",
		"kind: List\nitems: [{kind: Pod}, {kind: Pod, spec: {color: red}}]\n": "document 1: items[1]: Pod/",
	} {
		if all, err := Read(strings.NewReader(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, %v; want the error %q", doc, all, err, want)
		}
	}
}

// TestList proves that Read translates the items of a List, which kubectl
// prints for several objects. It also proves that a translated object contains
// its kind and API version, because kubectl requires these fields.
func TestList(t *testing.T) {
	all, err := Read(strings.NewReader(`
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- apiVersion: v1
  kind: Pod
  metadata: {name: a}
  spec:
    volumes: [{name: data, awsElasticBlockStore: {volumeID: vol-1}}]
    containers: []
`))
	if err != nil || len(all) != 2 || all[0].Object != nil {
		t.Fatalf("got %+v, %v; want two answers", all, err)
	}
	pv, ok := all[1].Object.(*corev1.PersistentVolume)
	if !ok || pv.Kind != "PersistentVolume" || pv.APIVersion != "v1" {
		t.Errorf("got %+v, want a PersistentVolume", all[1].Object)
	}
}
