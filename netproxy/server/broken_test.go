package server_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/server"
)

// cable forwards the connections between agent and server. A test can close these connections, or
// make the cable discard all bytes.
type cable struct {
	addr   string
	mu     sync.Mutex
	open   []net.Conn
	silent chan struct{} // when closed, the cable forwards no more bytes
}

func newCable(t *testing.T, serverAddr string) *cable {
	w := &cable{silent: make(chan struct{})}
	w.addr = target(t, func(c *net.TCPConn) {
		up, err := net.Dial("tcp", serverAddr)
		if err != nil {
			return
		}
		defer up.Close()
		w.mu.Lock()
		w.open = append(w.open, c, up)
		w.mu.Unlock()
		var back sync.WaitGroup
		back.Go(func() { w.carry(c, up) })
		w.carry(up, c)
		back.Wait()
	})
	return w
}

// carry copies bytes from src to dst, until src or dst closes. After the test has closed w.silent,
// carry discards the bytes, as a broken network does.
func (w *cable) carry(dst, src net.Conn) {
	for buf := make([]byte, 32<<10); ; {
		n, err := src.Read(buf)
		if err != nil {
			dst.Close()
			return
		}
		select {
		case <-w.silent:
		default:
			if _, err := dst.Write(buf[:n]); err != nil {
				src.Close()
			}
		}
	}
}

// cut closes all connections at once, as the end of a process does.
func (w *cable) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		c.Close()
	}
}

// startFlooding starts a target that calls flood for each connection. The first result is the
// target's address. The second result is a channel. The target sends a value to this channel
// when a connection has ended.
func startFlooding(t *testing.T) (addr string, gone <-chan struct{}) {
	left := make(chan struct{}, 4)
	return target(t, func(c *net.TCPConn) { flood(c); left <- struct{}{} }), left
}

// flood waits for the first byte from the client. Then it writes until the
// connection ends. flood waits, because konnectivity-client drops data that
// arrives before the client has registered the connection. If
// konnectivity-client has dropped data, it ends the connection.
func flood(c *net.TCPConn) {
	buf := make([]byte, 64<<10)
	if _, err := c.Read(buf[:1]); err != nil {
		return
	}
	for {
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}

// startFlood sends the first byte on c, so that the target begins to write.
func startFlood(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

// If the connection between agent and server breaks during transfers, the tunneled connections
// through this agent end for their clients and for their targets. Connections through another agent
// continue. Server and agent detect a closed connection at once. They need a few seconds to detect
// an open connection that loses all bytes.
func TestBrokenConnectionToAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks func(*cable)
		long   bool // waits until keepalive detects the silence
	}{
		"cut":    {breaks: (*cable).cut},
		"silent": {breaks: func(w *cable) { close(w.silent) }, long: true},
	} {
		for _, w := range wires {
			t.Run(name+"/"+w.name, func(t *testing.T) {
				if tc.long && testing.Short() {
					t.Skip("waits for keepalives")
				}
				t.Parallel()
				testBrokenConnection(t, tc.breaks, w)
			})
		}
	}
}

func testBrokenConnection(t *testing.T, breaks func(*cable), w way) {
	b := w.bench(t, func(c *server.Config) {
		c.KeepaliveTime, c.Strategies = time.Second, []server.Strategy{server.ByDefaultRoute, server.ByDefault}
	})
	far := newCable(t, b.agents)
	b.agent("far", func(c *agent.Config) {
		c.Servers, c.Streams, c.Identifiers.DefaultRoute, c.KeepaliveTime = []string{far.addr}, w.streams, true, time.Second
	})
	b.agent("near", func(c *agent.Config) { c.Streams = w.streams })
	flooding, gone := startFlooding(t)
	var cut []net.Conn
	for _, d := range b.dialers() {
		c := mustDial(t, d, flooding)
		startFlood(t, c)
		if _, err := io.ReadFull(c, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		cut = append(cut, c)
	}
	breaks(far)
	for i, c := range cut {
		_ = c.SetReadDeadline(time.Now().Add(testTimeout)) // if this call fails, the next read shows the failure
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("client %d still waits after the connection broke", i)
		}
		select {
		case <-gone:
		case <-time.After(testTimeout):
			t.Errorf("the agent still has its connection to the target")
		}
	}
	for _, d := range b.dialers() {
		roundTrip(t, mustDial(t, d, target(t, echo)), "by the other")
	}
}
