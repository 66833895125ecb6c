package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/lab"
)

// TestRealImages proves that an image loaded from an archive reaches all running machines, and
// also a machine that the test creates later. The image survives a stop of the machine. A removed
// image is on no machine. A truncated archive changes nothing.
func TestRealImages(t *testing.T) {
	l := newRealLab(t)
	l.must(l.allinone, "up", "--detach", "--nodes", "real", "--instances", "2", "--port-base", "0", "--profile", "instant")
	const loaded, node = "example.org/loaded:v1", "images-1"
	l.testShell()
	l.runOn("node-1", "missing", "example.org/missing:v1", nil)
	l.says("load it: sudo allinone images load example.org/missing:v1 --data-dir "+l.dir, "describe", "pod", "missing")
	l.kubectl("delete", "pod", "missing", "--force")
	ctr := func(args ...string) string {
		return l.must(l.allinone, append([]string{"enter", "node-2", "/opt/machine/ctr", "-n", "k8s.io", "images"}, args...)...)
	}
	ctr("tag", agnhost, loaded)
	ctr("export", "/var/lib/containerd/loaded.tar", loaded)
	ctr("remove", loaded)
	archive := filepath.Join("/proc", fmt.Sprint(l.machinePID("i-000002")), "root/var/lib/containerd/loaded.tar")
	raw, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	truncated := filepath.Join(t.TempDir(), "truncated.tar")
	if err := os.WriteFile(truncated, raw[:len(raw)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.try(l.allinone, "images", "load", truncated); err == nil || !strings.Contains(err.Error(), "the archive is truncated") {
		t.Errorf("truncated archive: got error %v", err)
	}
	if has := l.must(l.allinone, "images", "list"); strings.Contains(has, loaded) {
		t.Errorf("images after the load of a truncated archive:\n%s", has)
	}
	l.must(l.allinone, "images", "load", archive)
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	if has := l.must(l.allinone, "images", "list", "--nodes", "node-2"); !strings.Contains(has, loaded) {
		t.Errorf("images of node-2:\n%s", has)
	}
	never := map[string]any{"containers": []map[string]any{{"name": "loaded", "image": loaded, "imagePullPolicy": "Never", "args": []string{"pause"}}}}
	l.runOn("node-2", "on-old", loaded, never)
	l.ready("on-old")

	l.cloud("instances", "create", node, "--zone", "sim-1b", "--wait")
	l.runOn(node, "on-new", loaded, never)
	l.ready("on-new")
	l.cloud("instances", "stop", node, "--wait")
	l.cloud("instances", "start", node, "--wait")
	l.kubectl("delete", "pod", "on-new", "--ignore-not-found", "--force")
	l.runOn(node, "after-stop", loaded, never)
	l.ready("after-stop")

	l.must(l.allinone, "images", "remove", loaded)
	if has := l.must(l.allinone, "images", "list"); strings.Contains(has, loaded) {
		t.Errorf("images after the removal:\n%s", has)
	}
	if _, err := l.try(l.allinone, "images", "remove", loaded); err == nil || !strings.Contains(err.Error(), "no machine has the image") {
		t.Errorf("second removal: got error %v", err)
	}
	l.kubectl("delete", "pod", "on-old", "after-stop", "--force")
	l.cloud("instances", "delete", node, "--wait")
	l.untilPrints("the node goes", "", "get", "node", node, "--ignore-not-found", "-o", "name")
}

// testShell proves that the tools of the image with a shell work in a pod.
func (l *labRun) testShell() {
	l.t.Helper()
	l.runOn("node-1", "web", agnhost, nil, "netexec", "--http-port=8080")
	l.ready("web")
	l.connects("the pod answers", "web", "localhost:8080")
	l.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=90s")
	l.runOn("node-1", "shell", lab.ShellImage, nil, "sh", "-ec", `
		ip addr | grep eth0
		nslookup kubernetes.default.svc.cluster.local
		ping -c 1 $0
		for n in 1 2 3; do wget -O - http://$0:8080/hostname; done | sort | uniq
		echo all tools work`, l.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}"))
	for _, want := range []string{
		"eth0", l.kubectl("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}"), "icmp_seq=1", "all tools work",
	} {
		l.says(want, "logs", "shell")
	}
	l.kubectl("delete", "pod", "web", "shell", "--force")
}
