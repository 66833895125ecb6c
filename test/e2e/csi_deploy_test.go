package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestShippedCSIPermissions applies deploy/csi to a real API server. The test then runs upstream's
// controllers with the shipped service account. If a permission is missing, a controller logs
// the refusal of the API server, and the test fails.
func TestShippedCSIPermissions(t *testing.T) {
	l := newLab(t)
	sidecars := filepath.Join(filepath.Dir(l.allinone), "csi", "csi-sidecars")
	if _, err := os.Stat(sidecars); err != nil {
		t.Fatalf("%v: run make csi", err)
	}
	l.must(l.allinone, "up", "--detach", "--instances", "1", "--port-base", "0", "--profile", "instant", "--volumes=false")
	l.kubectl("apply", "--server-side", "-f", filepath.Join(filepath.Dir(sidecars), "crds"))
	l.kubectl("apply", "-k", "../../deploy/csi")
	sockets, err := os.MkdirTemp("", "csi") // the paths of Unix sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "csi.sock")
	l.startProgram(l.allinone, "csi", "--mode=controller", "--endpoint=unix://"+socket, "--data-dir="+l.dir)
	// The API server needs some time to apply new roles, and refuses requests during this time. So
	// the test checks the permissions before it starts the controllers. Otherwise the log of a
	// controller could contain a refusal although no permission is missing.
	l.walk(t, []step{
		{"manifests are accepted", (*labRun).testShippedPods},
		{"permissions", (*labRun).testShippedRights},
	})
	if t.Failed() {
		return
	}
	log := l.startProgram(sidecars, "--csi-address="+socket, "--kubeconfig="+l.asAccount("csi-controller"), "--leader-election", "--capacity-namespace=kube-system")
	l.walk(t, []step{
		{"create and attach volumes", (*labRun).testShippedVolumes},
		{"snapshots", (*labRun).testShippedSnapshots},
		{"delete", (*labRun).testShippedDelete},
	})
	for line := range strings.Lines(log()) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			t.Errorf("a controller lacks a permission: %s", line)
		}
	}
}

// startProgram starts a program that is not a part of the lab. The program runs until the test
// ends. The returned function returns the output of the program.
func (l *labRun) startProgram(name string, args ...string) (output func() string) {
	l.t.Helper()
	path := filepath.Join(l.t.TempDir(), "log")
	log, err := os.Create(path)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Env, cmd.Stdout, cmd.Stderr = l.env(), log, log
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	output = func() string {
		raw, err := os.ReadFile(path)
		if err != nil {
			l.t.Fatal(err)
		}
		return string(raw)
	}
	l.t.Cleanup(func() {
		cancel()
		if err := cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			l.t.Errorf("%s: %v", filepath.Base(name), err)
		}
		_ = log.Close()
		if raw := []byte(output()); l.t.Failed() {
			l.t.Logf("--- %s\n%s", filepath.Base(name), raw[max(0, len(raw)-3000):])
		}
	})
	return output
}

// asAccount writes a kubeconfig with which programs act as a service account in kube-system.
func (l *labRun) asAccount(name string) (path string) {
	l.t.Helper()
	path = filepath.Join(l.t.TempDir(), name+".kubeconfig")
	if err := os.WriteFile(path, []byte(l.kubectl("config", "view", "--raw", "--minify")), 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.kubectl("--kubeconfig", path, "config", "set-credentials", name, "--token", l.kubectl("create", "token", name, "--namespace=kube-system"))
	l.kubectl("--kubeconfig", path, "config", "set-context", "--current", "--user="+name)
	if user := l.kubectl("--kubeconfig", path, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); user != "system:serviceaccount:kube-system:"+name {
		l.t.Fatalf("the user is %q", user)
	}
	return path
}

// testShippedPods proves that the API server admits the pods of deploy/csi, and that the scheduler
// assigns them to nodes.
func (l *labRun) testShippedPods(*testing.T) {
	for app, want := range map[string]int{"csi-controller": 2, "csi-node": 1} {
		l.awaitEmpty("the pods of "+app+" have a node", func() string {
			nodes := l.kubectl("--namespace=kube-system", "get", "pods", "-l", "app.kubernetes.io/name="+app, "-o", "jsonpath={.items[*].spec.nodeName}")
			if len(strings.Fields(nodes)) != want {
				return "on " + nodes
			}
			return ""
		})
	}
}

// testShippedRights proves that the controllers have only the permissions that volumes need, and
// the permission to read pods and replica sets. Upstream's containers need this last permission to
// find the owners of their own pods. The service account csi-node has no permissions.
func (l *labRun) testShippedRights(*testing.T) {
	for _, c := range []struct{ account, verb, resource, namespace, want string }{
		{"csi-controller", "get", "pods", "kube-system", "yes"},
		{"csi-controller", "get", "replicasets.apps", "kube-system", "yes"},
		{"csi-controller", "update", "leases.coordination.k8s.io/csi-sidecars", "kube-system", "yes"},
		{"csi-controller", "get", "secrets", "default", "no"},
		{"csi-controller", "list", "secrets", "default", "no"},
		{"csi-controller", "create", "pods", "default", "no"},
		{"csi-controller", "update", "nodes", "", "no"},
		{"csi-controller", "update", "leases.coordination.k8s.io/kube-scheduler", "kube-system", "no"},
		{"csi-controller", "update", "leases.coordination.k8s.io/csi-sidecars", "default", "no"},
		{"csi-node", "get", "secrets", "kube-system", "no"},
		{"csi-node", "get", "nodes", "", "no"},
		{"csi-node", "get", "persistentvolumes", "", "no"},
	} {
		l.awaitEmpty(fmt.Sprintf("may %s %s %s in %q: %s", c.account, c.verb, c.resource, c.namespace, c.want), func() string {
			got, _ := l.runProgram(l.kubectlPath(), "auth", "can-i", c.verb, c.resource, "--namespace="+c.namespace, "--as=system:serviceaccount:kube-system:"+c.account) // the command also fails if the answer is no
			if strings.TrimSpace(got) != c.want {
				return fmt.Sprintf("%q", got)
			}
			return ""
		})
	}
}

// hollowDriver contains the CSINode that a kubelet would write for a registered driver. It also
// contains a VolumeAttributesClass for the driver.
const hollowDriver = `
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: node-1}
spec: {drivers: [{name: csi.cloudsim.dev, nodeID: i-000001, topologyKeys: [topology.csi.cloudsim.dev/zone]}]}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: faster}
driverName: csi.cloudsim.dev
parameters: {iops: "4000"}
`

// testShippedVolumes proves that a PersistentVolumeClaim with the StorageClass in deploy/csi gets
// a volume. The controllers attach this volume, make it larger and change its class.
func (l *labRun) testShippedVolumes(*testing.T) {
	l.kubectl("label", "node", "node-1", "topology.csi.cloudsim.dev/zone=sim-1a")
	l.apply(hollowDriver)
	l.apply(claim("data", "1Gi", "storageClassName: balanced"))
	l.awaitReady("data")
	l.untilPrints("its volume is attached", "true", "get", "volumeattachments", "-o", "jsonpath={.items[*].status.attached}")
	l.kubectl("patch", "pvc", "data", "-p", `{"spec":{"resources":{"requests":{"storage":"2Gi"}},"volumeAttributesClassName":"faster"}}`)
	volume := l.kubectl("get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}")
	l.untilPrints("it has grown", "2Gi", "get", "pv", volume, "-o", "jsonpath={.spec.capacity.storage}")
	l.untilPrints("it has another class", "faster", "get", "pvc", "data", "-o", "jsonpath={.status.currentVolumeAttributesClassName}")
}

const shippedSnapshots = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: own}
driver: csi.cloudsim.dev
deletionPolicy: Delete
---
apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshotClass
metadata: {name: own}
driver: csi.cloudsim.dev
deletionPolicy: Delete
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: one}
spec: {volumeSnapshotClassName: own, source: {persistentVolumeClaimName: data}}
---
apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshot
metadata: {name: group}
spec: {volumeGroupSnapshotClassName: own, source: {selector: {matchLabels: {app: data}}}}
`

// testShippedSnapshots proves that a snapshot, a group of snapshots, and a volume from a
// snapshot work.
func (l *labRun) testShippedSnapshots(*testing.T) {
	l.kubectl("label", "pvc", "data", "app=data")
	l.apply(shippedSnapshots)
	l.untilPrints("a snapshot is ready", "true", "get", "volumesnapshot", "one", "-o", "jsonpath={.status.readyToUse}")
	l.untilPrints("a group of them is ready", "true", "get", "volumegroupsnapshot", "group", "-o", "jsonpath={.status.readyToUse}")
	l.apply(claim("restored", "2Gi", "storageClassName: balanced\n  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: one}"))
	l.awaitReady("restored")
}

func (l *labRun) testShippedDelete(*testing.T) {
	l.kubectl("delete", "volumegroupsnapshot", "group", "--wait")
	l.kubectl("delete", "volumesnapshot", "one", "--wait")
	l.kubectl("delete", "pod", "data", "restored", "--wait")
	l.kubectl("delete", "pvc", "data", "restored", "--wait")
	l.awaitEmpty("all disks, snapshots and attachments are deleted", func() string {
		return l.cloud("disks", "list", "-o", "name") + l.cloud("snapshots", "list", "-o", "name") + l.kubectl("get", "volumeattachments,pv", "-o", "name")
	})
}
