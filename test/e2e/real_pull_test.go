package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/lab"
)

// inMachine runs a program once, inside of an instance's machine.
func (l *labRun) inMachine(id string, args ...string) string {
	l.t.Helper()
	return l.must("nsenter", slices.Concat([]string{"-t", strconv.Itoa(l.machinePID(id)), "-a"}, args)...)
}

// runOn starts a pod directly on a node, without the scheduler. It adds the fields in spec to the
// pod's spec.
func (l *labRun) runOn(node, pod, image string, spec map[string]any, args ...string) {
	l.t.Helper()
	all := map[string]any{"nodeName": node, "terminationGracePeriodSeconds": 0}
	for k, v := range spec {
		all[k] = v
	}
	raw, err := json.Marshal(map[string]any{"spec": all})
	if err != nil {
		l.t.Fatal(err)
	}
	l.kubectl(slices.Concat([]string{"run", pod, "--image=" + image, "--restart=Never", "--overrides=" + string(raw), "--"}, args)...)
}

// testRealMetadata proves that a machine, and a pod with host network, can call the metadata
// service. Pods without host network receive no replies from the service.
func (l *labRun) testRealMetadata(t *testing.T) {
	const service = "http://169.254.169.254"
	for _, id := range []string{"i-000001", "i-000002"} {
		token := l.inMachine(id, "curl", "-s", "-m", "10", "-X", "PUT", "-H", "Metadata-Token-TTL-Seconds: 60", service+"/v1/token")
		if got := l.inMachine(id, "curl", "-s", "-m", "10", "-H", "Metadata-Token: "+token, service+"/v1/instance/id"); got != id {
			t.Errorf("the metadata service tells %s the instance id %q", id, got)
		}
	}
	l.runOn("node-1", "in-machine", agnhost, map[string]any{"hostNetwork": true}, "pause")
	l.kubectl("wait", "pod", "in-machine", "--for=condition=Ready", "--timeout=60s")
	l.kubectl("exec", "in-machine", "--", "/agnhost", "connect", "--timeout=10s", "169.254.169.254:80")
	pod := l.podsByNode("web")["node-1"][0]
	router := l.inMachine("i-000001", "sh", "-c", "ip route show default | cut -d' ' -f3")
	for at, want := range map[string]string{"169.254.169.254:80": "TIMEOUT", router + ":1": "REFUSED"} {
		if _, err := l.runProgram(l.kubectlPath(), "exec", pod, "--", "/agnhost", "connect", "--timeout=2s", at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("request of a pod to %s: %v; want %s", at, err, want)
		}
	}
}

// registry returns the name of the cloud's registry, and a password that allows pushes.
func (l *labRun) registry() (name, password string) {
	l.t.Helper()
	var c struct{ Registry, Password string }
	if err := json.Unmarshal([]byte(l.cloud("registry", "password", "-o", "json")), &c); err != nil || c.Registry == "" {
		l.t.Fatal(c.Registry, err)
	}
	return c.Registry, c.Password
}

// pushImages pushes an image from a machine to the cloud's registry, under several names. After a
// kubelet has pulled this image with a password, pods without credentials cannot use the image,
// even under another name (KEP-2535). So pods without credentials must use a different image.
func (l *labRun) pushImages(id string, names ...string) (registry string) {
	l.t.Helper()
	registry, password := l.registry()
	ctr := func(args ...string) {
		l.inMachine(id, slices.Concat([]string{"/opt/machine/ctr", "-n", "k8s.io", "images"}, args)...)
	}
	for _, name := range names {
		ctr("tag", "registry.k8s.io/pause:3.10.2", registry+"/"+name)
		ctr("push", "--hosts-dir", "/etc/kubernetes/registries", "--user", "cloud:"+password, registry+"/"+name)
		ctr("rm", registry+"/"+name)
	}
	return registry
}

// awaitPull waits until a pod runs, and checks that the kubelet pulled the pod's image.
func (l *labRun) awaitPull(pod string) {
	l.t.Helper()
	l.kubectl("wait", "pod", pod, "--for=condition=Ready", "--timeout=90s")
	l.awaitOutput("Successfully pulled image", "get", "events", "--field-selector", "involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
}

// refusedFor waits until a pod's events contain the given reason for a failed pull of the image.
// Then it deletes the pod.
func (l *labRun) refusedFor(reason, pod string) {
	l.t.Helper()
	l.awaitOutput(reason, "get", "events", "--field-selector", "involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
	l.kubectl("delete", "pod", pod, "--wait=false")
}

// testRealPull proves that a node and a service account can pull private images, even after a key
// rotation. The registry refuses expired and revoked passwords, and the pod's event shows the
// reason.
func (l *labRun) testRealPull(t *testing.T) {
	l.cloud("repositories", "create", "team-a/web")
	l.cloud("repositories", "create", "team-b/api")
	r := l.pushImages("i-000001", "team-a/web:v1", "team-a/web:v2", "team-a/web:v3", "team-b/api:v1", "team-b/api:v2")
	l.runOn("node-2", "as-node", r+"/team-a/web:v1", nil, "netexec")
	l.awaitPull("as-node")
	l.testRealPullAsPod(t, r)

	l.cloud("clock", "advance", "61m") // changes only the cloud's clock, not the clocks of the machines
	l.runOn("node-2", "expired", r+"/team-a/web:v2", nil, "netexec")
	l.refusedFor("the registry password expired at", "expired")
	l.cloud("signing-keys", "rotate", "registry", "--overlap", "0s") // an operator would do this after a leak of the key
	l.runOn("node-2", "revoked", r+"/team-a/web:v2", nil, "netexec")
	l.refusedFor("signed with a key that the cloud does not have", "revoked")

	// The kubelet caches passwords. A reboot clears this cache.
	l.cloud("instances", "reboot", "node-2", "--wait")
	l.kubectl("wait", "node", "node-2", "--for=condition=Ready", "--timeout=90s")
	l.runOn("node-2", "again", r+"/team-a/web:v2", nil, "netexec")
	l.awaitPull("again")
	l.cloud("signing-keys", "rotate", "registry", "--overlap", "1h")
	l.runOn("node-2", "rotated", r+"/team-a/web:v3", nil, "netexec")
	l.awaitPull("rotated")
	l.testRealPullWithoutCloud(t, r)
}

// testRealPullAsPod uses a pod with a service account that has the annotation
// lab.PullAnnotation. It proves that the kubelet pulls the pod's images with the identity of
// this service account. For these images, the kubelet does not use the node's identity.
func (l *labRun) testRealPullAsPod(t *testing.T, r string) {
	own := map[string]any{"serviceAccountName": "api"}
	l.kubectl("create", "serviceaccount", "api")
	l.kubectl("annotate", "serviceaccount", "api", lab.PullAnnotation+"=yes")
	l.runOn("node-2", "untrusted", r+"/team-b/api:v1", own, "netexec")
	l.refusedFor("the request has no password", "untrusted")
	if raw, err := os.ReadFile(filepath.Join(l.dir, "real/machines/i-000002/disk/log/kubelet.log")); err != nil || !strings.Contains(string(raw), "E_DENIED: the cloud refuses the pod's service account") {
		t.Errorf("the kubelet's log does not contain the reason: %v", err)
	}
	keys := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(keys, []byte(l.kubectl("get", "--raw", "/openid/v1/jwks")), 0o600); err != nil {
		t.Fatal(err)
	}
	l.cloud("service-accounts", "create", "api")
	l.cloud("role-bindings", "create", "api", "--role", "registry-reader", "--service-account", "api", "--resource", "team-b/*")
	l.cloud("workload-trusts", "create", "api", "--jwks-file", keys, "--namespace", "default", "--service-account", "api", "--audience", "registry.cloudsim", "--account", "api")
	l.runOn("node-2", "as-pod", r+"/team-b/api:v1", own, "netexec")
	l.awaitPull("as-pod")
	if out := l.cloud("registry", "decisions", "--no-headers"); !strings.Contains(out, "api") {
		t.Errorf("no pull authenticated as the service account api:\n%s", out)
	}
	l.cloud("role-bindings", "delete", "api")
	l.runOn("node-2", "lost-its-role", r+"/team-b/api:v2", own, "netexec")
	l.refusedFor("lacks the permission registry.pull", "lost-its-role")
}

// testRealPullWithoutCloud proves that, while the cloud does not answer, a pod starts if its image
// is already on the node.
func (l *labRun) testRealPullWithoutCloud(t *testing.T, r string) {
	pid := l.proxyPID("cloudsim")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Errorf("continue the stopped cloud (pid %d): %v", pid, err)
		}
	}()
	l.runOn("node-2", "present", r+"/team-a/web:v3", nil, "netexec")
	l.kubectl("wait", "pod", "present", "--for=condition=Ready", "--timeout=90s")
	l.awaitOutput("already present on machine", "get", "events", "--field-selector", "involvedObject.name=present", "-o", "jsonpath={.items[*].message}")
}
