package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// testVolumesDevices proves that an attach operation creates the device of a disk, and that a
// detach operation removes this device. A machine without the disk has no device.
func (l *labRun) testVolumesDevices(t *testing.T) {
	l.cloud("disks", "create", "by-hand", "--zone", "sim-1a", "--size", "1", "--wait")
	devices := func(node string) []string {
		all := strings.Fields(l.must(l.allinone, "enter", node, "ls", "/dev/disk/by-id"))
		slices.Sort(all)
		return all
	}
	id := strings.Fields(l.cloud("disks", "get", "by-hand", "-o", "name"))[0]
	var n int
	if _, err := fmt.Sscanf(id, "disk-%x", &n); err != nil {
		t.Fatal(id, err)
	}
	want := []string{"cloudsim-" + id, fmt.Sprintf("scsi-0HC_Volume_%d", n)}
	for range 3 {
		l.cloud("disks", "attach", "by-hand", "node-1", "--wait")
		if got := devices("node-1"); !slices.Equal(got, want) {
			t.Errorf("devices after the attachment: got %v, want %v", got, want)
		}
		if got := devices("node-2"); len(got) > 0 {
			t.Errorf("devices of the other machine: got %v", got)
		}
		l.must(l.allinone, "enter", "node-1", "dd", "if=/dev/zero", "of=/dev/disk/by-id/cloudsim-"+id, "bs=4096", "count=1", "status=none")
		l.cloud("disks", "detach", "by-hand", "node-1", "--wait")
		if got := devices("node-1"); len(got) > 0 {
			t.Errorf("devices after the detachment: got %v", got)
		}
	}

	// A restarted machine has exactly its attached disks.
	l.cloud("disks", "attach", "by-hand", "node-2", "--wait")
	l.cloud("instances", "reboot", "node-2", "--wait")
	l.until("the restarted machine has its disk", func() string {
		out, err := l.try(l.allinone, "enter", "node-2", "ls", "/dev/disk/by-id")
		if got := strings.Fields(out); err != nil || len(got) != len(want) {
			return fmt.Sprint(got, err)
		}
		return ""
	})
	l.cloud("disks", "detach", "by-hand", "node-2", "--wait")
	l.cloud("disks", "delete", "by-hand", "--wait")
	l.kubectl("wait", "node", "node-2", "--for=condition=Ready", "--timeout=90s")
}

// hetznerVolumes is a StorageClass of Hetzner's CSI driver, and a StatefulSet with a volume of this
// class.
const hetznerVolumes = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: hcloud-volumes}
provisioner: csi.hetzner.cloud
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: hetzner}
spec:
  serviceName: hetzner
  selector: {matchLabels: {app: hetzner}}
  template:
    metadata: {labels: {app: hetzner}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: ` + agnhost + `
        args: [pause]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      storageClassName: hcloud-volumes
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 10Gi}}
`

// testVolumesHetzner proves that Hetzner's unmodified CSI driver works on real machines. A pod of a
// StatefulSet writes to a volume, moves to another node and reads its data. The program
// cryptsetup needs device-mapper, which the host may not have. So the driver calls a script that
// reports that no encrypted device is active.
func (l *labRun) testVolumesHetzner(t *testing.T) {
	driver := foreign(t, "hcloud-csi-driver")
	dialect, err := exec.Command("sh", "-c", `eval "$("$0" dialect env hcloud --data-dir "$1")" && echo "$HCLOUD_ENDPOINT $HCLOUD_TOKEN"`, l.allinone, l.dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	url, token, _ := strings.Cut(strings.TrimSpace(string(dialect)), " ")
	env := []string{"HCLOUD_ENDPOINT=" + url, "HCLOUD_TOKEN=" + token, "HCLOUD_VOLUME_DEFAULT_LOCATION=sim-1a", "ENABLE_METRICS=false"}
	tree := filepath.Join(t.TempDir(), "hetzner.yaml")
	if err := os.WriteFile(tree, []byte(hetznerTree), 0o600); err != nil {
		t.Fatal(err)
	}
	l.cloud("metadata-trees", "set", "hetzner", "--file", tree)

	sockets, err := os.MkdirTemp("", "hc") // the path of a socket has at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "csi.sock")
	l.background("hcloud-csi-controller", append(env, "CSI_ENDPOINT=unix://"+socket), driver, "-controller")
	l.until("the controller serves", func() string {
		if _, err := os.Stat(socket); err != nil {
			return err.Error()
		}
		return ""
	})
	l.background("hcloud-csi-sidecars", nil, filepath.Join(filepath.Dir(l.allinone), "csi", "csi-sidecars"),
		"--csi-address="+socket, "--kubeconfig="+filepath.Join(l.dir, "config", "csi-sidecars.kubeconfig"), "--http-endpoint=127.0.0.1:0", "--capacity-namespace=kube-system")
	for _, node := range []string{"node-1", "node-2"} {
		l.hetznerNode(t, node, driver, env)
	}

	l.apply(hetznerVolumes)
	l.ready("hetzner-0")
	l.writes("hetzner-0")
	node := l.kubectl("get", "pod", "hetzner-0", "-o", "jsonpath={.spec.nodeName}")
	l.kubectl("cordon", node)
	l.kubectl("delete", "pod", "hetzner-0", "--wait")
	l.ready("hetzner-0")
	if now := l.kubectl("get", "pod", "hetzner-0", "-o", "jsonpath={.spec.nodeName}"); now == node {
		t.Errorf("the pod is on %s again", node)
	}
	l.reads("hetzner-0")
	l.kubectl("uncordon", node)
	l.kubectl("delete", "statefulset", "hetzner", "--wait")
	l.kubectl("delete", "pod", "hetzner-0", "--ignore-not-found", "--wait")
	l.kubectl("delete", "pvc", "data-hetzner-0", "--wait")
	l.until("the volume is deleted", func() string {
		return l.kubectl("get", "pv", "-o", `jsonpath={.items[?(@.spec.csi.driver=="csi.hetzner.cloud")].metadata.name}`)
	})
}

// hetznerTree contains the metadata that the node part of Hetzner's driver reads.
const hetznerTree = `
prefix: /hetzner/v1/metadata
leaves:
- {path: /instance-id, text: "${id.number}"}
- {path: /hostname, text: "${hostname}"}
- {path: /availability-zone, text: "${zone}-dc1"}
`

// hetznerNode runs the node part of Hetzner's driver as a process of a machine, and registers it
// with the kubelet.
func (l *labRun) hetznerNode(t *testing.T, node, driver string, env []string) {
	t.Helper()
	const dir = "/var/lib/kubelet/plugins/hc"
	pid := l.machinePID(instanceOf[node])
	there := filepath.Join("/proc", fmt.Sprint(pid), "root", dir)
	program, err := os.ReadFile(driver)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(there, 0o755),
		os.WriteFile(filepath.Join(there, "driver"), program, 0o755),
		os.WriteFile(filepath.Join(there, "cryptsetup"), []byte("#!/bin/sh\n# cryptsetup(8): status 4 means that the device is not active\necho \"$2 is inactive.\"\nexit 4\n"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"enter", "--data-dir", l.dir, node, "env"}, env...)
	args = append(args, "PATH="+dir+":/usr/sbin:/usr/bin:/sbin:/bin", "CSI_ENDPOINT=unix://"+dir+"/csi.sock", "KUBE_NODE_NAME="+node, dir+"/driver", "-node")
	l.background("hcloud-csi-"+node, os.Environ(), l.allinone, args...)

	// The sidecar node-driver-registrar registers the driver in a cluster with images.
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join("/proc", fmt.Sprint(pid), "root/var/lib/kubelet/plugins_registry/hc-reg.sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	registration.RegisterRegistrationServer(srv, registrar{endpoint: dir + "/csi.sock"})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	l.untilPrints(node+" has Hetzner's driver", instanceNumber(node), "get", "csinode", node, "-o", `jsonpath={.spec.drivers[?(@.name=="csi.hetzner.cloud")].nodeID}`)
}

// instanceNumber returns the server id of a node.
func instanceNumber(node string) string { return strings.TrimLeft(instanceOf[node], "i-0") }

// registrar implements the kubelet's plugin registration API for Hetzner's driver.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "CSIPlugin", Name: "csi.hetzner.cloud", Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r registrar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// background runs a program until the test ends. It writes the program's output to the logs folder
// of the lab.
func (l *labRun) background(name string, env []string, program string, args ...string) {
	l.t.Helper()
	log, err := os.OpenFile(filepath.Join(l.dir, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // the test has killed the program
		_ = log.Close()
	})
}
