//go:build !portable

package dataplane_test

import (
	"io"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// openSilentPort opens a port that neither accepts nor refuses connections.
func openSilentPort(t *testing.T, ip string, port int) {
	t.Helper()
	must := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(err)
	t.Cleanup(func() { unix.Close(fd) })
	must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	must(unix.Bind(fd, &unix.SockaddrInet4{Addr: netip.MustParseAddr(ip).As4(), Port: port}))
	must(unix.Listen(fd, 0))
	c, err := net.Dial("tcp", net.JoinHostPort(ip, strconv.Itoa(port))) // fills the queue, so the kernel ignores later clients
	must(err)
	t.Cleanup(func() { c.Close() })
}

// quietFleet returns a load balancer without health checks, together with its target servers. The
// first target does not accept connections.
func quietFleet(t *testing.T, targets int) *fleet {
	f := newFleet(t, targets, sayName)
	f.lb.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthNone}
	f.servers[0].close()
	openSilentPort(t, f.servers[0].ip, f.servers[0].port)
	return f
}

// If the chosen target of a client does not answer, the client gets another target. The new target
// also gets the bytes that the client sent before the data plane chose this target.
func TestSilentTarget(t *testing.T) {
	t.Parallel()
	f := quietFleet(t, 2)
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters})
	if word, refused := ask(t, f.address()); refused || word != "i-000002" {
		t.Errorf("got answer %q, refused %v; want i-000002", word, refused)
	}
	s, _ := counters.LoadBalancerStats(lbID)
	if s.Targets[0].FailedDials != 1 || s.Targets[1].BytesIn != uint64(len("ping\n")) {
		t.Errorf("counters: got %+v, want 1 failed dial of the first target", s.Targets)
	}
}

// When a listener is removed, some of its connections may still wait for a target. The data
// plane resets these connections at once.
func TestListenerIsRemovedWhileDialing(t *testing.T) {
	t.Parallel()
	f := quietFleet(t, 1)
	counters := dataplane.NewCounters()
	f.lb.Listeners = append(f.lb.Listeners, cloudsim.Listener{Protocol: cloudsim.TCP, Port: port + 1, TargetPort: f.servers[0].port})
	f.start(t, dataplane.Config{Counters: counters})
	stats := func() cloudsim.LoadBalancerStats {
		s, _ := counters.LoadBalancerStats(lbID)
		return s
	}
	c := dial(t, f.address())
	eventually.Empty(t, func() string {
		if stats().Listeners[0].Active != 1 {
			return "the connection is not counted as active"
		}
		return ""
	})
	f.lb.Listeners = f.lb.Listeners[1:]
	f.cloud.putLB(f.lb)
	c.wasReset()
	if s := stats(); s.Targets[0].FailedDials != 0 || s.Targets[0].Active != 0 {
		t.Errorf("counters: got %+v, want no failed and no active connection", s.Targets[0])
	}
}

// If a client ends its half of a connection and then resets the connection, the
// data plane closes the connection. In this test, the target sends nothing. So
// the data plane cannot detect the reset by a failed write to the client.
func TestResetAfterHalfClose(t *testing.T) {
	t.Parallel()
	eof := make(chan struct{}, 1)
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		eof <- struct{}{}
		<-t.Context().Done()
	}))
	f.lb.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthNone}
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters, IdleTimeout: -1})
	c := dial(t, f.address())
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-eof
	_ = c.SetLinger(0)
	c.Close()
	eventually.Empty(t, func() string {
		if s, _ := counters.LoadBalancerStats(lbID); s.Targets[0].Active != 0 {
			return "the connection is still active"
		}
		return ""
	})
}
