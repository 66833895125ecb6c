package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// manifestObjects returns the objects of a manifest as JSON. The key of each object has the form
// KIND/NAME.
func manifestObjects(t *testing.T, path string) map[string][]byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for d := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))); ; {
		doc, err := d.Read()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		object, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := json.Unmarshal(object, &head); err != nil {
			t.Fatal(err)
		}
		all[head.Kind+"/"+head.Metadata.Name] = object
	}
}

// decodeStrict decodes objects[key]. It fails the test if the object has an unknown field.
func decodeStrict[T any](t *testing.T, objects map[string][]byte, key string) (v T) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(objects[key]))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return v
}

// TestShippedVolumes proves that the manifests in deploy/csi contain the same RBAC rules and the
// same CSIDriver as the lab's manifest volumes.yaml. It also proves two facts about each pod. The
// pod defines all volumes that its containers mount. If a container shares a mount with the node,
// the container mounts no other volume below that mount.
func TestShippedVolumes(t *testing.T) {
	const dir = "../../deploy/csi/"
	lab, rules, driver := manifestObjects(t, "../../lab/volumes.yaml"), manifestObjects(t, dir+"rbac.yaml"), manifestObjects(t, dir+"driver.yaml")
	const role = "ClusterRole/cloudsim:csi-sidecars"
	if d := cmp.Diff(decodeStrict[rbacv1.ClusterRole](t, lab, role).Rules, decodeStrict[rbacv1.ClusterRole](t, rules, role).Rules); d != "" {
		t.Errorf("the shipped rules differ from the lab's rules (-lab +shipped):\n%s", d)
	}
	const name = "CSIDriver/csi.cloudsim.dev"
	if d := cmp.Diff(decodeStrict[storagev1.CSIDriver](t, lab, name).Spec, decodeStrict[storagev1.CSIDriver](t, driver, name).Spec); d != "" {
		t.Errorf("the shipped driver differs from the lab's driver (-lab +shipped):\n%s", d)
	}
	decodeStrict[storagev1.StorageClass](t, driver, "StorageClass/balanced")
	controller := decodeStrict[appsv1.Deployment](t, manifestObjects(t, dir+"controller.yaml"), "Deployment/csi-controller").Spec.Template.Spec
	node := decodeStrict[appsv1.DaemonSet](t, manifestObjects(t, dir+"node.yaml"), "DaemonSet/csi-node").Spec.Template.Spec
	for _, pod := range []corev1.PodSpec{controller, node} {
		known := map[string]bool{}
		for _, v := range pod.Volumes {
			known[v.Name] = true
		}
		for _, c := range pod.Containers {
			for _, m := range c.VolumeMounts {
				if !known[m.Name] {
					t.Errorf("container %s mounts %s, but the pod has no such volume", c.Name, m.Name)
				}
				if in := sharedMount(c, m); in != "" {
					t.Errorf("container %s mounts %s in %s, a mount that the container shares with the node. The mount stays on the node when the container ends", c.Name, m.MountPath, in)
				}
			}
		}
	}
}

// TestShippedSocket checks the folder in which the driver creates its socket. It proves that
// --kubelet-socket-dir is the path of this folder on the node.
func TestShippedSocket(t *testing.T) {
	pod := decodeStrict[appsv1.DaemonSet](t, manifestObjects(t, "../../deploy/csi/node.yaml"), "DaemonSet/csi-node").Spec.Template.Spec
	flags := map[string]string{}
	for _, a := range pod.Containers[0].Args {
		name, value, _ := strings.Cut(a, "=")
		flags[name] = value
	}
	onNode := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			onNode[v.Name] = v.HostPath.Path
		}
	}
	dir := ""
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.MountPath == filepath.Dir(strings.TrimPrefix(flags["--endpoint"], "unix://")) {
			dir = onNode[m.Name]
		}
	}
	if dir == "" || flags["--kubelet-socket-dir"] != dir {
		t.Errorf("--kubelet-socket-dir is %q, but the socket is in %q of the node", flags["--kubelet-socket-dir"], dir)
	}
}

// sharedMount searches the mounts of c for a mount with bidirectional propagation that contains the
// path of m. It returns the path of the mount that it finds, or "" if it finds no mount. With
// bidirectional propagation, a mount that the container makes below this path also appears on the
// node.
func sharedMount(c corev1.Container, m corev1.VolumeMount) string {
	for _, above := range c.VolumeMounts {
		if p := above.MountPropagation; p != nil && *p == corev1.MountPropagationBidirectional && strings.HasPrefix(m.MountPath, above.MountPath+"/") {
			return above.MountPath
		}
	}
	return ""
}
