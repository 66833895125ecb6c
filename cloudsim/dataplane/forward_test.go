package dataplane_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// Sequential requests spread evenly over the targets.
func TestRequestsSpreadEvenly(t *testing.T) {
	f := newFleet(t, 3, sayName)
	reg := prometheus.NewRegistry()
	f.start(t, dataplane.Config{Registry: reg})
	const rounds = 20
	got := map[string]int{}
	for range 3 * rounds {
		word, _ := ask(t, f.address())
		got[word]++
		eventually.Empty(t, func() string { // the balancer may detect the end of the connection later than the client
			if n := sum(t, reg, "cloudsim_lb_active_connections"); n != 0 {
				return fmt.Sprintf("got %v open connections, want 0", n)
			}
			return ""
		})
	}
	want := map[string]int{"i-000001": rounds, "i-000002": rounds, "i-000003": rounds}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("number of requests of each target differs (-want +got):\n%s", diff)
	}
}

// A new connection goes to the target with the fewest connections.
func TestLeastConnections(t *testing.T) {
	f := newFleet(t, 3, sayName)
	f.start(t, dataplane.Config{})
	held := map[string]client{}
	for range 3 {
		c := dial(t, f.address())
		held[c.line()] = c
	}
	if len(held) != 3 {
		t.Fatalf("three connections: got %d different targets, want 3", len(held))
	}
	for _, free := range []string{"i-000002", "i-000001", "i-000002", "i-000003"} {
		held[free].Close()
		eventually.Empty(t, func() string {
			c := dial(t, f.address())
			if word := c.line(); word != free {
				c.Close() // the balancer had not seen the end of the closed connection yet
				return "went to " + word + ", not to the free " + free
			}
			held[free] = c
			return ""
		})
	}
}

// If the client or the target closes its sending direction, the other direction stays open.
func TestHalfClose(t *testing.T) {
	t.Run("client ends first", func(t *testing.T) {
		f := newFleet(t, 1, each(func(c *net.TCPConn) {
			all, err := io.ReadAll(c)
			fmt.Fprintf(c, "%s %v\n", all, err)
		}))
		f.start(t, dataplane.Config{})
		c := dial(t, f.address())
		if _, err := io.WriteString(c, "question"); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := c.line(); got != "question <nil>" {
			t.Errorf(`echo: got %q, want "question <nil>"`, got)
		}
	})
	t.Run("target ends first", func(t *testing.T) {
		received := make(chan string, 100) // large enough for probes, which are connections too
		f := newFleet(t, 1, each(func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "answer")
			_ = c.CloseWrite()
			all, err := io.ReadAll(c)
			received <- fmt.Sprintf("%s %v", all, err)
		}))
		f.lb.HealthCheck.IntervalMillis = 300_000
		f.start(t, dataplane.Config{})
		<-received
		c := dial(t, f.address())
		if all, err := io.ReadAll(c); string(all) != "answer" || err != nil {
			t.Fatalf(`got answer %q, error %v; want "answer"`, all, err)
		}
		if _, err := io.WriteString(c, "late"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if got := <-received; got != "late <nil>" {
			t.Errorf(`target: got %q, want "late <nil>"`, got)
		}
	})
}

// A client gets all bytes that its target sent before the target closed the connection. This is
// true even if the client then sends more bytes, which the target's kernel answers with a reset.
func TestAllBytesArriveAfterTargetCloses(t *testing.T) {
	const size = 256 << 10 // bytes; the socket buffers have space for them
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		if n, _ := c.Read(make([]byte, 1)); n == 1 {
			_, _ = c.Write(make([]byte, size))
		}
	}))
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters})
	c := dial(t, f.address())
	if err := c.SetReadBuffer(32 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	stats := func() cloudsim.TargetStats {
		s, _ := counters.LoadBalancerStats(lbID)
		return s.Targets[0]
	}
	eventually.Empty(t, func() string {
		if n := stats().BytesOut; n != size {
			return fmt.Sprintf("data plane counted %d bytes", n)
		}
		return ""
	})
	f.servers[0].close()
	if _, err := c.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	eventually.Empty(t, func() string {
		if stats().BytesIn != uint64(len("xlate")) {
			return "the late bytes were not forwarded"
		}
		return ""
	})
	if n, err := io.Copy(io.Discard, c); n != size || err != nil {
		t.Errorf("got %d of %d bytes: error %v", n, size, err)
	}
}

// If one peer resets a connection, the data plane also resets the connection to the other peer.
func TestResetIsForwarded(t *testing.T) {
	t.Run("from the target", func(t *testing.T) {
		f := newFleet(t, 1, each(func(c *net.TCPConn) {
			if n, _ := c.Read(make([]byte, 1)); n == 1 {
				_ = c.SetLinger(0)
			}
		}))
		f.start(t, dataplane.Config{})
		c := dial(t, f.address())
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		c.wasReset()
	})
	t.Run("from the client", func(t *testing.T) {
		ended := make(chan error, 1)
		f := newFleet(t, 1, each(func(c *net.TCPConn) {
			if n, _ := c.Read(make([]byte, 1)); n == 1 {
				_, err := c.Read(make([]byte, 1))
				ended <- err
			}
		}))
		f.start(t, dataplane.Config{})
		c := dial(t, f.address())
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = c.SetLinger(0)
		c.Close()
		if err := <-ended; !isReset(err) {
			t.Errorf("target: got read error %v, want a reset", err)
		}
	})
}

// The data plane forwards 64 MiB in each direction at the same time. It does not change the data.
func TestBigTransferBothWays(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	stream := func(seed byte) io.Reader {
		return io.LimitReader(rand.NewChaCha8([32]byte{seed}), size)
	}
	digest := func(r io.Reader) (s [32]byte, n int64, err error) {
		h := sha256.New()
		n, err = io.Copy(h, r)
		return [32]byte(h.Sum(nil)), n, err
	}
	want := map[byte][32]byte{}
	for _, seed := range []byte{1, 2} {
		want[seed], _, _ = digest(stream(seed))
	}
	exchange := func(c *net.TCPConn, send, receive byte) error {
		var writing sync.WaitGroup
		defer writing.Wait()
		writing.Go(func() {
			_, _ = io.Copy(c, stream(send))
			_ = c.CloseWrite()
		})
		got, n, err := digest(c)
		if err != nil || got != want[receive] {
			return fmt.Errorf("stream %d: got %d of %d bytes with sum %x, want %x: %w", receive, n, size, got, want[receive], err)
		}
		return nil
	}
	target := make(chan error, 1)
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		if n, _ := c.Read(make([]byte, 1)); n == 1 { // not a probe
			target <- exchange(c, 1, 2)
		}
	}))
	f.start(t, dataplane.Config{IdleTimeout: time.Second}) // the deadlines of the idle timeout pass during the transfer
	c := dial(t, f.address())
	_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := exchange(c.TCPConn, 2, 1); err != nil {
		t.Errorf("client: got error %v", err)
	}
	if err := <-target; err != nil {
		t.Errorf("target: got error %v", err)
	}
}

// A connection ends when its client resets it, even if its target has stopped reading.
func TestClientGivesUpOnABlockedTarget(t *testing.T) {
	t.Parallel()
	if !seesUnsent {
		t.Skip("this platform does not report the end of the client of a waiting connection")
	}
	release := make(chan struct{})
	f := newFleet(t, 1, each(func(*net.TCPConn) { <-release })) // reads nothing
	t.Cleanup(func() { close(release) })
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters})
	active := func(want int) {
		t.Helper()
		eventually.Empty(t, func() string {
			if s, _ := counters.LoadBalancerStats(lbID); s.Listeners[0].Active != want {
				return fmt.Sprintf("got %d active connections", s.Listeners[0].Active)
			}
			return ""
		})
	}
	c := dial(t, f.address())
	blocked := false
	for chunk := make([]byte, 1<<20); !blocked; {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, err := c.Write(chunk)
		blocked = errors.Is(err, os.ErrDeadlineExceeded)
		if err != nil && !blocked {
			t.Fatal(err)
		}
	}
	active(1)
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	active(0)
}

// A client that does not read does not delay other clients. Its connection does not count as
// idle, and the client gets every byte when it reads again.
func TestSlowReaderDoesNotSlowOthers(t *testing.T) {
	t.Parallel()
	if !seesUnsent {
		t.Skip("this platform treats a slow reader as an idle connection")
	}
	const size = 32 << 20 // bytes; more than the socket buffers hold
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		b := make([]byte, 1)
		if _, err := c.Read(b); err != nil || b[0] == 'p' {
			_, _ = c.Write(b)
			_, _ = io.Copy(c, c)
			return
		}
		_, _ = io.Copy(c, io.LimitReader(rand.NewChaCha8([32]byte{}), size))
	}))
	const idle = 5 * time.Second
	f.start(t, dataplane.Config{IdleTimeout: idle})
	slow := dial(t, f.address())
	if _, err := slow.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < idle*3/2; {
		c := dial(t, f.address())
		c.checkEcho()
		c.Close()
	}
	if n, err := io.Copy(io.Discard, slow); n != size || err != nil {
		t.Errorf("slow reader: got %d of %d bytes, error %v", n, size, err)
	}
}

// A client that reads late gets all bytes that its target sent before the target closed the
// connection. This is true even if both sides were silent for longer than the idle timeout.
func TestLateReaderGetsTheEnd(t *testing.T) {
	t.Parallel()
	if !seesUnsent {
		t.Skip("this platform treats a slow reader as an idle connection")
	}
	const size, idle = 1 << 20, 2 * time.Second // size: bytes, more than the client's socket buffer holds
	ended := make(chan struct{}, 100)
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		if n, _ := c.Read(make([]byte, 1)); n == 1 {
			_, _ = c.Write(make([]byte, size))
			ended <- struct{}{}
		}
	}))
	f.start(t, dataplane.Config{IdleTimeout: idle})
	c := dial(t, f.address())
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	<-ended
	time.Sleep(2 * idle)
	if n, err := io.Copy(io.Discard, c); n != size || err != nil {
		t.Errorf("got %d of %d bytes, error %v", n, size, err)
	}
}

// The data plane resets a connection without traffic. It does not reset a connection with traffic
// in only one direction.
func TestIdle(t *testing.T) {
	t.Parallel()
	const idle = 2 * time.Second
	f := newFleet(t, 1, each(echo))
	f.start(t, dataplane.Config{IdleTimeout: idle})
	begin := time.Now()
	dial(t, f.address()).wasReset()
	if took := time.Since(begin); took < idle {
		t.Errorf("reset after %v, want at least %v", took, idle)
	}

	feed := newFleet(t, 1, each(func(c *net.TCPConn) { // sends, and gets no answer
		for {
			if _, err := c.Write([]byte("tick\n")); err != nil {
				return
			}
			time.Sleep(idle / 8)
		}
	}))
	feed.start(t, dataplane.Config{IdleTimeout: idle})
	c := dial(t, feed.address())
	for begin := time.Now(); time.Since(begin) < 2*idle; {
		c.line()
	}
}

// A new idle timeout also applies to open connections.
func TestIdleTimeoutChanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, each(echo))
	f.lb.Listeners[0].IdleTimeoutSeconds = 30
	f.start(t, dataplane.Config{})
	c := dial(t, f.address())
	c.checkEcho()
	time.Sleep(3 * time.Second) // longer than dialTimeout, so that only the deadline of the old idle timeout remains
	f.lb.Listeners[0].IdleTimeoutSeconds = 1
	f.cloud.putLB(f.lb)
	begin := time.Now()
	c.wasReset()
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("got a reset after %v, want at most 15s", took)
	}
}

// First only the client sends, and then only the target sends. Each side is silent for longer than
// the idle timeout, but the connection is not idle. The sending side waits for half of the timeout
// between two bytes. So the test also passes if a slow machine makes a pause almost twice as long
// as planned.
func TestAlternatingTrafficIsNotIdle(t *testing.T) {
	t.Parallel()
	const words, idle = 3, 2 * time.Second
	speak := func(c *net.TCPConn) {
		for range words {
			_, _ = io.WriteString(c, "x")
			time.Sleep(idle / 2)
		}
	}
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		if n, _ := io.ReadFull(c, make([]byte, words)); n == words {
			speak(c)
		}
	}))
	f.start(t, dataplane.Config{IdleTimeout: idle})
	c := dial(t, f.address())
	speak(c.TCPConn)
	if _, err := io.ReadFull(c, make([]byte, words)); err != nil {
		t.Fatal(err)
	}
}

// All listeners together have at most MaxOpen connections. A listener without its own limit has
// at most half of MaxOpen, rounded up.
func TestMaxOpen(t *testing.T) {
	for says, maxOpen := range map[int]int{0: 3, 100: 2} {
		f := newFleet(t, 1, sayName)
		f.lb.Listeners[0].MaxConnections = says
		f.start(t, dataplane.Config{MaxOpen: maxOpen})
		first, second := dial(t, f.address()), dial(t, f.address())
		first.line()
		second.line()
		if word, refused := ask(t, f.address()); !refused {
			t.Errorf("connection beyond the limit of %d: got answer %s, want a reset", maxOpen, word)
		}
		first.Close()
		eventually.Empty(t, func() string {
			if _, refused := ask(t, f.address()); refused {
				return "refused although another connection ended"
			}
			return ""
		})
	}
}

// If a listener has MaxConnections open connections, the data plane resets a new connection. It
// allows a new connection after an open connection has ended.
func TestMaxConnections(t *testing.T) {
	f := newFleet(t, 1, sayName)
	f.start(t, dataplane.Config{MaxConnections: 2})
	first, second := dial(t, f.address()), dial(t, f.address())
	first.line()
	second.line()
	if word, refused := ask(t, f.address()); !refused {
		t.Fatalf("third connection: got answer %s, want a reset", word)
	}
	first.Close()
	eventually.Empty(t, func() string {
		if _, refused := ask(t, f.address()); refused {
			return "refused although another connection ended"
		}
		return ""
	})
}

// If the data plane cannot connect to a healthy target, it connects the client to another target,
// and the client sees no error. If the data plane can connect to no target, it resets the client's
// connection. The log then has the reason once, not for each connection.
func TestDialFailureTriesAnother(t *testing.T) {
	f := newFleet(t, 3, sayName)
	probed := serve(t, f.servers[0].ip, 0, sayWord("ok"))
	for _, s := range f.servers[1:] {
		serve(t, s.ip, probed.port, sayWord("ok"))
	}
	f.lb.HealthCheck.Port = probed.port
	f.servers[0].close()
	f.servers[2].close()
	f.cloud.putLB(f.lb)
	log := make(warnings, 10)
	runLogged(t, slog.NewTextHandler(log, nil), f.cloud, dataplane.Config{})
	f.cloud.await(t, lbID, unreadyReason)
	for range 9 {
		if word, refused := ask(t, f.address()); refused || word != "i-000002" {
			t.Fatalf("got answer %q, refused %v; want i-000002", word, refused)
		}
	}
	f.servers[1].close()
	for range 3 {
		if word, refused := ask(t, f.address()); !refused {
			t.Errorf("got answer %q, want a reset", word)
		}
	}
	if len(log) != 1 {
		t.Fatalf("got %d log lines about refused clients, want 1", len(log))
	}
	line := <-log
	for _, want := range []string{"a client was refused", "i-000001", "i-000002", "i-000003", syscall.ECONNREFUSED.Error()} {
		if !strings.Contains(line, want) {
			t.Errorf("log line: got %q, want a line with %q", line, want)
		}
	}
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetHealthy, cloudsim.TargetHealthy, cloudsim.TargetHealthy))
}

// Several addresses behind one instance, e.g. the addresses of its pods, are separate targets. The
// data plane probes, reaches and drains each target separately. When the instance stops, all these
// targets are unhealthy.
func TestAddressesBehindAnInstance(t *testing.T) {
	cloud := newMemory()
	a := serve(t, instanceIP(), 0, sayWord("a"))
	b := serve(t, instanceIP(), a.port, sayWord("b"))
	cloud.putInstance(instance(1), instanceIP(), cloudsim.InstanceRunning)
	at := func(s *server) cloudsim.Target { return cloudsim.Target{Instance: instance(1), IP: s.ip} }
	lb := cloudsim.LoadBalancer{ID: lbID, IP: lbIP()}
	lb.Listeners = []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: port, TargetPort: a.port}}
	lb.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, IntervalMillis: 10}
	lb.Targets = []cloudsim.Target{at(a), at(b)}
	cloud.putLB(lb)
	reg := prometheus.NewRegistry()
	runDataplane(t, cloud, dataplane.Config{Registry: reg})
	cloud.await(t, lbID, unreadyReason)
	address := fmt.Sprintf("%s:%d", lb.IP, port)
	got := map[string]int{}
	for range 4 {
		c := dial(t, address)
		got[c.line()]++
	}
	if d := cmp.Diff(map[string]int{"a": 2, "b": 2}, got); d != "" {
		t.Error(d)
	}
	if n := metricSeries(t, reg)["cloudsim_lb_connections_total{instance=i-000001,ip="+b.ip+",listener=,load_balancer=lb-000001}"]; n != 2 {
		t.Errorf("target b: got %v connections, want 2", n)
	}
	b.close()
	cloud.await(t, lbID, wantHealth("healthy", "unhealthy"))
	lb.Targets = lb.Targets[:1]
	lb.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthNone}
	cloud.putLB(lb)
	a.close()
	if word, refused := ask(t, address); !refused {
		t.Errorf("load balancer without targets: got answer %q, want a reset", word)
	}
	cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
		return cmp.Diff(cloudsim.TargetStatus{Instance: instance(1), IP: a.ip, Health: cloudsim.TargetHealthy}, s.Targets[0])
	})
	cloud.putInstance(instance(1), instanceIP(), cloudsim.InstanceStopped)
	cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
		return cmp.Diff(cloudsim.TargetUnhealthy, s.Targets[0].Health)
	})
}
