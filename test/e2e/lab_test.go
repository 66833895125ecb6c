package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// timeFactor multiplies all time limits of the tests. Slow hosts need a factor above 1. An example
// is the virtual machine of `make vm-test`.
var timeFactor = flag.Int("time-factor", 1, "how many `times` longer than usual all of a lab may take")

func scaled(d time.Duration) time.Duration { return d * time.Duration(*timeFactor) }

// labRun is a lab. A test controls the lab as a user does: it runs only the programs bin/allinone
// and kubectl.
type labRun struct {
	t        *testing.T
	allinone string
	dir      string
	enter    []string // command that runs programs in other namespaces; nil means the test's own
}

// labStatus is the part of `allinone status -o json` that the tests need.
type labStatus struct {
	PID        int
	Ready      bool
	Components []labComponent
}

type labComponent struct {
	Name, Address          string
	PID, Restarts          int
	Ready, Inside          bool
	Resident, Proportional int64
}

// newLab returns a lab in a new folder. If the binaries of `make build` are missing, the test
// fails.
func newLab(t *testing.T) *labRun {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a cluster: run make e2e")
	}
	bin, err := filepath.Abs("../../bin/allinone")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{bin, filepath.Join(filepath.Dir(bin), "kube")} {
		if _, err := os.Stat(name); err != nil {
			t.Fatalf("%v: run make build", err)
		}
	}
	l := &labRun{t: t, allinone: bin, dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			l.copyLogs()
		}
		l.stopLab()
	})
	return l
}

func (l *labRun) stopLab() {
	_ = l.command(context.Background(), l.allinone, "down").Run()
}

func (l *labRun) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	all := slices.Concat(l.enter, []string{name}, args)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Env = l.env()
	return cmd
}

// copyLogs copies the logs of the lab after a failed test, and prints the end of each log.
func (l *labRun) copyLogs() {
	kept := filepath.Join(filepath.Dir(l.allinone), "failed", l.t.Name())
	if err := errors.Join(os.RemoveAll(kept), os.CopyFS(kept, os.DirFS(filepath.Join(l.dir, "logs")))); err != nil {
		l.t.Log(err)
	}
	logs, _ := filepath.Glob(filepath.Join(kept, "*.log"))
	for _, path := range logs {
		raw, _ := os.ReadFile(path)
		l.t.Logf("--- last lines of %s\n%s", path, raw[max(0, len(raw)-300):])
	}
}

func (l *labRun) env() []string {
	return append(os.Environ(), "CLOUDSIM_DATA_DIR="+l.dir, "KUBECONFIG="+filepath.Join(l.dir, "kubeconfig"))
}

func (l *labRun) runProgram(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), scaled(2*time.Minute))
	defer cancel()
	cmd := l.command(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (l *labRun) must(name string, args ...string) string {
	l.t.Helper()
	out, err := l.runProgram(name, args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l *labRun) cloud(args ...string) string {
	l.t.Helper()
	return l.must(l.allinone, append([]string{"cloud"}, args...)...)
}

func (l *labRun) kubectlPath() string { return filepath.Join(l.dir, "bin", "kubectl") }

func (l *labRun) kubectl(args ...string) string {
	l.t.Helper()
	return l.must(l.kubectlPath(), args...)
}

// awaitEmpty calls checkFn until checkFn returns "". If checkFn does not return "" within 90
// s, the test fails with the last text that checkFn returned.
func (l *labRun) awaitEmpty(condition string, checkFn func() string) {
	l.t.Helper()
	l.within(90*time.Second, condition, checkFn)
}

func (l *labRun) within(most time.Duration, condition string, ok func() string) {
	l.t.Helper()
	most, begin := scaled(most), time.Now()
	for {
		reason := ok()
		if reason == "" {
			l.t.Logf("%s after %.1f s", condition, time.Since(begin).Seconds())
			return
		}
		if time.Since(begin) > most {
			l.t.Fatalf("timeout after %s: %s: %s", most, condition, reason)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// untilPrints waits until the output of kubectl equals the expected output.
func (l *labRun) untilPrints(condition, expected string, args ...string) {
	l.t.Helper()
	l.awaitEmpty(condition, func() string {
		if got, err := l.runProgram(l.kubectlPath(), args...); err != nil || got != expected {
			return fmt.Sprintf("%q, %v; want %q", got, err, expected)
		}
		return ""
	})
}

func (l *labRun) status() (s labStatus) {
	l.t.Helper()
	out, failed := l.runProgram(l.allinone, "status", "-o", "json") // if no lab runs, the command fails but prints the status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		l.t.Fatal(errors.Join(err, failed))
	}
	return s
}

func (l *labRun) component(name string) labComponent {
	l.t.Helper()
	for _, c := range l.status().Components {
		if c.Name == name {
			return c
		}
	}
	l.t.Fatalf("%s does not run", name)
	return labComponent{}
}

// processIDs returns the process ids of the components that are separate processes, by component.
// It leaves out the process of the lab itself.
func (l *labRun) processIDs() map[string]int {
	l.t.Helper()
	m := map[string]int{}
	for _, c := range l.status().Components {
		if !c.Inside && c.PID != 0 && c.Name != "lab" {
			m[c.Name] = c.PID
		}
	}
	return m
}

// page fetches a URL. It finds the first line of the form KEY: VALUE that begins with key, and
// returns VALUE.
func page(url, key string) (string, error) {
	body, err := fetch(url)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(body) {
		if v, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("no %s in %q", key, body)
}

// fetch gets a URL over a new connection. It returns an error if the status is not 200.
func fetch(url string) (string, error) {
	hc := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := hc.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, raw)
	}
	return string(raw), err
}

// serve creates a Service of type LoadBalancer with three pods. It waits until the load balancer
// answers, and returns the load balancer's URL.
func (l *labRun) serve(name string) string {
	l.t.Helper()
	l.kubectl("create", "deployment", name, "--image=web", "--replicas=3")
	l.kubectl("expose", "deployment", name, "--type=LoadBalancer", "--port=8080")
	l.kubectl("wait", "service", name, "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=60s")
	url := "http://" + l.kubectl("get", "service", name, "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}") + ":8080/"
	l.answers(url)
	return url
}

func (l *labRun) answers(url string) {
	l.t.Helper()
	l.awaitEmpty(url+" answers", func() string {
		if _, err := page(url, "service"); err != nil {
			return err.Error()
		}
		return ""
	})
}

// answersByNode sends 60 requests and counts the answers of each node. No request may fail.
func (l *labRun) answersByNode(url string) map[string]int {
	l.t.Helper()
	seen := map[string]int{}
	for range 60 {
		node, err := page(url, "node")
		if err != nil {
			l.t.Fatal(err)
		}
		seen[node]++
	}
	return seen
}

// TestLab starts a real cluster on a simulated cloud and checks the statements of the README.
func TestLab(t *testing.T) {
	l := newLab(t)
	l.must(l.allinone, "up", "--detach", "--port-base", "0")

	l.walk(t, []step{
		{"nodes", (*labRun).testNodes},
		{"instances", (*labRun).testInstances},
		{"load balancer", (*labRun).testLoadBalancer},
		{"web console", (*labRun).testConsole},
		{"figures", (*labRun).testFigures},
		{"SIGKILL of each component", (*labRun).testKillComponents},
		{"SIGKILL of the lab", (*labRun).testKillLab},
		{"down and reset", (*labRun).testDown},
	})
}

type step struct {
	name string
	run  func(*labRun, *testing.T)
}

// walk runs the steps in the order of the list and stops at the first failure, because each step
// depends on the previous step.
func (l *labRun) walk(t *testing.T, steps []step) {
	for _, s := range steps {
		if !t.Run(s.name, func(t *testing.T) {
			mine := *l
			mine.t = t
			s.run(&mine, t)
		}) {
			return
		}
	}
}

// testNodes proves that the labels, the provider id and the addresses of a Node have the values of
// the cloud. The Node's events show that the controllers of k8s.io/cloud-provider set these values.
func (l *labRun) testNodes(t *testing.T) {
	for i, zone := range []string{"sim-1a", "sim-1b", "sim-1c"} {
		name := fmt.Sprintf("node-%d", i+1)
		var vm struct {
			ProviderID string
			Addresses  []struct{ Type, Address string }
		}
		if err := json.Unmarshal([]byte(l.cloud("instances", "get", name, "-o", "json")), &vm); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%s sim-1 %s small %s True", vm.ProviderID, zone, vm.Addresses[0].Address)
		l.untilPrints(name+" is all that the cloud knows of it, and has no taint", want,
			"get", "node", name, "-o", `jsonpath={.spec.providerID} {.metadata.labels.topology\.kubernetes\.io/region} `+
				`{.metadata.labels.topology\.kubernetes\.io/zone} {.metadata.labels.node\.kubernetes\.io/instance-type} `+
				`{.status.addresses[?(@.type=="InternalIP")].address} {.status.conditions[?(@.type=="Ready")].status} {.spec.taints}`)
		l.untilPrints(name+" was initialized by the cloud-node-controller", "cloud-node-controller",
			"get", "events", "--field-selector", "reason=Synced,involvedObject.name="+name, "-o", "jsonpath={.items[0].source.component}")
	}
}

func (l *labRun) testInstances(*testing.T) {
	const taint = `jsonpath={.spec.taints[?(@.key=="node.cloudprovider.kubernetes.io/shutdown")].effect}`
	l.cloud("instances", "stop", "node-1", "--wait")
	l.untilPrints("a stopped instance's node has the shutdown taint", "NoSchedule", "get", "node", "node-1", "-o", taint)
	l.cloud("instances", "start", "node-1", "--wait")
	l.untilPrints("a started one's has lost it", "", "get", "node", "node-1", "-o", taint)
	l.kubectl("wait", "node", "node-1", "--for=condition=Ready", "--timeout=60s")

	l.cloud("instances", "delete", "node-2", "--wait")
	l.untilPrints("a deleted instance's node is gone", "", "get", "node", "node-2", "--ignore-not-found", "-o", "name")
	l.cloud("instances", "create", "node-4", "--zone", "sim-1b", "--wait")
	l.untilPrints("a new instance's node is initialized", "sim-1b",
		"get", "node", "node-4", "--ignore-not-found", "-o", `jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}`)
	l.kubectl("wait", "node", "node-4", "--for=condition=Ready", "--timeout=60s")
}

// testConsole proves that a user can sign in with a link of the lab's console, and that the console
// shows the cloud and the cluster.
func (l *labRun) testConsole(t *testing.T) {
	at := l.component("console").Address
	link := strings.TrimSpace(l.must(l.allinone, "console", "link"))
	code, ok := strings.CutPrefix(link, at+"/console/#c=")
	if !ok {
		t.Fatalf("link: got %s, want one of the console at %s", link, at)
	}
	resp, err := http.Post(at+"/console/session", "application/json", strings.NewReader(`{"code":"`+code+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var session struct{ Token string }
	if err := json.NewDecoder(resp.Body).Decode(&session); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("session: %s, %v", resp.Status, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scaled(time.Minute))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/console/scene", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+session.Token)
	scene, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer scene.Body.Close()
	live, nodes := false, false
	for lines := bufio.NewReader(scene.Body); !live || !nodes; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the scene never showed a live cluster (%t) and its nodes (%t): %v", live, nodes, err)
		}
		live = live || strings.Contains(line, `"cluster":{"live":true`)
		nodes = nodes || strings.Contains(line, `"node":[{"name":"node-`)
	}
}

func (l *labRun) testLoadBalancer(*testing.T) {
	url := l.serve("web")
	l.awaitEmpty("all three nodes receive connections", func() string {
		if seen := l.answersByNode(url); len(seen) != 3 || slices.Min([]int{seen["node-1"], seen["node-3"], seen["node-4"]}) < 10 {
			return fmt.Sprint(seen)
		}
		return ""
	})
	l.cloud("instances", "stop", "node-3", "--wait")
	l.awaitEmpty("a stopped node receives no connections, and no client gets an error", func() string {
		if seen := l.answersByNode(url); seen["node-3"] != 0 {
			return fmt.Sprint(seen)
		}
		return ""
	})
	l.cloud("instances", "start", "node-3", "--wait")
	l.awaitEmpty("the started node receives connections again", func() string {
		if seen := l.answersByNode(url); seen["node-3"] == 0 {
			return fmt.Sprint(seen)
		}
		return ""
	})
	l.kubectl("delete", "service", "web")
	l.awaitEmpty("the load balancer and its address are deleted", func() string {
		return l.cloud("load-balancers", "list", "-o", "name") + l.cloud("addresses", "list", "-o", "name")
	})
	l.kubectl("delete", "deployment", "web")
}

// testKillComponents kills each process of the lab. It proves that the cluster recovers and keeps
// every acknowledged write.
func (l *labRun) testKillComponents(t *testing.T) {
	url := l.serve("shop")
	for i, name := range []string{"cloudsim", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "ccm", "kwok"} {
		mark := fmt.Sprintf("mark-%d", i)
		l.kubectl("create", "configmap", mark, "--from-literal=key="+name)
		l.cloud("addresses", "create", mark)
		pid := l.processIDs()[name]
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("%s (pid %d): %v", name, pid, err)
		}
		l.awaitEmpty(name+" is back", func() string {
			s := l.status()
			for _, c := range s.Components {
				if c.Name == name && (c.PID == pid || !c.Ready) {
					return fmt.Sprintf("pid %d, ready %v", c.PID, c.Ready)
				}
			}
			return ""
		})
		l.untilPrints("the cluster kept what it had acknowledged", name, "get", "configmap", mark, "-o", "jsonpath={.data.key}")
		l.cloud("addresses", "get", mark)
		l.answers(url)
	}
	// Check that all components still work together.
	l.cloud("instances", "create", "node-5", "--zone", "sim-1a", "--wait")
	l.untilPrints("a new instance's node is initialized", "cloudsim://sim-1/sim-1a/i-000005", "get", "node", "node-5", "--ignore-not-found", "-o", "jsonpath={.spec.providerID}")
	l.awaitEmpty("the new node receives connections", func() string {
		if seen := l.answersByNode(url); seen["node-5"] == 0 {
			return fmt.Sprint(seen)
		}
		return ""
	})
}

// testKillLab kills the lab itself, and proves that no process remains. The next `allinone up`
// restores the cluster and the cloud with their old contents.
func (l *labRun) testKillLab(t *testing.T) {
	identity := func() string {
		return l.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}") + "\n" + l.cloud("instances", "list", "-o", "name")
	}
	before, pids := identity(), l.processIDs()
	if err := syscall.Kill(l.status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.awaitEmpty("all processes ended", func() string { return stillRun(pids) })
	l.must(l.allinone, "up", "--detach")
	if after := identity(); after != before {
		t.Errorf("the cluster or the cloud changed: got %s, want %s", after, before)
	}
	url := "http://" + l.kubectl("get", "service", "shop", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}") + ":8080/"
	l.answers(url)
	l.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=60s")
	if out, err := l.runProgram(l.allinone, "up", "--detach"); err == nil {
		t.Errorf("up in the directory of a running lab succeeded: %s", out)
	}
}

func (l *labRun) testDown(t *testing.T) {
	pids := l.processIDs()
	l.must(l.allinone, "down")
	if left := stillRun(pids); left != "" {
		t.Errorf("remaining after down: %s", left)
	}
	if _, err := l.runProgram(l.allinone, "reset"); err == nil {
		t.Error("reset without --yes did not fail")
	}
	l.must(l.allinone, "reset", "--yes")
	if left, err := os.ReadDir(l.dir); err == nil && len(left) > 0 {
		t.Errorf("reset did not delete %v", left)
	}
}

func stillRun(pids map[string]int) string {
	var left []string
	for name, pid := range pids {
		if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !bytes.Contains(raw, []byte(") Z ")) {
			left = append(left, name)
		}
	}
	return strings.Join(left, ", ")
}
