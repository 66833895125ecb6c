package e2e

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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/internal/freeport"
	"github.com/cloudsim-dev/allinone/netproxy/certs"
)

// These are the binaries of the test. The Makefile builds upstream's programs: server, agent and
// client of v0.36, and the client of v0.37.
const (
	upstream   = "../../bin/konnectivity"
	upstream37 = "../../bin/konnectivity-0.37"
	ourselves  = "../../bin/allinone"
)

// proxyPatience is the time limit of each wait in the tests.
const proxyPatience = time.Minute

// proxyLab is a folder with the certificates of one proxy server and its agents.
type proxyLab struct {
	testing.TB
	dir        string
	agentPort  int
	healthPort int
	socket     string
	running    []*os.Process // servers that the method many started
}

func newProxyLab(t testing.TB) *proxyLab {
	t.Helper()
	if testing.Short() {
		t.Skip("starts upstream's programs: run make e2e")
	}
	for _, p := range []string{upstream, upstream37, ourselves} {
		if _, err := os.Stat(p); err != nil {
			t.Fatalf("%v: run 'make build konnectivity'", err)
		}
	}
	dir, err := os.MkdirTemp("", "proxy") // the path of a Unix socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := certs.Make(dir, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	return &proxyLab{TB: t, dir: dir, agentPort: freePort(t), healthPort: freePort(t), socket: filepath.Join(dir, "sock")}
}

// freePort returns a port that no process uses.
func freePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	return port[0]
}

func (l *proxyLab) file(name string) string { return filepath.Join(l.dir, name) }

// side is an implementation of the proxy server and agent, either this project's or upstream's.
type side struct {
	name    string
	program string
	prefix  []string
}

var (
	ours   = side{"ours", ourselves, []string{"proxy"}}
	theirs = side{"upstream", upstream, nil}
)

// start runs a program until the test ends.
func (l *proxyLab) start(s side, args ...string) *os.Process {
	l.Helper()
	var log bytes.Buffer
	cmd := exec.Command(s.program, append(append([]string{}, s.prefix...), args...)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended
		_ = cmd.Wait()
		if l.Failed() {
			l.Logf("%s %s:\n%.4000s", s.name, args[0], log.String())
		}
	})
	return cmd.Process
}

// server starts a proxy server that accepts clients on the lab's socket. Both implementations get
// the same flags, which proves that their flags are compatible.
func (l *proxyLab) server(s side, mode string, more ...string) *os.Process {
	return l.start(s, append(append(l.forAgents(l.agentPort), "--mode="+mode, "--uds-name="+l.socket, "--server-port=0",
		"--health-bind-address=127.0.0.1", "--health-port="+strconv.Itoa(l.healthPort), "--admin-port="+strconv.Itoa(freePort(l)), "--v=1",
	), more...)...)
}

// forAgents returns the first arguments of a server. They make the server accept agents at the
// given port.
func (l *proxyLab) forAgents(port int) []string {
	return []string{
		"server", "--agent-bind-address=127.0.0.1", "--agent-port=" + strconv.Itoa(port),
		"--cluster-cert=" + l.file("server.crt"), "--cluster-key=" + l.file("server.key"), "--cluster-ca-cert=" + l.file("agents-ca.crt"),
	}
}

func (l *proxyLab) agent(s side, more ...string) *os.Process {
	if s.program == ourselves { // the targets are on loopback, and only this project's agent needs a flag to dial loopback
		more = append(more, "--dial-local")
	}
	p := l.start(s, append([]string{
		"agent", "--proxy-server-host=127.0.0.1", "--proxy-server-port=" + strconv.Itoa(l.agentPort),
		"--ca-cert=" + l.file("agents-ca.crt"), "--agent-cert=" + l.file("agent.crt"), "--agent-key=" + l.file("agent.key"),
		"--health-server-host=127.0.0.1", "--health-server-port=" + strconv.Itoa(freePort(l)),
		"--admin-server-port=" + strconv.Itoa(freePort(l)), "--admin-bind-address=127.0.0.1", "--v=1",
	}, more...)...)
	l.awaitReady()
	return p
}

// awaitReady waits until the server reports that it has an agent.
func (l *proxyLab) awaitReady() {
	l.Helper()
	url := fmt.Sprintf("http://127.0.0.1:%d/readyz", l.healthPort)
	l.await("the server is ready", func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func (l *proxyLab) await(what string, ok func() bool) {
	l.Helper()
	eventually.True(l, what, ok)
}

// proxyEcho starts a server that echoes each line, and returns its address.
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

// through sends the text through a client program and the proxy to an echo server. It returns an
// error if it does not receive the same text.
func (l *proxyLab) through(program, how, from, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), proxyPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, how, from, proxyEcho(l))
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	if _, err := io.WriteString(in, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(out, got); err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	if string(got) != text {
		return fmt.Errorf("got %.100q, want %.100q", got, text)
	}
	return nil
}

// egressFile writes the configuration with which kube-apiserver uses the lab's socket.
func (l *proxyLab) egressFile(protocol string) string {
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: %s
    transport: {uds: {udsName: %s}}
`, protocol, l.socket)
	name := l.file("egress-" + protocol + ".yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
	return name
}

// TestProxyInterop proves that the servers and agents of this project work together with those of
// upstream. The test uses both versions of upstream's client, and the client code of
// kube-apiserver.
func TestProxyInterop(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20<<10) // many packets
	for _, mode := range []struct{ name, protocol string }{{"grpc", "GRPC"}, {"http-connect", "HTTPConnect"}} {
		for _, pair := range [][2]side{{ours, ours}, {ours, theirs}, {theirs, ours}} {
			t.Run(fmt.Sprintf("%s/server-%s/agent-%s", mode.name, pair[0].name, pair[1].name), func(t *testing.T) {
				l := newProxyLab(t)
				l.server(pair[0], mode.name)
				l.agent(pair[1])
				egress := l.egressFile(mode.protocol)
				for _, program := range []string{upstream, upstream37} {
					if err := l.through(program, "egress", egress, text); err != nil {
						t.Errorf("%s egress: %v", filepath.Base(program), err)
					}
					if mode.name != "grpc" {
						continue
					}
					if err := l.through(program, "dial", l.socket, text); err != nil {
						t.Errorf("%s dial: %v", filepath.Base(program), err)
					}
				}
			})
		}
	}
}
