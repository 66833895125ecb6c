package dataplane_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// udpServer starts a server that answers every datagram with the given name, a colon and the
// datagram.
func udpServer(t testing.TB, ip string, port int, name string) (stop func(), boundPort int) {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(ip), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 64<<10); ; {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = c.WriteToUDPAddrPort(append([]byte(name+":"), b[:n]...), from)
			}
		}
	}()
	stop = func() { c.Close(); <-done }
	t.Cleanup(stop)
	return stop, c.LocalAddr().(*net.UDPAddr).Port
}

// udpFleet returns a fleet that also has a UDP server on each instance. The load balancer has a TCP
// listener and a UDP listener with the same port number. The n-th returned function ends the UDP
// server on the n-th instance. The instance is then still a healthy target, because probes check
// only the TCP servers.
func udpFleet(t testing.TB, n int) (f *fleet, stops []func()) {
	t.Helper()
	f = newFleet(t, n, sayName)
	at := 0
	for i, s := range f.servers {
		var stop func()
		stop, at = udpServer(t, s.ip, at, string(instance(i+1)))
		stops = append(stops, stop)
	}
	f.lb.Listeners = append(f.lb.Listeners, cloudsim.Listener{Protocol: cloudsim.UDP, Port: port, TargetPort: at})
	return f, stops
}

type udpClient struct {
	*net.UDPConn
	t testing.TB
}

func dialUDP(t testing.TB, address string) udpClient {
	t.Helper()
	c, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return udpClient{c.(*net.UDPConn), t}
}

// tryAsk sends a word once and waits at most half a second for the answer. It returns the name of
// the server, or "" if there is no answer.
func (c udpClient) tryAsk(word string) string {
	c.t.Helper()
	if _, err := c.Write([]byte(word)); err != nil && !isRefused(err) {
		c.t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return ""
		case err != nil && !isRefused(err):
			c.t.Fatal(err)
		case err == nil && bytes.HasSuffix(b[:n], []byte(":"+word)):
			return string(b[:n-len(word)-1])
		}
	}
}

func isRefused(err error) bool {
	return err != nil && bytes.Contains([]byte(err.Error()), []byte("refused"))
}

// ask repeats tryAsk until an answer comes, because a datagram may be lost.
func (c udpClient) ask(word string) (target string) {
	c.t.Helper()
	eventually.Empty(c.t, func() string {
		if target = c.tryAsk(word); target == "" {
			return "no answer to " + word
		}
		return ""
	})
	return target
}

// TCP and UDP listeners can share a port number. All datagrams of a client go to one target,
// and clients spread over all targets.
func TestUDP(t *testing.T) {
	t.Parallel()
	f, _ := udpFleet(t, 2)
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters})
	if word, _ := ask(t, f.address()); word == "" {
		t.Error("got no answer over TCP")
	}
	seen := map[string]int{}
	for range 6 {
		c := dialUDP(t, f.address())
		target := c.ask("first")
		for range 5 {
			if next := c.ask("again"); next != target {
				t.Fatalf("datagrams of one client: got answers of %s and %s, want the same target", target, next)
			}
		}
		seen[target]++
	}
	if d := cmp.Diff(map[string]int{"i-000001": 3, "i-000002": 3}, seen); d != "" {
		t.Errorf("number of clients of each target differs: %s", d)
	}
	c := dialUDP(t, f.address())
	c.ask("")
	c.ask(string(bytes.Repeat([]byte("x"), 60_000)))
	s, ok := counters.LoadBalancerStats(lbID)
	if l := s.Listeners[1]; !ok || l.Active != 7 || l.Accepted != 7 || l.Refused != (cloudsim.Refusals{}) {
		t.Errorf("counters: got %+v, %v; want 7 active and 7 accepted flows", l, ok)
	}
	// A target can answer before the data plane has counted the datagram, so the test waits.
	eventually.True(t, "the bytes of all datagrams are counted", func() bool {
		s, _ := counters.LoadBalancerStats(lbID)
		return s.Targets[0].BytesIn+s.Targets[1].BytesIn >= 60_000+30*5
	})
}

// A silent flow ends and frees its goroutine and its descriptor. A flow with traffic continues.
func TestFlowExpires(t *testing.T) {
	f, _ := udpFleet(t, 1)
	f.lb.HealthCheck.IntervalMillis = 300_000
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters, FlowTimeout: 3 * time.Second})
	flows := func() int {
		s, _ := counters.LoadBalancerStats(lbID)
		return s.Listeners[1].Active
	}
	speaks := dialUDP(t, f.address())
	speaks.ask("begin")
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
	var silent []udpClient
	for n := range 20 {
		c := dialUDP(t, f.address())
		c.ask(fmt.Sprint("once ", n))
		speaks.ask("still here")
		silent = append(silent, c)
	}
	for _, c := range silent {
		c.Close()
	}
	eventually.Empty(t, func() string {
		speaks.ask("still here")
		if n := flows(); n != 1 {
			return fmt.Sprintf("got %d flows, want 1", n)
		}
		return ""
	})
	eventually.Empty(t, func() string {
		speaks.ask("still here")
		g, d := runtime.NumGoroutine(), openDescriptors(t)
		if g > goroutines || d > descriptors {
			return fmt.Sprintf("got %d goroutines and %d descriptors, want at most %d and %d", g, d, goroutines, descriptors)
		}
		return ""
	})
	s, _ := counters.LoadBalancerStats(lbID)
	if s.Listeners[1].Accepted != 21 {
		t.Errorf("got %d accepted flows, want 21", s.Listeners[1].Accepted)
	}
	eventually.Empty(t, func() string {
		if n := flows(); n != 0 {
			return fmt.Sprintf("got %d flows, want 0", n)
		}
		return ""
	})
}

// A flow ends if its target refuses datagrams, turns unhealthy or is removed. The next datagram
// goes to another target.
func TestFlowEndsWithItsTarget(t *testing.T) {
	t.Parallel()
	f, stops := udpFleet(t, 3)
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters})
	c := dialUDP(t, f.address())
	at := func(name string) int {
		for n := range f.servers {
			if string(instance(n+1)) == name {
				return n
			}
		}
		t.Fatalf("got an answer of %q, want an answer of a target", name)
		return 0
	}
	movesFrom := func(previous string) string {
		t.Helper()
		var now string
		eventually.Empty(t, func() string {
			if now = c.tryAsk("where"); now == previous || now == "" {
				return "answered by " + now
			}
			return ""
		})
		return now
	}
	targetName := c.ask("where")
	first := at(targetName)
	stops[first]() // the probes of this target still succeed
	targetName = movesFrom(targetName)
	failed := uint64(0)
	s, _ := counters.LoadBalancerStats(lbID)
	for _, target := range s.Targets {
		failed += target.FailedDials
	}
	if failed == 0 {
		t.Error("counters: got no failed dial, want at least 1")
	}
	ill := at(targetName)
	f.servers[ill].close()
	for n := range 3 {
		if n != ill && n != first {
			targetName = movesFrom(targetName)
			if targetName != string(instance(n+1)) {
				t.Errorf("got target %s, want %s", targetName, instance(n+1))
			}
		}
	}
	f.lb.Targets = nil
	f.cloud.putLB(f.lb)
	eventually.Empty(t, func() string {
		if now := c.tryAsk("where"); now != "" {
			return "still answered by " + now
		}
		return ""
	})
}

// A new idle timeout also applies to flows that are silent at the time of the change.
func TestIdleTimeoutOfFlowsChanges(t *testing.T) {
	t.Parallel()
	f, _ := udpFleet(t, 1)
	f.lb.Listeners[1].IdleTimeoutSeconds = 3600
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters})
	dialUDP(t, f.address()).ask("a")
	f.lb.Listeners[1].IdleTimeoutSeconds = 1
	f.cloud.putLB(f.lb)
	eventually.True(t, "the silent flow ends", func() bool {
		s, _ := counters.LoadBalancerStats(lbID)
		return s.Listeners[1].Active == 0
	})
}

// If a listener has the maximum number of flows, the data plane refuses a new flow. It allows a new
// flow after an existing flow has ended.
func TestMaxFlows(t *testing.T) {
	t.Parallel()
	f, _ := udpFleet(t, 1)
	f.lb.Listeners[1].MaxConnections = 1
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters, FlowTimeout: 300 * time.Millisecond})
	first, second := dialUDP(t, f.address()), dialUDP(t, f.address())
	first.ask("a")
	if _, err := second.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	first.ask("a")
	eventually.Empty(t, func() string {
		if s, _ := counters.LoadBalancerStats(lbID); s.Listeners[1].Refused.TooManyConnections == 0 {
			first.tryAsk("a")
			_, _ = second.Write([]byte("b"))
			return "nothing was refused"
		}
		return ""
	})
	second.ask("b") // allowed after the first flow has ended
}

// When a UDP listener is removed, its flows end and its port is free.
func TestUDPListenerIsRemoved(t *testing.T) {
	t.Parallel()
	f, _ := udpFleet(t, 1)
	f.start(t, dataplane.Config{})
	c := dialUDP(t, f.address())
	c.ask("a")
	udp := f.lb.Listeners[1]
	f.lb.Listeners = f.lb.Listeners[:1]
	f.cloud.putLB(f.lb)
	eventually.Empty(t, func() string {
		ln, err := net.ListenPacket("udp", f.address())
		if err != nil {
			return err.Error()
		}
		ln.Close()
		return ""
	})
	f.lb.Listeners = append(f.lb.Listeners, udp)
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, unreadyReason)
	c.ask("b")
}
