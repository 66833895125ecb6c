package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cloudsim-dev/allinone/lab"
)

// TestRealImages proves that running machines get images from an archive, stdin, an OCI layout
// directory, a container engine and --image-archives. A new machine also has the loaded image, and
// keeps it after a stop and a start. After the removal of an image, no machine has the image. The
// load of a bad archive changes nothing.
func TestRealImages(t *testing.T) {
	t.Parallel() // this test mostly waits
	l := newRealLab(t)
	const archived, loaded, fromLayout, node = "example.org/archived:v1", "example.org/loaded:v1", "example.org/layout:v1", "images-1"
	archives, dir := t.TempDir(), t.TempDir()
	archive, other, layoutDir := filepath.Join(archives, "archived.tar"), filepath.Join(dir, "loaded.tar"), filepath.Join(dir, "layout")
	image := pauseImage(t, filepath.Dir(l.allinone))
	folder, err := layout.Write(layoutDir, empty.Index)
	if err == nil {
		err = folder.AppendImage(image, layout.WithAnnotations(map[string]string{"io.containerd.image.name": fromLayout}))
	}
	err = errors.Join(err, tarball.WriteToFile(archive, name.MustParseReference(archived), image), tarball.WriteToFile(other, name.MustParseReference(loaded), image))
	if err != nil {
		t.Fatal(err)
	}
	l.must(l.allinone, "up", "--detach", "--nodes", "real", "--instances", "2", "--port-base", "0", "--profile", "instant", "--image-archives", archives)
	l.testShell()
	has := func(image string, nodes ...string) {
		t.Helper()
		var all []struct {
			Name  string
			Nodes []string
		}
		if err := json.Unmarshal([]byte(l.must(l.allinone, "images", "list", "-o", "json")), &all); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range all {
			if i.Name == image {
				got = i.Nodes
			}
		}
		if !slices.Equal(got, nodes) {
			t.Errorf("nodes with the image %s: got %v, want %v", image, got, nodes)
		}
	}
	has(archived, "node-1", "node-2")
	has(lab.ShellImage, "node-1", "node-2")
	l.runOn("node-1", "missing", "example.org/missing:v1", nil)
	l.awaitOutput("load it: sudo allinone images load example.org/missing:v1 --data-dir "+l.dir, "describe", "pod", "missing")
	l.kubectl("delete", "pod", "missing", "--force")

	truncated := filepath.Join(dir, "truncated.tar")
	raw, err := os.ReadFile(archive)
	if err == nil {
		err = os.WriteFile(truncated, raw[:len(raw)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.runProgram(l.allinone, "images", "load", truncated); err == nil || !strings.Contains(err.Error(), "the archive is truncated") {
		t.Errorf("truncated archive: got error %v", err)
	}
	l.must("sh", "-c", `"$0" images load - --nodes node-2 <"$1"`, l.allinone, other)
	has(loaded, "node-2")
	l.must(l.allinone, "images", "load", other, layoutDir)
	has(loaded, "node-1", "node-2")
	has(fromLayout, "node-1", "node-2")
	l.must(l.allinone, "images", "remove", archived)
	has(archived)
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Logf("NOT RUN: the load from a container engine: %v", err)
	} else {
		l.must("../../hack/with-engine", "sh", "-c", `docker load -i "$0" && "$1" images load "$2"`, archive, l.allinone, archived)
		has(archived, "node-1", "node-2")
	}
	never := map[string]any{"containers": []map[string]any{{"name": "loaded", "image": loaded, "imagePullPolicy": "Never"}}}
	l.runOn("node-2", "on-old", loaded, never)
	l.awaitReady("on-old")

	l.cloud("instances", "create", node, "--zone", "sim-1b", "--wait")
	l.untilPrints("the node joins", "node/"+node, "get", "node", node, "--ignore-not-found", "-o", "name") // the pod garbage collector deletes pods of missing nodes
	l.runOn(node, "on-new", loaded, never)
	l.awaitReady("on-new")
	l.cloud("instances", "stop", node, "--wait")
	l.cloud("instances", "start", node, "--wait")
	l.kubectl("delete", "pod", "on-new", "--ignore-not-found", "--force")
	l.runOn(node, "after-stop", loaded, never)
	l.awaitReady("after-stop")

	l.must(l.allinone, "images", "remove", loaded)
	has(loaded)
	if _, err := l.runProgram(l.allinone, "images", "remove", loaded); err == nil || !strings.Contains(err.Error(), "no running machine has the image") {
		t.Errorf("second removal: got error %v", err)
	}
	l.kubectl("delete", "pod", "on-old", "after-stop", "--force")
	l.cloud("instances", "delete", node, "--wait")
	l.untilPrints("the node goes", "", "get", "node", node, "--ignore-not-found", "-o", "name")
}

// testShell proves that the tools of the image lab.ShellImage work in a pod.
func (l *labRun) testShell() {
	l.t.Helper()
	l.runOn("node-1", "web", agnhost, nil, "netexec", "--http-port=8080")
	l.awaitReady("web")
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
		l.awaitOutput(want, "logs", "shell")
	}
	l.kubectl("delete", "pod", "web", "shell", "--force")
}
