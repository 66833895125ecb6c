package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRealMachineBasics tests the basic functions of a real machine. The machine joins the cluster
// and runs a pod with limits. After the deletion of the instance, nothing of the machine remains on
// the host. The test is for slow hosts and for hosts with only cgroup v2.
func TestRealMachineBasics(t *testing.T) {
	l := newRealLab(t)
	if *timeFactor == 1 {
		t.Skip("TestReal contains these checks; make vm-test runs this test on slow machines")
	}
	began := time.Now()
	l.must(l.allinone, "up", "--detach", "--nodes", "real", "--instances", "1", "--port-base", "0", "--profile", "instant",
		"--volumes=false", "--network-proxy=false", "--timeout", scaled(2*time.Minute).String())
	t.Logf("a real node after %s", time.Since(began).Round(time.Millisecond))
	l.walk(t, []step{
		{"pods", (*labRun).testSmallPods},
		{"sizes", (*labRun).testSmallSizes},
		{"delete an instance", (*labRun).testSmallDelete},
		{"cleanup", (*labRun).testRealCleanup},
	})
}

const limitedPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: ` + agnhost + `
    args: [netexec, --http-port=8080]
    resources: {limits: {memory: 96Mi, cpu: 500m}}
`

// testSmallPods proves that a pod runs and that its logs and network work.
func (l *labRun) testSmallPods(t *testing.T) {
	l.apply(limitedPod)
	l.awaitReady("web")
	l.awaitOutput("Started HTTP server", "logs", "web")
	l.connects("it reaches itself", "web", "localhost:8080")
	l.connects("it reaches the API server", "web", "kubernetes.default:443")
}

// testSmallSizes proves that the kernel limits a machine to the size of the instance type, and
// limits a pod in the machine to the pod's limits.
func (l *labRun) testSmallSizes(t *testing.T) {
	const v2 = "/sys/fs/cgroup/cgroup.controllers"
	if raw, err := os.ReadFile(v2); err != nil || !strings.Contains(string(raw), "memory") {
		t.Skipf("this host has the memory controller of cgroup v1: %v", err)
	}
	machine := "/sys/fs/cgroup/cloudsim-" + l.hash() + "/i-000001"
	for file, want := range map[string]string{
		"memory.max":                 fmt.Sprint(int64(4 << 30)),
		"cpu.max":                    "200000 100000",
		"kubepods/pod*/memory.max":   fmt.Sprint(96 << 20),
		"kubepods/pod*/cpu.max":      "50000 100000",
		"kubepods/pod*/*/memory.max": fmt.Sprint(96 << 20), // the cgroup of a container or of the pod's sandbox
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

// testSmallDelete proves that the deletion of an instance deletes its Node and all resources of its
// machine.
func (l *labRun) testSmallDelete(t *testing.T) {
	l.cloud("instances", "delete", "node-1", "--wait")
	l.untilPrints("the node goes", "", "get", "node", "node-1", "--ignore-not-found", "-o", "name")
	for _, resource := range l.hostResources() {
		if strings.Contains(resource, "i-000001") {
			t.Errorf("%s still exists after the deletion of the machine", resource)
		}
	}
}
