package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// says repeats a kubectl command until the command's output or error contains the text in the
// parameter want.
func (l *labRun) says(want string, args ...string) {
	l.t.Helper()
	l.until("kubectl "+strings.Join(args, " "), func() string {
		out, err := l.try(l.kubectlPath(), args...)
		if said := fmt.Sprint(out, err); !strings.Contains(said, want) {
			return fmt.Sprintf("%q, want %q", said, want)
		}
		return ""
	})
}

// TestLabTunnel proves that kube-apiserver reaches kubelets only through the proxy. The test
// also proves that the proxy server checks the tokens of agents and holds a lease. The server
// accepts an agent with a token of the configured service account.
func TestLabTunnel(t *testing.T) {
	l := newLab(t)
	l.must(l.allinone, "up", "--detach", "--port-base", "0", "--profile", "instant")
	l.says("created", "run", "web", "--image=web")
	l.says("is a hollow node: no container runs there, so default/web has logged nothing", "logs", "web")
	l.says("no container runs there to execute a command in", "exec", "web", "--", "ls")

	// The test stops the agent with SIGSTOP, because the lab would restart a killed agent.
	agent := l.proxyPID("proxy-agent")
	if err := exec.Command("kill", "-STOP", strconv.Itoa(agent)).Run(); err != nil {
		t.Fatal(err)
	}
	l.says("proxy error from", "logs", "web")
	if err := exec.Command("kill", "-CONT", strconv.Itoa(agent)).Run(); err != nil {
		t.Fatal(err)
	}
	l.says("has logged nothing", "logs", "web")
	l.testTokensAndLeases(t)
}

func (l *labRun) proxyPID(name string) int {
	l.t.Helper()
	return l.component(name).PID
}

func (l *labRun) testTokensAndLeases(t *testing.T) {
	l.says("created", "-n", "kube-system", "create", "serviceaccount", "proxy-agent")
	token := l.kubectl("-n", "kube-system", "create", "token", "proxy-agent", "--audience=network-proxy")
	other := l.kubectl("-n", "default", "create", "token", "default", "--audience=network-proxy")
	p := newProxyLab(t)
	p.server(ours, "grpc", "--kubeconfig="+l.dir+"/kubeconfig", "--agent-namespace=kube-system", "--agent-service-account=proxy-agent",
		"--authentication-audience=network-proxy", "--enable-lease-controller", "--server-id=counted", "--server-count=1")
	for name, text := range map[string]string{"good": token, "other": other} {
		if err := os.WriteFile(p.file(name+".token"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l.says("konnectivity-proxy-server-counted", "-n", "kube-system", "get", "leases")
	wrong := p.start(ours, "agent", "--proxy-server-host=127.0.0.1:"+strconv.Itoa(p.agentPort), "--agent-id=wrong",
		"--ca-cert="+p.file("agents-ca.crt"), "--agent-cert="+p.file("agent.crt"), "--agent-key="+p.file("agent.key"),
		"--health-server-port=0", "--admin-server-port=0", "--service-account-token-path="+p.file("other.token"))
	p.agent(ours, "--agent-id=good", "--service-account-token-path="+p.file("good.token"),
		"--count-server-leases", "--kubeconfig="+l.dir+"/kubeconfig")
	if err := p.through(upstream, "dial", p.socket, "hello"); err != nil {
		t.Error(err)
	}
	if err := wrong.Kill(); err != nil {
		t.Error(err)
	}
}
