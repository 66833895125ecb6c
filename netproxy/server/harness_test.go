package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/server"
)

// testTimeout is the maximum time that a test waits for an expected event.
const testTimeout = 30 * time.Second

// bench is a server with a gRPC frontend and an HTTP CONNECT frontend on Unix sockets.
type bench struct {
	testing.TB
	server  *server.Server
	agents  string // address for agents
	tls     func() (*tls.Config, error)
	grpc    string // socket path
	connect string // socket path
	stop    func() error
}

func newBench(t testing.TB, change ...func(*server.Config)) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{TB: t, grpc: filepath.Join(dir, "grpc.sock"), connect: filepath.Join(dir, "connect.sock")}
	cfg := server.Default()
	cfg.ID = "server-" + t.Name()
	cfg.Agents = listen(t, "tcp", "127.0.0.1:0")
	cfg.DrainTimeout = 0
	cfg.InsecureAgents = true
	cfg.Frontends = []server.Frontend{
		{Mode: server.GRPC, Listener: listen(t, "unix", b.grpc)},
		{Mode: server.HTTPConnect, Listener: listen(t, "unix", b.connect)},
	}
	for _, f := range change {
		f(&cfg)
	}
	b.agents = cfg.Agents.Addr().String()
	s, err := server.New(logger(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.server = s
	b.stop = runInBackground(t, s.Run)
	return b
}

func listen(t testing.TB, network, addr string) net.Listener {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// logger writes to the test's log until the test ends.
func logger(t testing.TB) *slog.Logger {
	w := &testWriter{t: t}
	t.Cleanup(w.close)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct {
	mu   sync.Mutex
	t    testing.TB
	done bool
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done && testing.Verbose() {
		w.t.Logf("%s", p[:max(0, len(p)-1)])
	}
	return len(p), nil
}

func (w *testWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
}

// runInBackground runs f until the test ends or the caller calls stop. A call of stop
// returns the result of f.
func runInBackground(t testing.TB, f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(testTimeout):
			return errors.New("the program did not stop in time")
		}
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return stop
}

// agent starts an agent and waits until the server lists it.
func (b *bench) agent(id string, change ...func(*agent.Config)) (stop func() error) {
	b.Helper()
	cfg := agent.Default()
	cfg.ID, cfg.Servers, cfg.DrainTimeout, cfg.TLS = id, []string{b.agents}, 0, b.tls
	cfg.DialLocal = true // the tests' targets are on loopback
	cfg.SyncInterval = 50 * time.Millisecond
	for _, f := range change {
		f(&cfg)
	}
	a, err := agent.New(logger(b.TB), cfg)
	if err != nil {
		b.Fatal(err)
	}
	stop = runInBackground(b.TB, a.Run)
	b.await("agent "+id, func() bool { return b.has(id) })
	return stop
}

func (b *bench) has(id string) bool {
	for _, a := range b.server.Status().Agents {
		if a.ID == id {
			return true
		}
	}
	return false
}

func (b *bench) await(condition string, ok func() bool) {
	b.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("waited %s for %s", testTimeout, condition)
		}
	}
}

// dialer connects to a target through one of the proxy's frontends.
type dialer struct {
	name string
	dial func(addr string) (net.Conn, error)
}

func (b *bench) dialers() []dialer {
	return []dialer{{"grpc", b.dialGRPC}, {"http-connect", b.dialConnect}}
}

// dialGRPC dials as kube-apiserver does, with a gRPC client for each connection.
func (b *bench) dialGRPC(addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), "unix://"+b.grpc,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", addr)
}

// dialConnect dials with HTTP CONNECT, as kube-apiserver does.
func (b *bench) dialConnect(addr string) (net.Conn, error) {
	conn, err := net.Dial("unix", b.connect)
	if err != nil {
		return nil, err
	}
	return connectOver(conn, addr)
}

func connectOver(conn net.Conn, addr string) (net.Conn, error) {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", addr); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		conn.Close()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		conn.Close()
		return nil, errors.New(resp.Status)
	}
	return &bufferedConn{conn, r}, nil
}

// bufferedConn is the client's connection after an HTTP CONNECT. If the target's bytes arrived
// together with the proxy's answer, Read returns these bytes first.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (b *bufferedConn) Read(p []byte) (int, error) { return b.r.Read(p) }
func (b *bufferedConn) CloseWrite() error {
	return b.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// target listens on loopback and serves each connection with f.
func target(t testing.TB, f func(*net.TCPConn)) (addr string) {
	t.Helper()
	ln := listen(t, "tcp", "127.0.0.1:0")
	var serving sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			serving.Go(func() {
				defer c.Close()
				f(c.(*net.TCPConn))
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return ln.Addr().String()
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

func roundTrip(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Fatalf("got %q, want %q", got, text)
	}
}
