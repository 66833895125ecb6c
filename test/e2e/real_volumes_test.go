package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/csidriver"
)

// TestRealVolumes checks the statements of docs/howto/volumes.md with real machines.
func TestRealVolumes(t *testing.T) {
	t.Parallel() // this test mostly waits
	l := newRealLab(t)
	if _, err := os.Stat(filepath.Join(filepath.Dir(l.allinone), "csi", "csi-sidecars")); err != nil {
		t.Fatalf("%v: run make csi", err)
	}
	catalogue := filepath.Join(t.TempDir(), "catalogue.yaml")
	if err := os.WriteFile(catalogue, []byte(legacyZones), 0o600); err != nil {
		t.Fatal(err)
	}
	up := func(l *labRun) {
		l.must(l.allinone, "up", "--detach", "--nodes", "real", "--instances", "1", "--port-base", "0", "--profile", "instant", "--catalogue", catalogue, "--serve-as", strings.Join(csidriver.LegacyNames(), ","), "--dialect", "hcloud")
	}
	up(l)
	l.walk(t, []step{
		{"driver registration", (*labRun).testVolumesRegister},
		{"devices of attached disks", (*labRun).testVolumesDevices},
		{"node crash", (*labRun).testVolumesCrash},
		{"upgrade", func(l *labRun, t *testing.T) { l.testVolumesUpgrade(t, up) }},
		{"snapshot restore and clone", (*labRun).testVolumesCopies},
		{"expand and change class", (*labRun).testVolumesChange},
		{"in-tree volumes", (*labRun).testVolumesInTree},
		{"delete", (*labRun).testVolumesDelete},
		{"cleanup", (*labRun).testRealCleanup},
	})
}

func (l *labRun) apply(manifest string) {
	l.t.Helper()
	path := filepath.Join(l.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.kubectl("apply", "-f", path)
}

func (l *labRun) writeFile(pod string) {
	l.t.Helper()
	l.kubectl("exec", pod, "--", "/agnhost", "mounttest", "--new_file_0644=/data/file")
}

func (l *labRun) readFile(pod string) {
	l.t.Helper()
	if out := l.kubectl("exec", pod, "--", "/agnhost", "mounttest", "--file_content=/data/file"); !strings.Contains(out, "mount-tester new file") {
		l.t.Errorf("%s reads %q", pod, out)
	}
}

func (l *labRun) awaitReady(pod string) {
	l.t.Helper()
	l.untilPrints(pod+" is ready", "True", "get", "pod", pod, "--ignore-not-found", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
}

// volumePath returns a path to the folder of a pod's volume. The path is valid on the host, outside
// of the pod's machine.
func (l *labRun) volumePath(pod string) string {
	l.t.Helper()
	node := l.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	uid := l.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	at := filepath.Join("/proc", fmt.Sprint(l.machinePID(instanceOf[node])), "root", "var/lib/kubelet/pods", uid, "volumes/kubernetes.io~csi/*/mount")
	found, err := filepath.Glob(at)
	if err != nil || len(found) != 1 {
		l.t.Fatalf("mounts of %s: %v, %v", pod, found, err)
	}
	return found[0]
}

// capacity returns the size in bytes of the filesystem on a pod's volume. It reads the size on the
// pod's machine.
func (l *labRun) capacity(pod string) int64 {
	l.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(l.volumePath(pod), &s); err != nil {
		l.t.Fatal(err)
	}
	return int64(s.Blocks) * int64(s.Bsize) //nolint:unconvert // Bsize is an int32 on 32-bit machines
}

const gib = 1 << 30

var instanceOf = map[string]string{"node-1": "i-000001", "node-2": "i-000002"}

// testVolumesRegister proves that the kubelet registers the CSI driver. After the registration, the
// CSINode contains the driver with its topology key. The Node has a label with the zone of its
// instance.
func (l *labRun) testVolumesRegister(*testing.T) {
	l.cloud("instances", "create", "node-2", "--zone", "sim-1a", "--wait")
	for _, node := range []string{"node-1", "node-2"} {
		l.untilPrints(node+" has the driver", "topology.csi.cloudsim.dev/zone", "get", "csinode", node, "--ignore-not-found",
			"-o", `jsonpath={.spec.drivers[?(@.name=="csi.cloudsim.dev")].topologyKeys[0]}`)
	}
	l.untilPrints("the node's zone is the cloud's", "sim-1a", "get", "node", "node-1", "-o", `jsonpath={.metadata.labels.topology\.csi\.cloudsim\.dev/zone}`)
}

const database = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: db
        image: ` + agnhost + `
        args: [pause]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}
`

// rawVolume is the manifest of a pod on a given node, with a volume that is a block device.
const rawVolume = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec:
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: raw}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: %s}
  containers:
  - name: main
    image: %s
    args: [pause]
    volumeDevices: [{name: data, devicePath: /dev/data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: raw}}]
`

// handle returns the volume handle of a claim's volume. The handle is the id of the disk.
func (l *labRun) handle(claim string) string {
	l.t.Helper()
	return l.kubectl("get", "pv", l.kubectl("get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}"), "-o", "jsonpath={.spec.csi.volumeHandle}")
}

// testVolumesCrash proves that a pod of a StatefulSet keeps its data after a crash of the pod's
// node. After an operator has marked the crashed node as out of service (KEP-2268), the pod runs on
// another node. Later the crashed machine can join the cluster again.
func (l *labRun) testVolumesCrash(t *testing.T) {
	l.apply(database)
	l.awaitReady("db-0")
	l.writeFile("db-0")
	node := l.kubectl("get", "pod", "db-0", "-o", "jsonpath={.spec.nodeName}")
	l.apply(fmt.Sprintf(rawVolume, node, agnhost))
	l.awaitReady("raw")
	raw := l.handle("raw")
	devices := func() string {
		return l.must("losetup", "--noheadings", "--output=NAME", "--associated", filepath.Join(l.dir, "cloud", "disks", raw+".img"))
	}
	if devices() == "" {
		t.Errorf("%s has no device", raw)
	}
	if err := syscall.Kill(l.machinePID(instanceOf[node]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.awaitEmpty("the device of a raw volume disappears with its machine", devices)
	l.untilPrints("the node is missed", "Unknown", "get", "node", node, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	l.kubectl("taint", "node", node, "node.kubernetes.io/out-of-service=crashed:NoExecute")
	l.awaitEmpty("the pod runs on another node", func() string {
		now, err := l.runProgram(l.kubectlPath(), "get", "pod", "db-0", "--ignore-not-found", "-o", `jsonpath={.spec.nodeName} {.status.conditions[?(@.type=="Ready")].status}`)
		if on, ready, _ := strings.Cut(now, " "); err != nil || on == node || ready != "True" {
			return fmt.Sprint(now, err)
		}
		return ""
	})
	l.readFile("db-0")
	l.cloud("instances", "reboot", node, "--wait")
	l.kubectl("wait", "node", node, "--for=condition=Ready", "--timeout=90s")
	l.kubectl("taint", "node", node, "node.kubernetes.io/out-of-service-")
	l.readFile("db-0")
}

// testVolumesUpgrade kills the lab and starts a new version of the lab. It proves that the machine
// and the pod continue to run. The test writes three files to the pod's volume: the first while no
// lab runs, the second while the new lab runs. For the third file, it first kills the driver on the
// machine. The pod must be able to read each file. At the end, the test stops and starts the lab.
// The machine boots again, and the volume still has its data.
func (l *labRun) testVolumesUpgrade(t *testing.T, up func(*labRun)) {
	node := l.kubectl("get", "pod", "db-0", "-o", "jsonpath={.spec.nodeName}")
	machine, volume := l.machinePID(instanceOf[node]), l.volumePath("db-0")
	containers := func() string {
		return l.kubectl("get", "pod", "db-0", "-o", "jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}")
	}
	reads := func(file string) string {
		out, err := l.runProgram(l.kubectlPath(), "exec", "db-0", "--", "/agnhost", "mounttest", "--file_content=/data/"+file)
		if err != nil || !strings.Contains(out, "written "+file) {
			return fmt.Sprint(out, err)
		}
		return ""
	}
	writes := func(file string) {
		f, err := os.Create(filepath.Join(volume, file))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("written " + file)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	before := containers()
	if err := syscall.Kill(l.status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	writes("without-lab")
	original := l.allinone
	l.upgrade()
	up(l)
	if after := l.machinePID(instanceOf[node]); after != machine {
		t.Fatalf("the pid of the machine changed to %d, from %d", after, machine)
	}
	writes("with-new-lab")
	for _, file := range []string{"without-lab", "with-new-lab"} {
		l.awaitEmpty("the pod reads "+file, func() string { return reads(file) })
	}

	driver := l.driverPID(node)
	if err := syscall.Kill(driver, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	writes("without-driver")
	l.awaitEmpty("the driver runs again", func() string {
		if now := l.driverPID(node); now == 0 || now == driver {
			return fmt.Sprint("its pid is ", now)
		}
		return ""
	})
	l.awaitEmpty("the pod reads without-driver", func() string { return reads("without-driver") })
	if after := containers(); after != before {
		t.Errorf("the pod changed to %q, from %q", after, before)
	}

	l.must(l.allinone, "down")
	l.allinone = original // the copy exists only until the end of this step
	up(l)
	for _, file := range []string{"without-lab", "with-new-lab", "without-driver"} {
		l.awaitEmpty("the pod reads "+file+" after a stop of the lab", func() string { return reads(file) })
	}
	if len(before) == 0 || containers() == before {
		t.Error("the container of the pod runs although its machine ended")
	}
}

// upgrade simulates a new version of the lab. It creates a folder with a copy of allinone, and with
// links to the lab's other programs. Afterward the lab uses the programs in this folder.
func (l *labRun) upgrade() {
	l.t.Helper()
	old, next := filepath.Dir(l.allinone), l.t.TempDir()
	files, err := os.ReadDir(old)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == filepath.Base(l.allinone) {
			continue
		}
		if err := os.Symlink(filepath.Join(old, f.Name()), filepath.Join(next, f.Name())); err != nil {
			l.t.Fatal(err)
		}
	}
	program, err := os.ReadFile(l.allinone)
	l.allinone = filepath.Join(next, filepath.Base(l.allinone))
	if err := errors.Join(err, os.WriteFile(l.allinone, program, 0o755)); err != nil {
		l.t.Fatal(err)
	}
}

// driverPID returns the pid of the CSI driver on the machine of a node, or 0.
func (l *labRun) driverPID(node string) (pid int) {
	for _, p := range l.listProcesses() {
		number, _, _ := strings.Cut(p, " ")
		line, err := os.ReadFile("/proc/" + number + "/cmdline")
		if err == nil && strings.Contains(string(line), "\x00csi\x00--mode=node\x00") && strings.Contains(string(line), "--node-instance="+instanceOf[node]+"\x00") {
			_, _ = fmt.Sscan(number, &pid) // a name of a folder in /proc is a number
		}
	}
	return pid
}

// claim returns a claim with the given size and data source, and a pod that uses the claim.
func claim(name, size, source string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: %[2]s}}
  %[3]s
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %[4]s
    args: [pause]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[1]s}}]
`, name, size, source, agnhost)
}

// testVolumesCopies copies a volume while a pod uses the volume. It proves that the copies contain
// the volume's data. The copies are a larger volume from a snapshot, and a clone.
func (l *labRun) testVolumesCopies(t *testing.T) {
	l.apply(`
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: before}
spec: {source: {persistentVolumeClaimName: data-db-0}}
`)
	l.untilPrints("the snapshot is ready", "true", "get", "volumesnapshot", "before", "-o", "jsonpath={.status.readyToUse}")
	l.apply(claim("restored", "2Gi", "dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: before}"))
	l.apply(claim("cloned", "1Gi", "dataSource: {kind: PersistentVolumeClaim, name: data-db-0}"))
	for _, pod := range []string{"restored", "cloned"} {
		l.awaitReady(pod)
		l.readFile(pod)
	}
	if size := l.capacity("restored"); size < 3*gib/2 {
		t.Errorf("size of the filesystem of a larger copy: got %d bytes", size)
	}
}

// testVolumesChange proves that a volume grows while a pod uses the volume. It also proves that
// a disk can get more IOPS. The growing volume uses XFS, because a mounted ext4 filesystem can grow
// only with CAP_SYS_RESOURCE. Some hosts do not have this capability.
func (l *labRun) testVolumesChange(t *testing.T) {
	l.apply(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: xfs}
provisioner: csi.cloudsim.dev
parameters: {csi.storage.k8s.io/fstype: xfs}
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
`)
	l.apply(claim("grows", "1Gi", "storageClassName: xfs"))
	l.awaitReady("grows")
	l.writeFile("grows")
	l.kubectl("patch", "pvc", "grows", "-p", `{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`)
	// A kubelet checks an unchanged pod only every 60 to 90 s, so the expansion can take longer
	// than the usual limit of 90 s.
	l.within(4*time.Minute, "the claim is expanded", func() string {
		if got := l.kubectl("get", "pvc", "grows", "-o", "jsonpath={.status.capacity.storage}"); got != "3Gi" {
			return got
		}
		return ""
	})
	if size := l.capacity("grows"); size < 5*gib/2 {
		t.Errorf("size of the filesystem: got %d bytes", size)
	}
	l.readFile("grows")
	l.apply(`
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: faster}
driverName: csi.cloudsim.dev
parameters: {iops: "4000"}
`)
	l.kubectl("patch", "pvc", "data-db-0", "-p", `{"spec":{"volumeAttributesClassName":"faster"}}`)
	l.untilPrints("the claim has its class", "faster", "get", "pvc", "data-db-0", "-o", "jsonpath={.status.currentVolumeAttributesClassName}")
	if out := l.cloud("disks", "get", l.handle("data-db-0"), "-o", "yaml"); !strings.Contains(out, "iops: 4000") {
		t.Errorf("output of disks get:\n%s", out)
	}
	l.readFile("db-0")
}

// testVolumesDelete proves that a deleted claim leaves nothing in the cloud or on the machines.
func (l *labRun) testVolumesDelete(*testing.T) {
	l.kubectl("delete", "statefulset", "db", "--wait")
	l.kubectl("delete", "pod", "restored", "cloned", "grows", "--wait")
	l.kubectl("delete", "pod", "raw", "--ignore-not-found", "--wait") // the deletion of the pod's node may have deleted the pod
	l.kubectl("delete", "pvc", "data-db-0", "restored", "cloned", "grows", "raw", "--wait")
	l.kubectl("delete", "volumesnapshot", "before", "--wait")
	l.awaitEmpty("all disks, snapshots and attachments are deleted", func() string {
		return l.cloud("disks", "list", "-o", "name") + l.cloud("snapshots", "list", "-o", "name") + l.kubectl("get", "volumeattachments,pv", "-o", "name")
	})
	l.awaitEmpty("all loop devices are detached", func() string { return strings.Join(l.loopFiles(), "\n") })
}

// loopFiles returns the files of the lab's cloud that are attached to loop devices of the host.
func (l *labRun) loopFiles() (files []string) {
	paths, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range paths {
		if raw, err := os.ReadFile(f); err == nil && strings.Contains(string(raw), "/cloudsim-"+l.hash()+"/") {
			files = append(files, strings.TrimSpace(string(raw)))
		}
	}
	return slices.Compact(files)
}
