package dataplane_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// Two thousand connections that end in different ways leave no goroutine and no
// descriptor. After these connections, no connection counts as active.
func TestConnectionsLeaveNoResources(t *testing.T) {
	const clients, times = 50, 40
	f := newFleet(t, 2, sayName)
	f.lb.HealthCheck.IntervalMillis = 300_000 // so that no probe changes the counts
	reg := prometheus.NewRegistry()
	stop := f.start(t, dataplane.Config{Registry: reg, ShutdownGrace: -1})
	dial(t, f.address()).Close()
	settled := func() string {
		if n := sum(t, reg, "cloudsim_lb_active_connections"); n != 0 {
			return fmt.Sprintf("got %v active connections, want 0", n)
		}
		return ""
	}
	eventually.Empty(t, settled)
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)

	var dialing sync.WaitGroup
	for i := range clients {
		dialing.Go(func() {
			for range times {
				c, refused := tryDial(t, f.address())
				if refused {
					continue // the machine had too few resources for this connection; the test allows this for a tenth of the connections
				}
				switch i % 3 {
				case 0: // closed without traffic
				case 1:
					c.line()
				case 2:
					_ = c.SetLinger(0)
				}
				c.Close()
			}
		})
	}
	dialing.Wait()
	eventually.Empty(t, settled)
	eventually.Empty(t, func() string {
		if n := runtime.NumGoroutine(); n > goroutines {
			return fmt.Sprintf("got %d goroutines, want at most %d", n, goroutines)
		}
		return ""
	})
	eventually.Empty(t, func() string {
		runtime.GC() // closes the runtime's spare splice pipes
		if n := openDescriptors(t); n > descriptors {
			return fmt.Sprintf("got %d descriptors, want at most %d", n, descriptors)
		}
		return ""
	})
	if n := sum(t, reg, "cloudsim_lb_connections_total"); n < clients*times*9/10 {
		t.Errorf("got only %v of %d connections forwarded", n, clients*times)
	}
	held := dial(t, f.address())
	held.line()
	stop()
	if s := stacks(); strings.Contains(s, "dataplane.") {
		t.Errorf("goroutines of the data plane run after Run returned:\n%s", s)
	}
}

// An idle connection uses two sockets and no pipe.
func TestIdleConnectionHoldsNoPipe(t *testing.T) {
	f := newFleet(t, 1, each(func(c *net.TCPConn) { // echo without a splice pipe
		for b := make([]byte, 64); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			_, _ = c.Write(b[:n])
		}
	}))
	f.lb.HealthCheck.IntervalMillis = 300_000
	f.start(t, dataplane.Config{})
	dial(t, f.address()).checkEcho()
	before := openDescriptors(t)
	const n = 30
	for range n {
		dial(t, f.address()).checkEcho()
	}
	eventually.Empty(t, func() string {
		runtime.GC() // closes the runtime's spare pipes
		if more := openDescriptors(t) - before; more > 4*n {
			return fmt.Sprintf("got %d descriptors for %d connections, want at most 4 each", more, n)
		}
		return ""
	})
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("cannot count file descriptors: ", err)
	}
	return len(fds)
}

func stacks() string {
	buf := make([]byte, 4<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
