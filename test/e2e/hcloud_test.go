package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var updateGolden = flag.Bool("update", false, "write the golden files of this package")

// foreignProgram returns the path of another provider's program. The environment variable
// FOREIGN_BIN_DIR is the folder of these programs. If the variable is not set, foreignProgram skips
// the test.
func foreignProgram(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("FOREIGN_BIN_DIR")
	if dir == "" {
		t.Skip("NOT RUN: FOREIGN_BIN_DIR is not set; it is the folder with " + name)
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// hetzner is a lab that runs Hetzner's cloud controller manager.
type hetzner struct {
	*labRun
	ccm  string
	seen map[string]bool // ids of the requests before the restart
}

// TestHetznerCCM runs Hetzner's unmodified cloud controller manager in a lab. It compares the
// calls of this program with the file testdata/hcloud-ccm.golden.
func TestHetznerCCM(t *testing.T) {
	h := &hetzner{ccm: foreignProgram(t, "hcloud-cloud-controller-manager"), labRun: newLab(t), seen: map[string]bool{}}
	t.Parallel() // this test needs little CPU time
	h.must(h.allinone, "up", "--detach", "--port-base", "0", "--ccm", "none", "--dialect", "hcloud", "--profile", "instant")
	stop := h.startManager(t)
	for i := range 3 {
		name := fmt.Sprintf("node-%d", i+1)
		h.untilPrints(name+" is initialized", fmt.Sprintf("hcloud://%d sim-1%c small taints:", i+1, 'a'+i), "get", "node", name, "-o",
			`jsonpath={.spec.providerID} {.metadata.labels.topology\.kubernetes\.io/zone} {.metadata.labels.node\.kubernetes\.io/instance-type} taints:{.spec.taints}`)
		var vm struct{ Addresses []struct{ Address string } }
		if err := json.Unmarshal([]byte(h.cloud("instances", "get", name, "-o", "json")), &vm); err != nil {
			t.Fatal(err)
		}
		if got := h.kubectl("get", "node", name, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`); got != vm.Addresses[0].Address {
			t.Errorf("node %s: got internal address %q, want %q", name, got, vm.Addresses[0].Address)
		}
	}
	h.untilRoutes(3)

	h.kubectl("create", "deployment", "web", "--image=web", "--replicas=3")
	h.kubectl("expose", "deployment", "web", "--type=LoadBalancer", "--port=8080")
	h.kubectl("wait", "service", "web", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=60s")
	ip := h.kubectl("get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	url := "http://" + ip + ":8080/"
	h.answers(url)
	h.awaitEmpty("all three nodes receive connections", func() string {
		if seen := h.answersByNode(url); len(seen) != 3 {
			return fmt.Sprint(seen)
		}
		return ""
	})

	// A restart of the cloud controller manager changes nothing in the cloud.
	stop()
	for _, c := range h.audit(t) {
		h.seen[c.RequestID] = true
	}
	h.startManager(t)
	h.awaitEmpty("the restarted cloud controller manager has read the load balancer", func() string {
		for _, c := range h.audit(t) {
			if c.DialectCall == "hcloud.load_balancers.update_service" && !h.seen[c.RequestID] {
				return ""
			}
		}
		return "no call"
	})
	for _, c := range h.audit(t) {
		if _, verb, _ := strings.Cut(c.Operation, "."); !h.seen[c.RequestID] && verb != "get" && verb != "list" {
			t.Errorf("restarted cloud controller manager: got call %s (%s), want only calls that read", c.Operation, c.DialectCall)
		}
	}

	// The Node of a stopped server has a taint. A deleted server has no Node.
	h.cloud("instances", "stop", "node-1", "--wait")
	h.untilPrints("a stopped server's Node has the shutdown taint", "NoSchedule", "get", "node", "node-1", "-o", `jsonpath={.spec.taints[?(@.key=="node.cloudprovider.kubernetes.io/shutdown")].effect}`)
	h.cloud("instances", "start", "node-1", "--wait")
	h.kubectl("wait", "node", "node-1", "--for=condition=Ready", "--timeout=60s")
	h.cloud("instances", "delete", "node-2", "--wait")
	h.untilPrints("a deleted server's Node is gone", "", "get", "node", "node-2", "--ignore-not-found", "-o", "name")
	h.untilRoutes(2)

	// If a user deletes a load balancer, the cloud controller manager creates it again at the next
	// change of the Service.
	h.cloud("lb", "delete", strings.Fields(h.cloud("lb", "list", "-o", "name"))[0])
	h.awaitEmpty("the load balancer is deleted", func() string { return h.cloud("lb", "list", "-o", "name") })
	h.kubectl("annotate", "service", "web", "changed=yes")
	h.awaitEmpty("the load balancer exists again and answers", func() string {
		if h.cloud("lb", "list", "-o", "name") == "" {
			return "no load balancer"
		}
		_, err := page("http://"+h.kubectl("get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")+":8080/", "service")
		if err != nil {
			return err.Error()
		}
		return ""
	})

	h.kubectl("delete", "service", "web")
	h.awaitEmpty("the load balancer of the deleted Service is gone", func() string { return h.cloud("lb", "list", "-o", "name") })
	checkGolden(t, "testdata/hcloud-ccm.golden", h.callNames(t))

	// The dialect answers an unsupported call or feature with the status 501.
	metrics, err := fetch(h.component("cloudsim").Address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if calls := regexp.MustCompile(`(?m)^cloudsim_dialect_requests_total\{.*$`).FindAllString(metrics, -1); len(calls) == 0 || slices.ContainsFunc(calls, func(s string) bool { return strings.Contains(s, `code="501"`) }) {
		t.Errorf("metrics: got %s; want calls without the status 501", strings.Join(calls, "\n"))
	}
}

func checkGolden(t *testing.T, path, got string) {
	t.Helper()
	if *updateGolden {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(got), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("calls: got\n%s\nwant (%s)\n%s", got, path, want)
	}
}

func (h *labRun) untilRoutes(n int) {
	h.t.Helper()
	h.awaitEmpty(fmt.Sprintf("the cloud has %d routes", n), func() string {
		all := strings.Fields(h.cloud("routes", "list", "-o", "name"))
		if len(all) != n {
			return fmt.Sprint(all)
		}
		return ""
	})
}

// auditEntry is a recorded call to the cloud.
type auditEntry struct {
	RequestID, Operation, DialectCall string
	Status                            int
}

// audit returns the calls of the cloud controller manager, oldest first.
func (h *hetzner) audit(t *testing.T) (all []auditEntry) {
	t.Helper()
	if err := json.Unmarshal([]byte(h.cloud("audit", "--caller", "hcloud", "--limit", "16000", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// callNames returns the sorted names of all calls that the cloud controller manager made. It omits
// polls of actions and reads of a single server, because the timing decides whether the manager
// makes these calls. It also omits removals of targets. After the deletion of a server, the cloud
// may remove the target before the manager does.
func (h *hetzner) callNames(t *testing.T) string {
	t.Helper()
	names := map[string]bool{}
	for _, c := range h.audit(t) {
		switch name := strings.TrimPrefix(c.DialectCall, "hcloud."); name {
		case "actions.list", "servers.get", "load_balancers.remove_target":
		default:
			names[name] = true
		}
	}
	out := ""
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out += name + "\n"
	}
	return out
}

// startManager starts the cloud controller manager and returns a function that stops this program.
func (h *hetzner) startManager(t *testing.T) (stop func()) {
	t.Helper()
	endpoint, err := exec.Command("sh", "-c", `eval "$("$0" dialect env hcloud --data-dir "$1")" && echo "$HCLOUD_ENDPOINT $HCLOUD_TOKEN"`, h.allinone, h.dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	url, token, _ := strings.Cut(strings.TrimSpace(string(endpoint)), " ")
	kubeconfig := filepath.Join(h.dir, "config", "ccm.kubeconfig")
	cmd := exec.Command(h.ccm, "--cloud-provider=hcloud", "--leader-elect=false", "--allow-untagged-cloud", "--secure-port=0", "--node-monitor-period=1s",
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--allocate-node-cidrs", "--cluster-cidr=10.128.0.0/10", "--route-reconciliation-period=5s")
	cmd.Env = append(os.Environ(), "HCLOUD_ENDPOINT="+url, "HCLOUD_TOKEN="+token,
		"HCLOUD_NETWORK=default", "HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true", "HCLOUD_METRICS_ENABLED=false",
		"HCLOUD_LOAD_BALANCERS_LOCATION=sim-1a", "HCLOUD_LOAD_BALANCERS_TYPE=lb11", "HCLOUD_LOAD_BALANCERS_DISABLE_IPV6=true",
		"HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS=true", "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL=3s", "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT=2s")
	log, err := os.OpenFile(filepath.Join(h.dir, "logs", "hcloud-ccm.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that the process has ended
		select {
		case <-ended:
		case <-time.After(scaled(10 * time.Second)):
			_ = cmd.Process.Kill()
			<-ended
		}
		_ = log.Close()
	}
	t.Cleanup(stop)
	return stop
}
