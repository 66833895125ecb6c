package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/netproxy/server"
)

// awaitForward waits until a pod answers with its name through kubectl port-forward. It
// repeats the request, because a restarted container runs before its program listens.
func (l *labRun) awaitForward(pod string) {
	l.t.Helper()
	l.awaitEmpty("port-forward to "+pod, func() string {
		forward := exec.Command(l.kubectlPath(), "port-forward", "pod/"+pod, ":8080")
		forward.Env = l.env()
		out, err := forward.StdoutPipe()
		if err != nil {
			l.t.Fatal(err)
		}
		if err := forward.Start(); err != nil {
			l.t.Fatal(err)
		}
		defer func() { _ = forward.Process.Kill(); _ = forward.Wait() }()
		line, err := bufio.NewReader(out).ReadString('\n') // Forwarding from 127.0.0.1:40123 -> 8080
		at, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
		if hostname, failed := fetch("http://" + at + "/hostname"); failed != nil || hostname != pod {
			return fmt.Sprintf("%q, %v: %q %v", line, err, hostname, failed)
		}
		return ""
	})
}

// testRealTunnel proves that kube-apiserver reaches kubelets and pods only through agents of the
// network proxy. The proxy server uses the agent on the target's node. If this agent does not run,
// the server uses another agent.
func (l *labRun) testRealTunnel(t *testing.T) {
	pods := l.podsByNode("web")
	if len(pods) != 3 {
		t.Fatalf("the pods are not on three different nodes: %v", pods)
	}
	l.untilAgents(3) // the previous step rebooted a node
	restore := l.withoutAgents("node-1", "node-2", "node-3")
	l.untilAgents(0)
	l.awaitOutput("no network proxy agent is connected", "logs", pods["node-2"][0])
	restore()
	l.untilAgents(3)
	for node, pod := range pods {
		l.awaitOutput("Started HTTP server", "logs", pod[0])
		l.awaitOutput(pod[0], "get", "--raw", "/api/v1/namespaces/default/pods/"+pod[0]+":8080/proxy/hostname")
		web := l.podsByNode("web")[node][1] + ":8080" // the test reads the address again, because a reboot changes the address of a pod
		for _, target := range []string{l.kubeletOf(node), web} {
			if by := l.tunnelsTo(target); len(by) == 0 || slices.ContainsFunc(by, func(agent string) bool { return agent != node }) {
				t.Errorf("%s on %s: got the agents %v, want only %s", target, node, by, node)
			}
		}
	}
	pod := pods["node-2"][0]
	l.awaitOutput("netexec", "exec", pod, "--", "/agnhost", "--help")
	l.awaitForward(pod)

	restore = l.withoutAgents("node-2")
	l.untilAgents(2)
	l.awaitOutput("Started HTTP server", "logs", pod)
	l.awaitOutput("netexec", "exec", pod, "--", "/agnhost", "--help")
	if by := l.tunnelsTo(l.kubeletOf("node-2")); len(by) == 0 || slices.Contains(by, "node-2") {
		t.Errorf("agents for the logs of node-2 while its own agent is dead: got %v, want other agents", by)
	}
	restore()
	l.untilAgents(3)
	l.awaitOutput("netexec", "exec", pod, "--", "/agnhost", "--help") // kube-apiserver makes a new connection for exec
	for _, a := range l.tunnel().Agents {
		if a.ID == "node-2" && a.FromTarget == 0 {
			t.Error("the agent of node-2 is connected again, but carries no connection")
		}
	}
}

// withoutAgents kills the proxy agents on the given nodes. It also renames the key file of the
// agents, so that the agents cannot start again. The returned function restores the name of the
// file.
func (l *labRun) withoutAgents(nodes ...string) (restore func()) {
	l.t.Helper()
	const key, away = "/etc/kubernetes/proxy-agent.key", "/etc/kubernetes/away"
	move := func(from, to string) {
		for _, node := range nodes {
			l.must(l.allinone, "enter", node, "mv", from, to)
		}
	}
	move(key, away)
	for _, node := range nodes {
		pid := l.agentPID(node)
		if pid == 0 {
			l.t.Fatalf("no agent runs on %s", node)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			l.t.Fatalf("agent of %s: %v", node, err)
		}
	}
	return func() { l.t.Helper(); move(away, key) }
}

// agentPID returns the process id of the network proxy agent on a machine, or 0.
func (l *labRun) agentPID(node string) int {
	l.t.Helper()
	for _, p := range l.listProcesses() {
		pid, _, _ := strings.Cut(p, " ")
		line, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err != nil || !bytes.Contains(line, []byte("proxy\x00agent\x00--agent-id="+node+"\x00")) {
			continue
		}
		if n, err := strconv.Atoi(pid); err == nil {
			return n
		}
	}
	return 0
}

func (l *labRun) tunnel() server.Status {
	l.t.Helper()
	var s server.Status
	raw := l.must(l.allinone, "proxy", "status", "--server", l.component("proxy-server").Address, "-o", "json")
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (l *labRun) untilAgents(n int) {
	l.t.Helper()
	l.awaitEmpty(fmt.Sprintf("%d agents are connected", n), func() string {
		if s := l.tunnel(); len(s.Agents) != n {
			return fmt.Sprintf("%+v", s.Agents)
		}
		return ""
	})
}

// tunnelsTo returns a list of agent names. For each open connection to the target, the list
// contains the agent that carries this connection. The target has the form host:port.
func (l *labRun) tunnelsTo(target string) (by []string) {
	l.t.Helper()
	for _, c := range l.tunnel().Connections {
		if c.Target == target {
			by = append(by, c.Agent)
		}
	}
	return by
}

// kubeletOf returns the address at which kube-apiserver calls the kubelet of a node.
func (l *labRun) kubeletOf(node string) string {
	l.t.Helper()
	return l.kubectl("get", "node", node, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`) + ":10250"
}
