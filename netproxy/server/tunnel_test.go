package server_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/certs"
	"github.com/cloudsim-dev/allinone/netproxy/server"
)

// way is a protocol between server and agent.
type way struct {
	name    string
	streams bool
	tls     bool
}

var wires = []way{{"tls", true, true}, {"streams", true, false}, {"plain", false, false}}

// bench returns a test setup (see the type bench) that uses the protocol w.
func (w way) bench(t testing.TB, change ...func(*server.Config)) *bench {
	t.Helper()
	if !w.tls {
		return newBench(t, change...)
	}
	dir := t.TempDir()
	if err := certs.Make(dir, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	files := func(name string) certs.Files {
		return certs.Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, certs.AgentsCA+".crt")}
	}
	conf, err := certs.ServerConfig(logger(t), files(certs.Server), certs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, append(change, func(c *server.Config) { c.AgentTLS = conf })...)
	b.tls = func() (*tls.Config, error) { return certs.ClientConfig(files(certs.Agent), certs.Options{}) }
	return b
}

// everyWay runs f for each frontend over every protocol.
func everyWay(t *testing.T, f func(t *testing.T, d dialer, streams bool)) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			b := w.bench(t)
			b.agent("one", func(c *agent.Config) { c.Streams = w.streams })
			for _, d := range b.dialers() {
				t.Run(d.name, func(t *testing.T) { f(t, d, w.streams) })
			}
			b.await("all connections to end", func() bool { return len(b.server.Status().Connections) == 0 })
		})
	}
}

func mustDial(t testing.TB, d dialer, addr string) net.Conn {
	t.Helper()
	c, err := d.dial(addr)
	if err != nil {
		t.Fatalf("%s: %v", d.name, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestEcho(t *testing.T) {
	everyWay(t, func(t *testing.T, d dialer, _ bool) {
		c := mustDial(t, d, target(t, echo))
		roundTrip(t, c, "hello")
		roundTrip(t, c, "again")
		c.Close()
	})
}

// The test sends data in both directions at the same time. All bytes arrive in the order of the
// writes.
func TestBulk(t *testing.T) {
	data := make([]byte, 8<<20)
	_, _ = rand.Read(data)
	everyWay(t, func(t *testing.T, d dialer, _ bool) {
		c := mustDial(t, d, target(t, echo))
		var sending sync.WaitGroup
		sending.Go(func() {
			// gRPC accepts no message larger than 4 MiB, so the test sends small pieces.
			for piece := range slices.Chunk(data, 100_000) {
				if _, err := c.Write(piece); err != nil {
					t.Error(err)
					return
				}
			}
		})
		got := make([]byte, len(data))
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		sending.Wait()
		if !bytes.Equal(got, data) {
			t.Error("the received bytes differ from the sent bytes")
		}
	})
}

// If the target sends data before the client sends data, the client gets the proxy's answer first.
// Then it gets all bytes of the target.
func TestTargetSpeaksFirst(t *testing.T) {
	addr := target(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "220 ready\r\n") })
	everyWay(t, func(t *testing.T, d dialer, _ bool) {
		if d.name == "grpc" {
			t.Skip("upstream's client can lose these bytes, see TestAnswerComesFirst")
		}
		for range 200 {
			c := mustDial(t, d, addr)
			if got, err := io.ReadAll(c); err != nil || string(got) != "220 ready\r\n" {
				t.Fatalf(`data of the target: got %q, error %v; want "220 ready\r\n"`, got, err)
			}
			c.Close()
		}
	})
}

// The target also gets the bytes that the client sends before the proxy's answer.
func TestClientSpeaksEarly(t *testing.T) {
	addr := target(t, echo)
	for _, w := range wires {
		b := w.bench(t)
		b.agent("one", func(c *agent.Config) { c.Streams = w.streams })
		conn, err := net.Dial("unix", b.connect)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "CONNECT "+addr+" HTTP/1.1\r\nHost: x\r\n\r\nearly"); err != nil {
			t.Fatal(err)
		}
		want := "HTTP/1.1 200 Connection established\r\n\r\nearly"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			t.Fatalf("%s: got %q, %v", w.name, got, err)
		}
	}
}

// A client that has closed its sending direction still gets the target's answer.
func TestHalfClose(t *testing.T) {
	b := newBench(t)
	b.agent("one")
	addr := target(t, func(c *net.TCPConn) {
		n, _ := io.Copy(io.Discard, c)
		_, _ = io.WriteString(c, "got "+string(rune('0'+n)))
	})
	c := mustDial(t, dialer{"http-connect", b.dialConnect}, addr)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*bufferedConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "got 5" {
		t.Fatalf(`answer after the client's half-close: got %q, error %v; want "got 5"`, got, err)
	}
}

// If a target has closed its sending direction, it still gets the client's bytes.
func TestTargetHalfCloses(t *testing.T) {
	b := newBench(t)
	b.agent("one")
	received := make(chan string, 1)
	addr := target(t, func(c *net.TCPConn) {
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		received <- string(all)
	})
	c := mustDial(t, dialer{"http-connect", b.dialConnect}, addr)
	if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
		t.Fatalf("client after the target's half-close: got %q, error %v; want no data and no error", got, err)
	}
	if _, err := io.WriteString(c, "still here"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got := <-received; got != "still here" {
		t.Errorf("the target got %q, want still here", got)
	}
}

// When a client disconnects, the target's connection ends.
func TestClientLeaves(t *testing.T) {
	everyWay(t, func(t *testing.T, d dialer, _ bool) {
		ended := make(chan struct{})
		addr := target(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c); close(ended) })
		c := mustDial(t, d, addr)
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		select {
		case <-ended:
		case <-time.After(testTimeout):
			t.Error("the target still has its connection")
		}
	})
}

// When a target closes its connection, the client gets all bytes of the target. Then the
// client's connection ends.
func TestTargetLeaves(t *testing.T) {
	everyWay(t, func(t *testing.T, d dialer, _ bool) {
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		c := mustDial(t, d, target(t, func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 1))
			_, _ = c.Write(data)
		}))
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("got %d bytes, %v; want %d", len(got), err, len(data))
		}
	})
}
