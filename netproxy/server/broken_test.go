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

// cable is a way between agent and server that can be broken.
type cable struct {
	addr   string
	mu     sync.Mutex
	open   []net.Conn
	silent chan struct{} // closed: nothing arrives any more
}

func newCable(t *testing.T, to string) *cable {
	w := &cable{silent: make(chan struct{})}
	w.addr = target(t, func(c *net.TCPConn) {
		up, err := net.Dial("tcp", to)
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

// carry copies until an end is closed, and into nowhere once all is silent.
func (w *cable) carry(to, from net.Conn) {
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		if err != nil {
			to.Close()
			return
		}
		select {
		case <-w.silent:
		default:
			if _, err := to.Write(buf[:n]); err != nil {
				from.Close()
			}
		}
	}
}

// cut ends all connections at once, as the death of a process does.
func (w *cable) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		c.Close()
	}
}

// flooded is a target that floods, and says when its client is gone.
func flooded(t *testing.T) (addr string, gone <-chan struct{}) {
	left := make(chan struct{}, 4)
	return target(t, func(c *net.TCPConn) { flood(c); left <- struct{}{} }), left
}

// flood writes until the connection ends, but only after the client has spoken.
// konnectivity-client drops data that arrives before it has registered the
// connection, and ends the connection.
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

// startFlood makes the target of c flood.
func startFlood(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

// A way that breaks in the middle of a transfer ends the connection at the
// client and at the target, and costs the way beside it nothing: at once when
// it is cut, and within seconds when it only falls silent.
func TestWayBreaks(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks func(*cable)
		long   bool // takes what silence takes to be noticed
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
				testWayBreaks(t, tc.breaks, w)
			})
		}
	}
}

func testWayBreaks(t *testing.T, breaks func(*cable), w way) {
	b := w.bench(t, func(c *server.Config) {
		c.KeepaliveTime, c.Strategies = time.Second, []server.Strategy{server.ByDefaultRoute, server.ByDefault}
	})
	far := newCable(t, b.agents)
	b.agent("far", func(c *agent.Config) {
		c.Servers, c.Streams, c.Identifiers.DefaultRoute, c.KeepaliveTime = []string{far.addr}, w.streams, true, time.Second
	})
	b.agent("near", func(c *agent.Config) { c.Streams = w.streams })
	flooding, gone := flooded(t)
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
		_ = c.SetReadDeadline(time.Now().Add(patience)) // the read says so
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("client %d waits on", i)
		}
		select {
		case <-gone:
		case <-time.After(patience):
			t.Errorf("the agent keeps its connection to the target")
		}
	}
	for _, d := range b.dialers() {
		roundTrip(t, mustDial(t, d, target(t, echo)), "by the other")
	}
}
