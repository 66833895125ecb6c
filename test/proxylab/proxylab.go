// Package proxylab starts the network proxy of this project and upstream's network proxy. Tests and
// benchmarks use this package to compare the two proxies. `make build konnectivity` builds the
// programs.
package proxylab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/internal/freeport"
	"github.com/cloudsim-dev/allinone/netproxy/certs"
)

// Paths of the programs. UpstreamProgram contains upstream's server, agent and client in version
// v0.36. Upstream37Program contains version v0.37, but the tests use only its client.
const (
	UpstreamProgram   = "../../bin/konnectivity"
	Upstream37Program = "../../bin/konnectivity-0.37"
	ourselves         = "../../bin/allinone"
)

// timeout is the time limit of a call of Through.
const timeout = time.Minute

// Lab is a folder with the certificates of one proxy server and its agents.
type Lab struct {
	testing.TB
	dir        string
	AgentPort  int
	healthPort int
	Socket     string
	Running    []*os.Process // servers that Many started
}

// New returns a Lab in a new folder, and deletes this folder at the end of the test. New skips the
// test if the flag -short is set, and fails the test if a program is missing.
func New(t testing.TB) *Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("starts upstream's programs: run make e2e")
	}
	for _, p := range []string{UpstreamProgram, Upstream37Program, ourselves} {
		if _, err := os.Stat(p); err != nil {
			t.Fatalf("%v: run 'make build konnectivity'", err)
		}
	}
	dir, err := os.MkdirTemp("", "proxy") // the name of a test's own folder is too long for the path of a Unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := certs.Make(dir, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	return &Lab{TB: t, dir: dir, AgentPort: FreePort(t), healthPort: FreePort(t), Socket: filepath.Join(dir, "sock")}
}

// FreePort returns a port that no process uses.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	return port[0]
}

// File returns the path of a file in the lab's folder.
func (l *Lab) File(name string) string { return filepath.Join(l.dir, name) }

// Implementation is an implementation of the proxy server and the agent, either this project's or
// upstream's.
type Implementation struct {
	Name    string
	program string
	prefix  []string
}

// The implementations.
var (
	Ours   = Implementation{"ours", ourselves, []string{"proxy"}}
	Theirs = Implementation{"upstream", UpstreamProgram, nil}
)

// Start starts the program of an implementation, and kills the program at the end of the test. If
// the test has failed, Start also logs the output of the program.
func (l *Lab) Start(s Implementation, args ...string) *os.Process {
	l.Helper()
	var log bytes.Buffer
	cmd := exec.Command(s.program, append(append([]string{}, s.prefix...), args...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		_ = cmd.Process.Kill() // an error means that the process has ended
		_ = cmd.Wait()
		if l.Failed() {
			l.Logf("%s %s:\n%.4000s", s.Name, args[0], log.String())
		}
	})
	return cmd.Process
}

// Server starts a proxy server that accepts clients on the lab's socket. The flags do not depend
// on the implementation, because this project's flags must be compatible with upstream's.
func (l *Lab) Server(s Implementation, mode string, more ...string) *os.Process {
	return l.Start(s, append(append(l.forAgents(l.AgentPort), "--mode="+mode, "--uds-name="+l.Socket, "--server-port=0",
		"--health-bind-address=127.0.0.1", "--health-port="+strconv.Itoa(l.healthPort), "--admin-port="+strconv.Itoa(FreePort(l)), "--v=1",
	), more...)...)
}

// forAgents returns the first arguments of a server. The arguments make the server accept agents at
// the given port.
func (l *Lab) forAgents(port int) []string {
	return []string{
		"server", "--agent-bind-address=127.0.0.1", "--agent-port=" + strconv.Itoa(port),
		"--cluster-cert=" + l.File("server.crt"), "--cluster-key=" + l.File("server.key"), "--cluster-ca-cert=" + l.File("agents-ca.crt"),
	}
}

// Agent starts an agent, and waits until the server reports that it has an agent.
func (l *Lab) Agent(s Implementation, more ...string) *os.Process {
	if s.program == ourselves { // the targets are on loopback, and only this project's agent needs a flag to dial loopback
		more = append(more, "--dial-local")
	}
	p := l.Start(s, append([]string{
		"agent", "--proxy-server-host=127.0.0.1", "--proxy-server-port=" + strconv.Itoa(l.AgentPort),
		"--ca-cert=" + l.File("agents-ca.crt"), "--agent-cert=" + l.File("agent.crt"), "--agent-key=" + l.File("agent.key"),
		"--health-server-host=127.0.0.1", "--health-server-port=" + strconv.Itoa(FreePort(l)),
		"--admin-server-port=" + strconv.Itoa(FreePort(l)), "--admin-bind-address=127.0.0.1", "--v=1",
	}, more...)...)
	l.awaitReady()
	return p
}

func (l *Lab) awaitReady() {
	l.Helper()
	url := fmt.Sprintf("http://127.0.0.1:%d/readyz", l.healthPort)
	l.await("the server is ready", func() bool {
		resp, err := http.Get(url) //nolint:gosec // a port of this machine
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func (l *Lab) await(condition string, ok func() bool) {
	l.Helper()
	eventually.True(l, condition, ok)
}

// EgressFile writes a configuration file for kube-apiserver, and returns the path of the file. With
// this file, kube-apiserver uses the lab's socket.
func (l *Lab) EgressFile(protocol string) string {
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: %s
    transport: {uds: {udsName: %s}}
`, protocol, l.Socket)
	name := l.File("egress-" + protocol + ".yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
	return name
}

// proxyEcho starts a server that sends all data back to the client, and returns the server's
// address.
func proxyEcho(t testing.TB) string {
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
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	})
	t.Cleanup(func() { ln.Close(); serving.Wait() })
	return ln.Addr().String()
}

// Through sends the text through a client program and the proxy to an echo server. It returns an
// error if the echo differs from the text. If command is "egress", path must be a result of
// EgressFile. If command is "dial", path must be the lab's socket.
func (l *Lab) Through(program, command, path, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, command, path, proxyEcho(l))
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	if _, err := io.WriteString(in, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(out, got); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	if string(got) != text {
		return fmt.Errorf("got %.100q, want %.100q", got, text)
	}
	return nil
}

// Many starts n proxy servers of this project, and adds their processes to the field Running. The
// servers share one certificate. Many returns the addresses at which the servers accept clients. It
// also returns one string with the addresses for agents, separated by commas.
func (l *Lab) Many(n int) (clients []string, agents string) {
	l.Helper()
	for i := range n {
		client, agent := fmt.Sprintf("127.0.0.1:%d", FreePort(l)), FreePort(l)
		l.Running = append(l.Running, l.Start(Ours, append(l.forAgents(agent),
			"--server-id=server-"+strconv.Itoa(i), "--server-count="+strconv.Itoa(n), "--frontend=http-connect@"+client,
			"--server-cert="+l.File(certs.Frontend+".crt"), "--server-key="+l.File(certs.Frontend+".key"), "--server-ca-cert="+l.File(certs.FrontendCA+".crt"),
			"--health-port=0", "--admin-port=0")...))
		clients = append(clients, client)
		agents += fmt.Sprintf(",127.0.0.1:%d", agent)
	}
	return clients, agents[1:]
}
