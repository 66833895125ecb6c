package console

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// lab is a cluster on a simulated cloud, with a console that watches the cloud and the cluster.
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
	l.runCommand(append([]string{"up", "--detach", "--data-dir", l.dir, "--port-base", "0", "--network-proxy=false", "--volumes=false", "--profile", "instant", "--timeout", "10m"}, args...)...)
	l.url = l.shell(`. "$0/env" && echo "$CLOUDSIM_URL"`, l.dir)
	token := l.shell(`. "$0/env" && cat "$CLOUDSIM_TOKEN_FILE"`, l.dir)
	if err := os.WriteFile(filepath.Join(l.dir, "admin.token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := freeAddress(t)
	own := exec.Command(bin, "console", "--listen", addr, "--cloud-url", l.url, "--token-file", filepath.Join(l.dir, "admin.token"), "--kubeconfig", filepath.Join(l.dir, "kubeconfig"), "--data-dir", l.dir)
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Process.Kill(); _ = own.Wait() })
	l.console = "http://" + addr
	l.until("the console is up", func() bool { _, err := l.tryCLI("console", "link", "--console-url", l.console); return err == nil })
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

func (l *lab) create(yaml string) {
	l.t.Helper()
	l.kubectl("create", "-f", l.file(yaml))
}

func (l *lab) file(text string) string {
	l.t.Helper()
	path := filepath.Join(l.t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return path
}

func (l *lab) signal(component string, s syscall.Signal) {
	l.t.Helper()
	pid := l.shell(`"$0" status --data-dir "$1" -o json | tr -d ' \n' | sed 's/},{/\n/g' | grep '"name":"`+component+`"' | sed 's/.*"pid":\([0-9]*\).*/\1/'`, l.bin, l.dir)
	l.shell("kill -$0 $1", map[syscall.Signal]string{syscall.SIGSTOP: "STOP", syscall.SIGCONT: "CONT"}[s], pid)
}

func (l *lab) link() string {
	l.t.Helper()
	return l.runCommand("console", "link", "--console-url", l.console)
}

func TestLab(t *testing.T) {
	l := startLab(t)
	p := openPage(t, browser(t), l.link())
	for _, part := range []struct {
		name string
		run  func(*testing.T, *lab, *page)
	}{{"healthy", healthyLab}, {"project", projectInLab}, {"keyboard", keyboardInLab}, {"traffic", trafficInLab}, {"hostile", hostileInLab}, {"differences", differencesInLab}} {
		t.Run(part.name, func(t *testing.T) {
			p.t, l.t = t, t
			part.run(t, l, p)
		})
		p.t, l.t = t, t
	}
}

// If the cluster is healthy, the console reports no difference between the cloud and the cluster.
// All views that show the cluster are accessible. A URL of a log that does not exist shows no other
// log.
func healthyLab(t *testing.T, l *lab, p *page) {
	p.visit("differences")
	p.awaitText("No difference")
	p.eval(`(window.differed = '', new MutationObserver(() => (window.differed ||= document.querySelector('.difference')?.innerText ?? '')).observe(document.body, { childList: true, subtree: true }), 0)`)
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("CONSOLE_SOAK"), "5s"))
	if err != nil {
		t.Fatalf("CONSOLE_SOAK: %v", err)
	}
	time.Sleep(duration) // the duration of the observation
	if found := p.eval("differed"); found != "" {
		t.Errorf("a healthy cluster has a difference: %s", found)
	}
	for _, view := range []string{"map", "differences", "resources/node", "logs"} {
		p.visit(view)
		p.checkAccessibility(view)
	}
	for _, missing := range []string{"logs/other", "logs/i-00000f", "logs/i-00000f/kubelet", "logs/constructor"} {
		p.visit("logs")
		p.awaitTrue("document.querySelector('.log') !== null")
		p.visit(missing)
		p.awaitText("This log does not exist")
	}
}

// After the user has chosen a project, the map shows neither the instances of other projects nor
// the Nodes of these instances. The user can choose all projects again, even after the deletion of
// the chosen project.
func projectInLab(t *testing.T, l *lab, p *page) {
	l.runCommand("cloud", "projects", "create", "team")
	choose := func(label string) {
		p.eval("((s) => { s.value = [...s.options].find((o) => o.text === " + quote(label) + ").value; s.dispatchEvent(new Event('change', { bubbles: true })) })(document.querySelector('select[aria-label=Project]'))")
	}
	p.visit("map")
	p.card("node-1", "running")
	p.awaitTrue("document.querySelector('select[aria-label=Project]') !== null")
	choose("team")
	p.awaitTrue("document.querySelectorAll('.pair').length === 0")
	l.runCommand("cloud", "projects", "delete", "team")
	p.awaitTrue("![...document.querySelectorAll('select[aria-label=Project] option')].some((o) => o.text === 'team')")
	choose("all")
	p.card("node-1", "running")
}

// A user does everything with the keyboard alone. The user stops a machine while the CCM is paused.
// The page shows a difference between the cloud and the cluster until the CCM continues. Then the
// user switches on the fault lost-reply: the cloud creates a load balancer, but sends no reply. The
// page of the load balancer shows the call, the fault and the operation. At the end, the user
// freezes the clock and steps it to the next operation.
func keyboardInLab(t *testing.T, l *lab, p *page) {
	open := func(view string) {
		t.Helper()
		p.tab(view)
		p.sendKeys(kb.Enter)
		p.awaitTrue("document.querySelector('nav[aria-label=Views] [aria-current=page]').innerText.startsWith(" + quote(view) + ")")
	}
	find := func(name string) {
		t.Helper()
		p.find(name)
		p.sendKeys(kb.Enter)
		p.awaitTrue("document.querySelector('main h1').innerText === " + quote(name))
		p.checkFocus()
	}
	open("Map")
	p.tab("node-3")
	p.sendKeys(kb.Enter)
	p.awaitTrue("document.activeElement.id === 'panel'")
	l.signal("ccm", syscall.SIGSTOP) // so that the difference lasts
	p.tab("Stop")
	p.sendKeys(kb.Enter)
	p.awaitText("expected: shutdown taint")
	l.signal("ccm", syscall.SIGCONT)
	p.awaitTrue("!" + has("expected: shutdown taint"))
	p.checkFocus()
	p.tab("Start")
	p.sendKeys(kb.Enter)
	p.card("node-3", "running")

	open("Faults")
	p.tabTo("(document.activeElement.closest('.preset')?.innerText ?? '').startsWith('lost-reply') && document.activeElement.innerText === 'Switch on'")
	p.sendKeys(kb.Enter)
	p.awaitText("Fault lost-reply is active")
	l.kubectl("create", "deployment", "web", "--image=web", "--replicas=3")
	l.kubectl("expose", "deployment", "web", "--type=LoadBalancer", "--port=8080")
	l.kubectl("wait", "service", "web", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=1m")
	id, name := l.loadBalancer()
	find(name)
	var why struct {
		Steps []struct{ Kind, Text, RequestID string }
	}
	if err := json.Unmarshal([]byte(l.runCommand("cloud", "why", id, "-o", "json")), &why); err != nil || len(why.Steps) < 3 {
		t.Fatalf("why: %+v, error %v", why, err)
	}
	for _, s := range why.Steps { // the call, its fault, its operation and the load balancer
		p.awaitText(s.Text)
		p.awaitText(s.RequestID)
	}
	p.awaitText("lost-reply")
	p.awaitText("loadBalancers.create")

	l.runCommand("cloud", "durations", "set", "instance", "stop", "1m")
	open("Time")
	p.tab("Freeze")
	p.sendKeys(kb.Enter)
	p.awaitText("The cloud's clock is frozen")
	find("node-2")
	p.tab("Stop")
	p.sendKeys(kb.Enter)
	p.awaitText("stopping")
	open("Time")
	p.awaitText("stop node-2")
	p.tab("Step to the next operation")
	p.sendKeys(kb.Enter)
	p.awaitText("No operation waits")
	p.tab("Resume")
	p.sendKeys(kb.Enter)
	p.awaitTrue("!" + has("The cloud's clock is frozen"))
	l.runCommand("cloud", "durations", "set", "instance", "stop", "0s")
	l.runCommand("cloud", "instances", "start", "node-2", "--wait")
}

// loadBalancer returns the id and the name of the only load balancer.
func (l *lab) loadBalancer() (id, name string) {
	l.t.Helper()
	_, body := l.call(http.MethodGet, "/v1/load-balancers", l.secret(), "")
	var list struct {
		Items []struct{ ID, Name string }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Items) != 1 {
		l.t.Fatalf("load balancers: %s (error %v), want one", body, err)
	}
	return list.Items[0].ID, list.Items[0].Name
}

// The page of a load balancer shows its traffic. After a crash of a target, the page shows why the
// target is unhealthy.
func trafficInLab(t *testing.T, l *lab, p *page) {
	id, _ := l.loadBalancer()
	url := "http://" + l.kubectl("get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}") + ":8080"
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout}
	get := func() error {
		resp, err := hc.Get(url)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	l.until("the load balancer answers", func() bool { return get() == nil })
	p.visit("object/loadBalancer/" + id)
	ctx, cancel := context.WithCancel(t.Context())
	var traffic sync.WaitGroup
	traffic.Go(func() {
		for ctx.Err() == nil {
			_ = get() // the load balancer can drop a connection to the crashed target
			time.Sleep(20 * time.Millisecond)
		}
	})
	p.awaitTrue("/[1-9]\\d* new\\/s/.test(document.querySelector('[aria-label=Traffic]').innerText) && document.querySelector('.bar.flows') !== null")
	l.runCommand("cloud", "instances", "crash", "node-1")
	p.awaitTrue("[...document.querySelectorAll('[aria-label=Traffic] .t')].some((e) => e.innerText.startsWith('node-1') && e.innerText.includes('unhealthy') && e.nextElementSibling?.matches('.reason'))")
	cancel()
	traffic.Wait()
	l.runCommand("cloud", "instances", "reboot", "node-1", "--wait")
}

// If an object of the cluster contains HTML, the console shows the HTML as plain text.
func hostileInLab(t *testing.T, l *lab, p *page) {
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node-8"}, "spec": map[string]any{"providerID": hostileText}})
	if err != nil {
		t.Fatal(err)
	}
	l.create(string(raw))
	p.visit("resources/node")
	p.awaitText(hostileText)
	for _, view := range []string{"map", "differences", "object/node/node-8"} {
		p.visit(view)
		p.awaitText("node-8")
		if p.eval("window.owned") != "undefined" || p.eval("document.querySelectorAll('img, #app script').length") != "0" {
			t.Fatalf("%s: a hostile text became a part of the page", view)
		}
	}
	l.kubectl("delete", "node", "node-8", "--ignore-not-found") // the CCM may already have deleted the Node
}

// The test causes each kind of difference between the cloud and the cluster, and then repairs the
// difference. Within 2 s, the console must show the difference. Within 2 s after the repair, the
// console must no longer show the difference.
func differencesInLab(t *testing.T, l *lab, p *page) {
	p.visit("differences")
	p.awaitText("No difference")
	kubectl := func(args ...string) func() { return func() { l.kubectl(args...) } }
	do := func(args ...string) func() { return func() { l.runCommand(append([]string{"cloud"}, args...)...) } }
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
	l.runCommand("cloud", "disks", "create", "data", "--zone", "sim-1a", "--size", "1")
	disk := l.idOf("disk", "data")
	// forbidNodes makes the API server refuse new Nodes.
	forbidNodes := func() {
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
			l.signal("kwok", syscall.SIGSTOP) // a running kwok would set the condition again at once
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

		{"no-node", "node-4", forbidNodes, do("instances", "create", "node-4", "--zone", "sim-1a"), kubectl("delete", "validatingadmissionpolicybinding", "no-nodes")},

		// The test stops the CCM before it makes the following differences between the cloud and
		// the cluster. A running CCM would repair these differences.
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
			p.awaitWithin(2*time.Second, shown)
			d.repair()
			p.awaitWithin(2*time.Second, "!"+shown)
		})
	}
	p.t, l.t = t, t
	l.signal("ccm", syscall.SIGCONT)
	l.runCommand("cloud", "instances", "start", "node-3")
	p.awaitText("No difference")
}
