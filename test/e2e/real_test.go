package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// agnhost is the image of Kubernetes' test server. Each real machine has this image.
const agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"

// realLabs limits how many labs of real nodes run at once. A lab of three real nodes uses about 50
// inotify instances of the host (docs/real-nodes.md). Many hosts allow only 128 inotify instances
// for all programs.
var realLabs = make(chan struct{}, func() int {
	raw, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if n, _ := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && n >= 512 {
		return 2
	}
	return 1
}())

// newRealLab returns a lab with real machines. Without root, it skips the test. If the files of
// `make machine` are missing, the test fails. The variable realLabs limits the number of labs with
// real machines. At this limit, newRealLab waits until one of these labs ends. A parallel test must
// call newRealLab after t.Parallel. Otherwise, t.Parallel could wait for another test, and the
// other test would wait in newRealLab for this test.
func newRealLab(t *testing.T) *labRun {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("real nodes need root")
	}
	realLabs <- struct{}{}
	t.Cleanup(func() { <-realLabs })
	l := newLab(t)
	if _, err := os.Stat(filepath.Join(filepath.Dir(l.allinone), "machine", "containerd")); err != nil {
		t.Fatalf("%v: run make machine", err)
	}
	return l
}

// hostResources returns the host's resources that belong to the lab's machines: processes, cgroups,
// links, mounts, routing rules, and nftables tables.
func (l *labRun) hostResources() []string {
	l.t.Helper()
	var all []string
	hash := l.hash()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, l.dir) {
			all = append(all, "mount "+line)
		}
	}
	hosts, err := net.Interfaces()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, i := range hosts {
		if strings.HasPrefix(i.Name, "csim-"+hash) {
			all = append(all, "link "+i.Name)
		}
	}
	if rules := l.must("ip", "rule", "show"); strings.Contains(rules, "csim-"+hash) {
		all = append(all, "rules:\n"+rules)
	}
	if tables := l.must("nft", "list", "tables"); strings.Contains(tables, "cloudsim-csim-"+hash) {
		all = append(all, "tables:\n"+tables)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/cloudsim-", "/sys/fs/cgroup/*/cloudsim-"} {
		found, err := filepath.Glob(pattern + hash)
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, found...)
	}
	for _, pid := range l.listProcesses() {
		all = append(all, fmt.Sprintf("process %s", pid))
	}
	return all
}

// hash returns the hash that identifies the lab. It is a part of the names of the lab's resources
// on the host.
func (l *labRun) hash() string {
	l.t.Helper()
	out, failed := l.runProgram(l.allinone, "status", "-o", "json") // if no lab runs, the command fails but prints the status
	for line := range strings.Lines(out) {
		if _, after, ok := strings.Cut(line, `"host": "`); ok {
			return strings.TrimRight(after, "\",\n")
		}
	}
	l.t.Fatal("status does not print the name of the lab on the host: ", failed)
	return ""
}

// listProcesses returns the pid and the name of each process in the lab's cgroups.
func (l *labRun) listProcesses() []string {
	var all []string
	group := "/cloudsim-" + l.hash()
	stats, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(raw), group) {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if bytes.Contains(stat, []byte(") Z ")) {
			continue // a zombie: its parent has not waited for it yet
		}
		all = append(all, filepath.Base(filepath.Dir(path))+" "+strings.TrimSpace(string(comm)))
	}
	return all
}

// machinePID returns the process id of the first process of an instance's machine. If this process
// does not run, machinePID returns 0.
func (l *labRun) machinePID(id string) int {
	l.t.Helper()
	for _, p := range l.listProcesses() {
		pid, name, _ := strings.Cut(p, " ")
		line, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err == nil && name == "machine" && strings.Contains(string(line), "/"+id+"/") {
			var n int
			if _, err := fmt.Sscan(pid, &n); err == nil {
				return n
			}
		}
	}
	return 0
}

// TestReal checks the statements of docs/real-nodes.md with a cluster of real machines.
func TestReal(t *testing.T) {
	t.Parallel() // this test mostly waits
	l := newRealLab(t)
	began := time.Now()
	l.must(l.allinone, "up", "--detach", "--nodes", "real", "--port-base", "0", "--profile", "instant")
	t.Logf("three real nodes are Ready after %s", time.Since(began).Round(time.Millisecond))
	l.walk(t, []step{
		{"pods", (*labRun).testRealPods},
		{"routes", (*labRun).testRealRoutes},
		{"load balancer", (*labRun).testRealLoadBalancer},
		{"figures", (*labRun).testFigures},
		{"metadata", (*labRun).testRealMetadata},
		{"private images", (*labRun).testRealPull},
		{"tunnel", (*labRun).testRealTunnel},
		{"client addresses", (*labRun).testRealClientAddress},
		{"UDP", (*labRun).testRealUDP},
		{"affinity", (*labRun).testRealAffinity},
		{"draining", (*labRun).testRealDraining},
		{"zone outage", (*labRun).testRealZoneOutage},
		{"instances", (*labRun).testRealInstances},
		{"SIGKILL of a machine", (*labRun).testRealCrash},
		{"SIGKILL of the lab", (*labRun).testRealAdoption},
		{"rolling replacement", (*labRun).testRealReplacement},
		{"cleanup", (*labRun).testRealCleanup},
	})
}

// podsByNode returns the name and the address of a deployment's pod on each node.
func (l *labRun) podsByNode(name string) map[string][2]string {
	l.t.Helper()
	all := map[string][2]string{}
	for line := range strings.Lines(l.kubectl("get", "pods", "-l", "app="+name, "-o",
		`jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name} {.status.podIP}{"\n"}{end}`)) {
		if f := strings.Fields(line); len(f) == 3 {
			all[f[0]] = [2]string{f[1], f[2]}
		}
	}
	return all
}

// testRealPods proves that pods run on every node. The pods reach each other by address and through
// the Service, and reach the API server. kubectl can read their logs.
func (l *labRun) testRealPods(t *testing.T) {
	if hostname := l.must(l.allinone, "enter", "node-1", "hostname"); hostname != "node-1" {
		t.Errorf("hostname on node-1: got %q", hostname)
	}
	if _, err := l.runProgram(l.allinone, "enter", "node-9", "hostname"); err == nil || !strings.Contains(err.Error(), `no machine has the name "node-9"`) {
		t.Errorf("enter of a missing node: %v", err)
	}
	l.kubectl("create", "deployment", "web", "--image="+agnhost, "--replicas=3", "--", "/agnhost", "netexec", "--http-port=8080")
	l.kubectl("expose", "deployment", "web", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	l.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	l.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=90s")
	pods := l.podsByNode("web")
	if len(pods) != 3 {
		t.Fatalf("the pods are not on three different nodes: %v", pods)
	}
	for node, pod := range pods {
		for other, to := range pods {
			l.connects(fmt.Sprintf("%s reaches a pod of %s", node, other), pod[0], to[1]+":8080")
		}
		l.connects(node+" reaches the Service", pod[0], "web.default.svc.cluster.local:80")
		l.connects(node+" reaches the API server", pod[0], "kubernetes.default:443")
		l.awaitOutput("Started HTTP server", "logs", pod[0])
	}
}

// connects waits until a pod can connect to the given address. The first attempts may fail,
// although the pod that listens at the address is Ready. Its program may not listen yet, or a
// kube-proxy may have no rules for the pod yet. The route to the node's pods may also not exist
// yet.
func (l *labRun) connects(condition, pod, address string) {
	l.t.Helper()
	l.awaitEmpty(condition, func() string {
		if _, err := l.runProgram(l.kubectlPath(), "exec", pod, "--", "/agnhost", "connect", "--timeout=5s", address); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (l *labRun) testRealRoutes(t *testing.T) {
	pods := l.podsByNode("web")
	l.testRouteRepair(t, pods["node-1"][0], pods["node-2"][1]+":8080")
}

// testRouteRepair proves that a pod on node-1 reaches the address of a pod on node-2 only through a
// route in the cloud. The route controller replaces a deleted route.
func (l *labRun) testRouteRepair(t *testing.T, pod, to string) {
	t.Helper()
	reach := func() error {
		_, err := l.runProgram(l.kubectlPath(), "exec", pod, "--", "/agnhost", "connect", "--timeout=2s", to)
		return err
	}
	if err := reach(); err != nil {
		t.Fatal(err)
	}
	pods2 := l.kubectl("get", "node", "node-2", "-o", "jsonpath={.spec.podCIDR}")
	var id string
	for line := range strings.Lines(l.cloud("routes", "list", "--no-headers")) {
		if f := strings.Fields(line); slices.Contains(f, pods2) {
			id = f[0]
		}
	}
	if id == "" {
		t.Fatalf("the cloud has no route to the pods %s of node-2", pods2)
	}
	// Without this fault, the route controller would create the route again within ten seconds.
	// Then the test might not see that the pods are unreachable without the route.
	l.cloud("faults", "create", "unrepaired", "--operation", "routes.create", "--effect", "error")
	l.cloud("routes", "delete", id, "--wait")
	l.awaitEmpty("the pods of node-2 are unreachable", func() string {
		if reach() == nil {
			return "they are reached without a route"
		}
		return ""
	})
	l.cloud("faults", "delete", "unrepaired")
	l.awaitEmpty("the route controller creates the route again, and the pods are reachable", func() string {
		if err := reach(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// answersFrom sends n requests to a load balancer and counts the answers of each pod.
func (l *labRun) answersFrom(url string, n int) (map[string]int, error) {
	seen := map[string]int{}
	for range n {
		pod, err := fetch(url + "hostname")
		if err != nil {
			return seen, err
		}
		seen[pod]++
	}
	return seen, nil
}

// everyPod waits until each of the load balancer's three pods has answered a request.
func (l *labRun) everyPod(url string) {
	l.t.Helper()
	l.awaitEmpty("each pod receives requests", func() string {
		if seen, err := l.answersFrom(url, 60); err != nil || len(seen) != 3 {
			return fmt.Sprint(seen, err)
		}
		return ""
	})
}

func (l *labRun) realURL(service string) string {
	l.t.Helper()
	l.kubectl("wait", "service", service, "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=60s")
	return "http://" + l.kubectl("get", "service", service, "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}") + "/"
}

func (l *labRun) testRealLoadBalancer(*testing.T) {
	l.everyPod(l.realURL("web"))
}

// testRealInstances proves that the machine of a stopped instance is off. It also proves that the
// instance's Node is Ready again after a start of the instance. The cloud controller manager
// deletes the Node of a deleted instance, and the machine of a new instance joins the cluster.
func (l *labRun) testRealInstances(t *testing.T) {
	l.cloud("instances", "stop", "node-1", "--wait")
	l.awaitEmpty("the machine is stopped", func() string {
		if pid := l.machinePID("i-000001"); pid != 0 {
			return fmt.Sprintf("pid %d runs", pid)
		}
		return ""
	})
	began := time.Now()
	l.cloud("instances", "start", "node-1", "--wait")
	l.awaitEmpty("the machine is started", func() string {
		if l.machinePID("i-000001") == 0 {
			return "no process"
		}
		return ""
	})
	l.kubectl("wait", "node", "node-1", "--for=condition=Ready", "--timeout=90s")
	t.Logf("Ready %s after start", time.Since(began).Round(time.Millisecond))

	l.cloud("instances", "delete", "node-2", "--wait")
	l.untilPrints("the cloud controller manager deletes the node", "", "get", "node", "node-2", "--ignore-not-found", "-o", "name")
	began = time.Now()
	l.cloud("instances", "create", "node-4", "--zone", "sim-1b", "--wait")
	l.untilPrints("a new instance joins", "True", "get", "node", "node-4", "--ignore-not-found",
		"-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	t.Logf("from POST to Ready: %s", time.Since(began).Round(time.Millisecond))
	l.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
}

// testRealCrash kills the first process of a machine. Later it crashes the instance with the
// cloud's API. It proves that all processes of the machine end. After the crash, requests may fail
// only until the load balancer stops using the crashed machine. A reboot of the instance starts the
// machine again.
func (l *labRun) testRealCrash(t *testing.T) {
	pid := l.machinePID("i-000003")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("machine of node-3 (pid %d): %v", pid, err)
	}
	l.awaitEmpty("all processes of the machine ended", func() string {
		if pid := l.machinePID("i-000003"); pid != 0 {
			return fmt.Sprintf("pid %d", pid)
		}
		return ""
	})
	l.rebootCrashed(t)
	l.movesAway(t, func() { l.cloud("instances", "crash", "node-3") })
	if pid := l.machinePID("i-000003"); pid != 0 {
		t.Errorf("process %d still runs after a crash", pid)
	}
	l.rebootCrashed(t)
}

func (l *labRun) rebootCrashed(t *testing.T) {
	t.Helper()
	l.cloud("instances", "reboot", "node-3", "--wait")
	l.awaitEmpty("the machine is started again", func() string {
		if l.machinePID("i-000003") == 0 {
			return "no process"
		}
		return ""
	})
	l.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=90s")
}

// testRealAdoption proves that machines keep running after the test kills the lab. The next start
// of the lab takes the machines over, and the containers in the machines keep running.
func (l *labRun) testRealAdoption(t *testing.T) {
	l.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	before := l.machinePID("i-000001")
	// An earlier step of TestReal crashes a machine. After the crash, the API server shows old pod
	// states until the kubelet has started the pods again. So the test waits until each pod answers
	// through the Service named "drain". A node sends the traffic of this Service only to the
	// node's own pods. So each answer also proves that the load balancer uses the pod's node.
	l.everyPod(l.realURL("drain"))
	pods := l.podsByNode("web")
	if err := syscall.Kill(l.status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.must(l.allinone, "up", "--detach", "--nodes", "real")
	if after := l.machinePID("i-000001"); after != before || after == 0 {
		t.Errorf("the pid of the machine changed to %d after the lab was killed, from %d", after, before)
	}
	if now := l.podsByNode("web"); fmt.Sprint(now) != fmt.Sprint(pods) {
		t.Errorf("the pods changed to %v, from %v", now, pods)
	}
	url := l.realURL("web")
	l.awaitEmpty("the load balancer answers", func() string {
		if _, err := l.answersFrom(url, 20); err != nil {
			return err.Error()
		}
		return ""
	})
}

// testRealCleanup proves that `allinone down` deletes all resources that a killed lab has left on
// the host.
func (l *labRun) testRealCleanup(t *testing.T) {
	if len(l.hostResources()) == 0 {
		t.Fatal("the check does not find a running lab")
	}
	if err := syscall.Kill(l.status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.must(l.allinone, "down")
	if left := l.hostResources(); len(left) > 0 {
		t.Errorf("remaining after down:\n%s", strings.Join(slices.Sorted(slices.Values(left)), "\n"))
	}
	l.must(l.allinone, "reset", "--yes")
}
