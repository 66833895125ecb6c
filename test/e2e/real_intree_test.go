package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// legacyZones contains zones with names in the style of other clouds. Kubernetes translates in-tree
// volumes to CSI volumes. For some volume plugins, the translation accepts only zone names in these
// styles.
const legacyZones = `
regions: [{name: sim-1}, {name: us-central1}, {name: us-west-2}]
zones:
- {name: sim-1a, region: sim-1}
- {name: us-central1-a, region: us-central1}
- {name: us-west-2a, region: us-west-2}
`

// inTree contains parts of manifests for the in-tree volume plugin of another cloud. The field
// named parameters contains the parameters of a StorageClass. The field named source contains the
// source of a volume. The field named disk contains a disk name in the style of the other cloud.
// The tests replace %s in this name with "old" or "inline".
type inTree struct{ driver, provisioner, zone, parameters, disk, source string }

var inTreePlugins = []inTree{
	{"cinder.csi.openstack.org", "cinder", "sim-1a", "{type: lvmdriver-1, fsType: ext4}", "cinder-%s", "cinder: {volumeID: %s, fsType: ext4}"},
	{"ebs.csi.aws.com", "aws-ebs", "us-west-2a", "{type: gp3, fsType: ext4}", "vol-%s", "awsElasticBlockStore: {volumeID: 'aws://us-west-2a/%s', fsType: ext4}"},
	{"pd.csi.storage.gke.io", "gce-pd", "us-central1-a", "{type: pd-ssd, fsType: ext4}", "pd-%s", "gcePersistentDisk: {pdName: %s, fsType: ext4}"},
	{"disk.csi.azure.com", "azure-disk", "sim-1a", "{skuname: Premium_LRS, kind: managed, fsType: ext4}", "azure-%s",
		"azureDisk: {diskName: %[1]s, diskURI: /subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/%[1]s, kind: Managed, fsType: ext4, readOnly: false}"},
	{"csi.vsphere.vmware.com", "vsphere-volume", "sim-1a", "{diskformat: thin, fsType: ext4}", "vsphere-%s", "vsphereVolume: {volumePath: '[store] kubevols/%s.vmdk', fsType: ext4}"},
}

// manifest returns a StorageClass of the plugin, an old PersistentVolume, and a claim for each of
// them. It also returns a pod with an inline volume.
func (p inTree) manifest() string {
	source := func(disk string) string { return fmt.Sprintf(p.source, fmt.Sprintf(p.disk, disk)) }
	return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: kubernetes.io/%[1]s
parameters: %[2]s
volumeBindingMode: WaitForFirstConsumer
allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [%[6]s]}]}]
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s-old}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [%[6]s]}]}]}
  %[3]s
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-inline}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {topology.kubernetes.io/zone: %[6]s}
  containers:
  - name: main
    image: %[5]s
    args: [pause]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, %[4]s}]
`, p.provisioner, p.parameters, source("old"), source("inline"), agnhost, p.zone) +
		"---\n" + claim(p.provisioner+"-made", "1Gi", "storageClassName: "+p.provisioner) +
		"---\n" + claim(p.provisioner+"-old", "1Gi", "storageClassName: \"\"\n  volumeName: "+p.provisioner+"-old")
}

// testVolumesInTree proves that manifests for in-tree volume plugins of other clouds work with this
// cloud's disks. Kubernetes translates these manifests for the CSI driver. The test covers a
// StorageClass, an old PersistentVolume, and an inline volume of a pod.
func (l *labRun) testVolumesInTree(t *testing.T) {
	for _, zone := range []string{"us-central1-a", "us-west-2a"} {
		l.cloud("instances", "create", "in-"+zone, "--zone", zone, "--wait")
	}
	var each []step
	for _, p := range inTreePlugins {
		each = append(each, step{p.provisioner, func(l *labRun, t *testing.T) { l.testVolumesOfPlugin(t, p) }})
	}
	l.walk(t, each)
}

func (l *labRun) testVolumesOfPlugin(t *testing.T, p inTree) {
	made, old, inline := p.provisioner+"-made", p.provisioner+"-old", p.provisioner+"-inline"
	for _, disk := range []string{"old", "inline"} {
		l.cloud("disks", "create", fmt.Sprintf(p.disk, disk), "--zone", p.zone, "--size", "1", "--wait")
	}
	l.apply(p.manifest())
	for _, pod := range []string{made, old, inline} {
		l.awaitReady(pod)
		l.writeFile(pod)
		l.readFile(pod)
	}
	pv := l.kubectl("get", "pvc", made, "-o", "jsonpath={.spec.volumeName}")
	field, _, _ := strings.Cut(p.source, ":")
	got := l.kubectl("get", "pv", pv, "-o", `jsonpath={.spec.`+field+`} {.metadata.annotations.pv\.kubernetes\.io/migrated-to}`)
	if !strings.HasPrefix(got, "{") || !strings.HasSuffix(got, " "+p.driver) {
		t.Errorf("volume of the in-tree class: got %q", got)
	}
	l.kubectl("delete", "pod", made, old, inline, "--wait")
	l.kubectl("delete", "pvc", made, old, "--wait")
	l.kubectl("delete", "pv", old, "--wait")
	l.awaitEmpty("all VolumeAttachments are deleted", func() string {
		return l.kubectl("get", "volumeattachments", "-o", "jsonpath={.items[?(@.spec.attacher=='"+p.driver+"')].metadata.name}")
	})
	for _, disk := range []string{"old", "inline"} {
		l.cloud("disks", "delete", fmt.Sprintf(p.disk, disk), "--wait")
	}
}
