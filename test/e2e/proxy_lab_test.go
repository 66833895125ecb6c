package e2e

import (
	"fmt"
	"github.com/cloudsim-dev/allinone/test/proxylab"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// awaitOutput repeats a kubectl command until the command's output or error contains the expected
// text.
func (l *labRun) awaitOutput(expected string, args ...string) {
	l.t.Helper()
	l.awaitEmpty("kubectl "+strings.Join(args, " "), func() string {
		out, err := l.runProgram(l.kubectlPath(), args...)
		if text := fmt.Sprint(out, err); !strings.Contains(text, expected) {
			return fmt.Sprintf("%q, want %q", text, expected)
		}
		return ""
	})
}

// TestLabTunnel proves that kube-apiserver reaches kubelets only through the proxy. The test also
// proves that the proxy server holds a lease and checks the tokens of agents. The server accepts
// only tokens of the configured service account.
func TestLabTunnel(t *testing.T) {
	l := newLab(t)
	l.must(l.allinone, "up", "--detach", "--port-base", "0", "--profile", "instant")
	l.awaitOutput("created", "run", "web", "--image=web")
	l.awaitOutput("is a hollow node: no container runs there, so default/web has logged nothing", "logs", "web")
	l.awaitOutput("no container runs there, so you cannot execute a command", "exec", "web", "--", "ls")

	// The test stops the agent with SIGSTOP, because the lab would restart a killed agent.
	agent := l.proxyPID("proxy-agent")
	if err := exec.Command("kill", "-STOP", strconv.Itoa(agent)).Run(); err != nil {
		t.Fatal(err)
	}
	l.awaitOutput("proxy error from", "logs", "web")
	if err := exec.Command("kill", "-CONT", strconv.Itoa(agent)).Run(); err != nil {
		t.Fatal(err)
	}
	l.awaitOutput("has logged nothing", "logs", "web")
	l.testTokensAndLeases(t)
}

func (l *labRun) proxyPID(name string) int {
	l.t.Helper()
	return l.component(name).PID
}

func (l *labRun) testTokensAndLeases(t *testing.T) {
	l.awaitOutput("created", "-n", "kube-system", "create", "serviceaccount", "proxy-agent")
	token := l.kubectl("-n", "kube-system", "create", "token", "proxy-agent", "--audience=network-proxy")
	other := l.kubectl("-n", "default", "create", "token", "default", "--audience=network-proxy")
	p := proxylab.New(t)
	p.Server(proxylab.Ours, "grpc", "--kubeconfig="+l.dir+"/kubeconfig", "--agent-namespace=kube-system", "--agent-service-account=proxy-agent",
		"--authentication-audience=network-proxy", "--enable-lease-controller", "--server-id=counted", "--server-count=1")
	for name, text := range map[string]string{"good": token, "other": other} {
		if err := os.WriteFile(p.File(name+".token"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitOutput("konnectivity-proxy-server-counted", "-n", "kube-system", "get", "leases")
	wrong := p.Start(proxylab.Ours, "agent", "--proxy-server-host=127.0.0.1:"+strconv.Itoa(p.AgentPort), "--agent-id=wrong",
		"--ca-cert="+p.File("agents-ca.crt"), "--agent-cert="+p.File("agent.crt"), "--agent-key="+p.File("agent.key"),
		"--health-server-port=0", "--admin-server-port=0", "--service-account-token-path="+p.File("other.token"))
	p.Agent(proxylab.Ours, "--agent-id=good", "--service-account-token-path="+p.File("good.token"),
		"--count-server-leases", "--kubeconfig="+l.dir+"/kubeconfig")
	if err := p.Through(proxylab.UpstreamProgram, "dial", p.Socket, "hello"); err != nil {
		t.Error(err)
	}
	if err := wrong.Kill(); err != nil {
		t.Error(err)
	}
}
