package console

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lab is a cluster on a simulated cloud, with a console that watches both.
type lab struct {
	*cloud
	console string // URL of the console
}

// startLab starts a lab of hollow nodes in the background.
func startLab(t testing.TB, args ...string) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	bin := allinone(t)
	if _, err := os.Stat(filepath.Join(filepath.Dir(bin), "kube")); err != nil {
		t.Fatalf("%v: run 'make build' first", err)
	}
	l := &lab{cloud: &cloud{t: t, bin: bin, dir: t.TempDir()}}
	t.Cleanup(func() { _ = exec.Command(bin, "down", "--data-dir", l.dir).Run() })
	l.do(append([]string{"up", "--detach", "--data-dir", l.dir, "--port-base", "0", "--network-proxy=false", "--volumes=false", "--profile", "instant"}, args...)...)
	l.url = l.shell(`. "$0/env" && echo "$CLOUDSIM_URL"`, l.dir)
	token := l.shell(`. "$0/env" && cat "$CLOUDSIM_TOKEN_FILE"`, l.dir)
	if err := os.WriteFile(filepath.Join(l.dir, "admin.token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := freeAddress(t)
	own := exec.Command(bin, "console", "--listen", addr, "--cloud-url", l.url, "--token-file", filepath.Join(l.dir, "admin.token"), "--kubeconfig", filepath.Join(l.dir, "kubeconfig"))
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Process.Kill(); _ = own.Wait() })
	l.console = "http://" + addr
	l.until("the console is up", func() bool { _, err := l.try("console", "link", "--console-url", l.console); return err == nil })
	return l
}

func (l *lab) shell(script string, args ...string) string {
	l.t.Helper()
	out, err := exec.Command("sh", append([]string{"-c", script}, args...)...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (l *lab) kubectl(args ...string) string {
	l.t.Helper()
	out, err := l.tryKubectl(args...)
	if err != nil {
		l.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (l *lab) tryKubectl(args ...string) (string, error) {
	out, err := exec.Command(filepath.Join(l.dir, "bin", "kubectl"), append([]string{"--kubeconfig", filepath.Join(l.dir, "kubeconfig")}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// create creates objects of the cluster from YAML.
func (l *lab) create(yaml string) {
	l.t.Helper()
	l.kubectl("create", "-f", l.file(yaml))
}

// file returns the path of a new file.
func (l *lab) file(text string) string {
	l.t.Helper()
	path := filepath.Join(l.t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// signal sends a signal to a component of the lab.
func (l *lab) signal(component string, s syscall.Signal) {
	l.t.Helper()
	pid := l.shell(`"$0" status --data-dir "$1" -o json | tr -d ' \n' | sed 's/},{/\n/g' | grep '"name":"`+component+`"' | sed 's/.*"pid":\([0-9]*\).*/\1/'`, l.bin, l.dir)
	l.shell("kill -$0 $1", map[syscall.Signal]string{syscall.SIGSTOP: "STOP", syscall.SIGCONT: "CONT"}[s], pid)
}

func (l *lab) link() string {
	l.t.Helper()
	return l.do("console", "link", "--console-url", l.console)
}

// Each rule finds its difference between a real cloud and a real cluster within 2 s, and the difference
// ends within 2 s after its repair. A healthy cluster has no difference.
func TestDifferencesOfALab(t *testing.T) {
	l := startLab(t)
	p := open(t, browser(t), l.link())
	p.visit("differences")
	p.shows("No difference")

	kubectl := func(args ...string) func() { return func() { l.kubectl(args...) } }
	do := func(args ...string) func() { return func() { l.do(append([]string{"cloud"}, args...)...) } }
	const cloudprovider = "node.cloudprovider.kubernetes.io/"
	ready := func(status string) func() {
		return kubectl("patch", "node", "node-1", "--subresource=status", "-p", `{"status":{"conditions":[{"type":"Ready","status":"`+status+`","reason":"Test"}]}}`)
	}
	address := l.kubectl("get", "node", "node-1", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	internal := func(ip string) func() {
		return kubectl("patch", "node", "node-1", "--subresource=status", "-p", `{"status":{"addresses":[{"type":"InternalIP","address":"`+ip+`"}]}}`)
	}
	node := func(spec string) func() {
		return func() {
			l.create("apiVersion: v1\nkind: Node\nmetadata: {name: node-9}\nspec: " + spec + "\n")
		}
	}
	l.do("cloud", "disks", "create", "data", "--zone", "sim-1a", "--size", "1")
	disk := l.idOf("disk", "data")
	// denied prevents the registration of new Nodes.
	denied := func() {
		l.create(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-nodes}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [nodes]}]}
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-nodes}
spec: {policyName: no-nodes, validationActions: [Deny]}
`)
		l.until("the cluster refuses new Nodes", func() bool {
			_, err := l.tryKubectl("create", "--dry-run=server", "-f", l.file("apiVersion: v1\nkind: Node\nmetadata: {name: node-8}\n"))
			return err != nil
		})
	}
	for _, d := range []struct {
		rule, name         string
		make, then, repair func() // repair is the action that ends the difference
	}{
		{"address", "node-1", internal("192.0.2.1"), nil, internal(address)},
		{"running-not-ready", "node-1", func() {
			l.signal("kwok", syscall.SIGSTOP) // kwok sets the condition again at once
			ready("False")()
		}, nil, func() {
			ready("True")()
			l.signal("kwok", syscall.SIGCONT)
		}},
		{"crashed-but-ready", "node-2", do("instances", "crash", "node-2"), nil, do("instances", "reboot", "node-2")},
		{"no-service", "orphan", do("load-balancers", "create", "orphan", "--listener", "80:30080", "--label", "kubernetes.io/service-uid=u-1"), nil, do("load-balancers", "delete", "orphan")},
		{"attachment", "data", func() {
			l.create(`apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: disk.example, volumeHandle: ` + disk + `}}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: csi-1, finalizers: [example.com/kept]}
spec: {attacher: disk.example, nodeName: node-1, source: {persistentVolumeName: data}}
`)
			l.kubectl("patch", "volumeattachment", "csi-1", "--subresource=status", "--type=merge", "-p", `{"status":{"attached":true}}`)
		}, nil, kubectl("patch", "volumeattachment", "csi-1", "--subresource=status", "--type=merge", "-p", `{"status":{"attached":false}}`)},

		{"no-node", "node-4", denied, do("instances", "create", "node-4", "--zone", "sim-1a"), kubectl("delete", "validatingadmissionpolicybinding", "no-nodes")},

		// While the CCM is stopped, it does not repair these differences.
		{"zone", "node-1", kubectl("label", "node", "node-1", "topology.kubernetes.io/zone=sim-1b", "--overwrite"), nil, kubectl("label", "node", "node-1", "topology.kubernetes.io/zone=sim-1a", "--overwrite")},
		{"uninitialized", "node-1", kubectl("taint", "node", "node-1", cloudprovider+"uninitialized=true:NoSchedule"), nil, kubectl("taint", "node", "node-1", cloudprovider+"uninitialized-")},
		{"taint-without-stop", "node-1", kubectl("taint", "node", "node-1", cloudprovider+"shutdown:NoSchedule"), nil, kubectl("taint", "node", "node-1", cloudprovider+"shutdown-")},
		{"stopped-without-taint", "node-3", do("instances", "stop", "node-3"), nil, kubectl("taint", "node", "node-3", cloudprovider+"shutdown:NoSchedule")},
		{"no-instance", "node-9", node("{}"), nil, kubectl("delete", "node", "node-9")},
		{"provider-id", "node-9", node("{providerID: 'cloudsim://sim-1/sim-1a/i-999999'}"), do("instances", "create", "node-9", "--zone", "sim-1a"), kubectl("delete", "node", "node-9")},
	} {
		t.Run(d.rule, func(t *testing.T) {
			p.t, l.t = t, t
			if d.rule == "zone" {
				l.signal("ccm", syscall.SIGSTOP)
			}
			shown := "[...document.querySelectorAll('.difference')].some((e) => e.innerText.startsWith(" + quote(d.name) + ") && e.innerText.includes(" + quote("rule "+d.rule) + "))"
			d.make()
			if d.then != nil {
				d.then()
			}
			p.within(2*time.Second, shown)
			d.repair()
			p.within(2*time.Second, "!"+shown)
		})
	}
	p.t, l.t = t, t
	l.signal("ccm", syscall.SIGCONT)
	l.do("cloud", "instances", "start", "node-3")
	p.shows("No difference")
}
