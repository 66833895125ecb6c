package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/netproxy/certs"
	"github.com/cloudsim-dev/allinone/netproxy/egress"
	"github.com/cloudsim-dev/allinone/test/proxylab"
)

// TestLabTunnelWithTwoServers proves that kube-apiserver reaches kubelets, a webhook and an
// aggregated API through the network proxy. The proxy has three agents, and two servers that share
// one address. The test kills one server, and then the agents. After the last agent has ended,
// kubectl reports that no agent is connected.
func TestLabTunnelWithTwoServers(t *testing.T) { newLab(t).testTunnelWithTwoServers(hollowTunnel) }

// TestRealTunnelWithTwoServers is TestLabTunnelWithTwoServers with real nodes.
func TestRealTunnelWithTwoServers(t *testing.T) {
	l := newRealLab(t)
	l.testTunnelWithTwoServers(realTunnel)
	if pid := l.agentPID("node-1"); pid != 0 {
		t.Errorf("node-1 has an agent (pid %d), although the network proxy is not the lab's", pid)
	}
}

// tunnelTargets describes a lab for the test. It also describes the targets that kube-apiserver
// reaches through the network proxy: a pod, a webhook and an aggregated API.
type tunnelTargets struct {
	up      []string // additional flags of 'allinone up'
	pod     []string // kubectl arguments that create the pod web
	carries func(l *labRun)
	at      func(l *labRun) string // address of a listener outside the cluster
	service string                 // manifest of the Service through which kube-apiserver calls the listener
}

var hollowTunnel = tunnelTargets{
	pod: []string{"run", "web", "--image=web"},
	carries: func(l *labRun) {
		l.awaitOutput("is a hollow node: no container runs there, so default/web has logged nothing", "logs", "web")
		l.awaitOutput("no container runs there, so you cannot execute a command", "exec", "web", "--", "ls")
	},
	// kube-apiserver sends the name "localhost" to the proxy. The agent resolves this name on
	// its own host, so the listener can use a loopback address.
	at: func(*labRun) string { return "127.0.0.1" },
	service: `
apiVersion: v1
kind: Service
metadata: {name: extension, namespace: default}
spec: {type: ExternalName, externalName: localhost, ports: [{port: %[1]d}]}
`,
}

var realTunnel = tunnelTargets{
	up:  []string{"--nodes", "real", "--instances", "1"},
	pod: []string{"run", "web", "--image=" + agnhost, "--command", "--", "/agnhost", "netexec", "--http-port=8080"},
	carries: func(l *labRun) {
		l.awaitOutput("Started HTTP server", "logs", "web")
		l.awaitOutput("netexec", "exec", "web", "--", "/agnhost", "--help")
		l.awaitForward("web")
	},
	// With real nodes, kube-apiserver sends the addresses of the Service's endpoints to the proxy.
	// Kubernetes does not allow loopback addresses for endpoints, so the listener uses the host's
	// address.
	at: (*labRun).hostAddress,
	service: `
apiVersion: v1
kind: Service
metadata: {name: extension, namespace: default}
spec: {ports: [{name: https, port: %[1]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: extension-host, namespace: default, labels: {kubernetes.io/service-name: extension}}
addressType: IPv4
ports: [{name: https, port: %[1]d}]
endpoints: [{addresses: [%[3]s], conditions: {ready: true}}]
`,
}

// hostAddress returns the host's address in the network of the real machines.
func (l *labRun) hostAddress() string {
	l.t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, i := range all {
		if !strings.HasPrefix(i.Name, "csim-"+l.hash()) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			l.t.Fatal(err)
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
				return n.IP.String()
			}
		}
	}
	l.t.Fatal("this machine has no address in the lab's network")
	return ""
}

func (l *labRun) testTunnelWithTwoServers(targets tunnelTargets) {
	t, p := l.t, proxylab.New(l.t)
	servers, agentPorts := p.Many(2)
	config, err := egress.Selector{
		URL:      "https://" + failover(t, servers),
		CABundle: p.File(certs.FrontendCA + ".crt"), ClientCert: p.File(certs.Client + ".crt"), ClientKey: p.File(certs.Client + ".key"),
	}.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.File("egress.yaml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	agent := func(id string) *os.Process {
		return p.Start(proxylab.Ours, "agent", "--agent-id="+id, "--proxy-server-host="+agentPorts, "--sync-interval-cap=1s",
			"--ca-cert="+p.File("agents-ca.crt"), "--agent-cert="+p.File("agent.crt"), "--agent-key="+p.File("agent.key"),
			"--health-server-port=0", "--admin-server-port=0", "--dial-local") // hollow nodes have loopback addresses
	}
	kill := func(all ...*os.Process) {
		for _, one := range all {
			if err := one.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	agents := []*os.Process{agent("a"), agent("b"), agent("c")}
	l.must(l.allinone, append([]string{"up", "--detach", "--port-base", "0", "--profile", "instant", "--egress-selector-config-file", p.File("egress.yaml")}, targets.up...)...)
	l.awaitOutput("created", targets.pod...)
	l.kubectl("wait", "pod", "web", "--for=condition=Ready", "--timeout=90s")
	l.extend(targets)

	l.checkTunnel("with all", targets)
	kill(p.Running[0])
	l.checkTunnel("without a server", targets)
	kill(agents[0], agents[1])
	l.checkTunnel("with one of each", targets)
	kill(agents[2])
	l.awaitOutput("no network proxy agent is connected", "logs", "web")
	l.awaitOutput("no network proxy agent is connected", "create", "configmap", "refused")
	l.awaitOutput("the server is currently unable to handle the request", "get", "--raw", "/apis/shop.example/v1")
	agent("d")
	l.checkTunnel("with a new agent", targets)
}

// checkTunnel checks that kube-apiserver reaches all targets through the network proxy.
func (l *labRun) checkTunnel(when string, targets tunnelTargets) {
	l.t.Helper()
	l.t.Log(when)
	targets.carries(l)
	l.awaitOutput("the webhook was asked", "create", "configmap", "refused")
	l.awaitOutput(`"kind":"APIResourceList"`, "get", "--raw", "/apis/shop.example/v1")
}

// failover listens on a new address and returns this address. It forwards each connection to the
// first reachable server, so it acts as the load balancer of the servers.
func failover(t *testing.T, servers []string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { pass(c, servers) })
		}
	})
	t.Cleanup(func() { ln.Close(); serving.Wait() }) // runs after the test has killed the agents, which ends the open connections
	return ln.Addr().String()
}

func pass(c net.Conn, servers []string) {
	defer c.Close()
	for _, addr := range servers {
		s, err := net.Dial("tcp", addr)
		if err != nil {
			continue
		}
		defer s.Close()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(s, c); s.Close() })
		_, _ = io.Copy(c, s)
		c.Close()
		wg.Wait()
		return
	}
}

// extend starts an aggregated API, and a webhook that refuses ConfigMaps with the name "refused".
// It registers the API and the webhook in the cluster.
func (l *labRun) extend(targets tunnelTargets) {
	l.t.Helper()
	t, host := l.t, targets.at(l)
	dir := filepath.Join(t.TempDir(), "certs")
	if err := certs.Make(dir, []string{"extension.default.svc"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "agents-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/admit", admit)
	mux.HandleFunc("/apis/shop.example/v1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"shop.example/v1","resources":[]}`)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(ln, filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")) }()
	t.Cleanup(func() { srv.Close(); <-done })

	manifest := filepath.Join(t.TempDir(), "extension.yaml")
	text := fmt.Sprintf(targets.service+extension, ln.Addr().(*net.TCPAddr).Port, base64.StdEncoding.EncodeToString(ca), host)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l.kubectl("apply", "-f", manifest)
}

// admit is the handler of the webhook. The API server sends it only ConfigMaps with the name
// "refused". The handler refuses each of them with a message that only this webhook sends.
func admit(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,"allowed":false,"status":{"message":"the webhook was asked"}}}`,
		review.Request.UID)
}

// extension is a template of manifests. Its values are a port and a certificate authority.
const extension = `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: extension}
webhooks:
- name: extension.shop.example
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {name: extension, namespace: default, path: /admit, port: %[1]d}, caBundle: %[2]s}
  matchConditions: [{name: refused, expression: object.metadata.name == "refused"}]
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.shop.example}
spec:
  group: shop.example
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: extension, namespace: default, port: %[1]d}
  caBundle: %[2]s
`
