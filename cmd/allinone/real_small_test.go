package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRealSmall is the least that real machines are: two that join, run pods with
// a limit, and go, each without a trace. It is for a slow host, and for one
// whose only cgroups are those of v2.
func TestRealSmall(t *testing.T) {
	l := newRealLab(t)
	if *patience == 1 {
		t.Skip("TestReal has all of this, and more; make vm-test runs it where that takes too long")
	}
	began := time.Now()
	l.must(l.allinone, "up", "--detach", "--nodes", "real", "--instances", "2", "--port-base", "0", "--profile", "instant", "--timeout", patiently(2*time.Minute).String())
	t.Logf("two real nodes after %s", time.Since(began).Round(time.Millisecond))
	l.walk(t, []step{
		{"pods", (*labRun).testSmallPods},
		{"sizes", (*labRun).testSmallSizes},
		{"an instance goes", (*labRun).testSmallDelete},
		{"nothing is left", (*labRun).testRealCleanup},
	})
}

// onePodEach is a pod on each node, with a limit.
const onePodEach = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: web
        image: ` + agnhost + `
        args: [netexec, --http-port=8080]
        resources: {limits: {memory: 96Mi, cpu: 500m}}
`

// Pods run on both nodes and reach each other; logs and exec work.
func (l *labRun) testSmallPods(t *testing.T) {
	l.apply(onePodEach)
	l.untilPrints("a pod on each node is ready", "2", "get", "daemonset", "web", "-o", "jsonpath={.status.numberReady}")
	pods := l.podsByNode("web")
	for node, pod := range pods {
		l.says("Started HTTP server", "logs", pod[0])
		for other, to := range pods {
			l.connects(fmt.Sprintf("%s reaches the pod of %s", node, other), pod[0], to[1]+":8080")
		}
	}
}

// The kernel holds a machine to its type's size, and in it a pod to its limit.
func (l *labRun) testSmallSizes(t *testing.T) {
	const v2 = "/sys/fs/cgroup/cgroup.controllers"
	if raw, err := os.ReadFile(v2); err != nil || !strings.Contains(string(raw), "memory") {
		t.Skipf("this host's memory is in cgroups of v1: %v", err)
	}
	machine := "/sys/fs/cgroup/cloudsim-" + l.hash() + "/i-000001"
	for file, want := range map[string]string{
		"memory.max":                 fmt.Sprint(4 << 30),
		"cpu.max":                    "200000 100000",
		"kubepods/pod*/memory.max":   fmt.Sprint(96 << 20),
		"kubepods/pod*/cpu.max":      "50000 100000",
		"kubepods/pod*/*/memory.max": fmt.Sprint(96 << 20), // a container, or the sandbox
	} {
		found, err := filepath.Glob(filepath.Join(machine, file))
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, path := range found {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, strings.TrimSpace(string(raw)))
		}
		if !slices.Contains(have, want) {
			t.Errorf("%s is %v, want %s", file, have, want)
		}
	}
}

// The node of an instance that is deleted goes, and its machine with all that it
// had; the other serves on.
func (l *labRun) testSmallDelete(t *testing.T) {
	l.cloud("instances", "delete", "node-2", "--wait")
	l.untilPrints("the node goes", "", "get", "node", "node-2", "--ignore-not-found", "-o", "name")
	for _, what := range l.left() {
		if strings.Contains(what, "i-000002") {
			t.Errorf("its machine leaves %s", what)
		}
	}
	l.untilPrints("the other has its pod", "1", "get", "daemonset", "web", "-o", "jsonpath={.status.numberReady}")
}
