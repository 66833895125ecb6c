package dataplane_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
)

// A target that was taken away is shown while it still has connections, and
// what it has is still counted.
func TestDrainingIsVisible(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, each(echo))
	f.lb.DrainTimeoutSeconds = 600
	counters := dataplane.NewCounters()
	f.up(t, dataplane.Config{Counters: counters, DrainTimeout: -1}) // the load balancer says otherwise
	a, b := dial(t, f.address()), dial(t, f.address())              // one to each
	a.alive()
	b.alive()
	f.lb.Targets = f.lb.Targets[:1]
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, healths(cloudsim.TargetHealthy, cloudsim.TargetDraining))
	a.alive()
	b.alive()
	s, _ := counters.LoadBalancerStats(lbID)
	if len(s.Targets) != 2 || s.Targets[1].Instance != instance(2) || s.Targets[1].Active != 1 {
		t.Errorf("counted %+v; want the one that drains, too", s.Targets)
	}
	a.Close()
	b.Close()
	f.cloud.await(t, lbID, healths(cloudsim.TargetHealthy))
}

// A probe reads no more of an answer than it needs: one without end costs
// little.
func TestProbeOfAnEndlessAnswer(t *testing.T) {
	t.Parallel()
	sent := make(chan int, 100)
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil { // an answer to no question is no HTTP
			sent <- 0
			return
		}
		n, _ := fmt.Fprint(c, "HTTP/1.0 200 OK\r\n\r\n")
		for block, more := make([]byte, 64<<10), 0; ; n += more {
			var err error
			if more, err = c.Write(block); err != nil {
				sent <- n
				return
			}
		}
	}))
	f.lb.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthHTTP, IntervalMillis: 300_000, TimeoutMillis: 5000}
	f.up(t, dataplane.Config{})
	if n := <-sent; n > 32<<20 { // what sockets hold, with room
		t.Errorf("a probe took %d bytes", n)
	}
}

// Probes speak TLS, whoever the target says it is, and take the statuses that
// the check names.
func TestProbeOverTLS(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, each(echo))
	ln, err := net.Listen("tcp", net.JoinHostPort(f.servers[0].ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	s.Listener.Close()
	s.Listener = ln
	s.StartTLS()
	t.Cleanup(s.Close)
	f.lb.HealthCheck = cloudsim.HealthCheck{
		Protocol: cloudsim.HealthHTTPS, Port: ln.Addr().(*net.TCPAddr).Port, IntervalMillis: 10, TimeoutMillis: 10_000, ExpectedCodes: "200,410-420",
	}
	f.up(t, dataplane.Config{})
	f.lb.HealthCheck.ExpectedCodes = "200-299"
	f.cloud.putLB(f.lb)
	want := fmt.Sprintf("GET https://%s/: answered 418, want 200-299", ln.Addr())
	f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
		if s.Targets[0].Reason != want {
			return "want " + want
		}
		return ""
	})
}

// An end is a word, too: the side that goes on has the whole idle timeout from
// there.
func TestAnEndRestartsIdle(t *testing.T) {
	t.Parallel()
	const idle = 3 * time.Second
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		if all, err := io.ReadAll(c); err == nil && len(all) > 0 {
			time.Sleep(idle * 3 / 5)
			_, _ = io.WriteString(c, "late")
		}
	}))
	f.up(t, dataplane.Config{IdleTimeout: idle})
	c := dial(t, f.address())
	_, _ = io.WriteString(c, "x")
	time.Sleep(idle * 3 / 5)
	_ = c.CloseWrite()
	if all, err := io.ReadAll(c); string(all) != "late" || err != nil {
		t.Errorf("after the end: %q, %v", all, err)
	}
}
