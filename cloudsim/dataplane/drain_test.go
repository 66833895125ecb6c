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

// While a removed target has connections, the status shows the target, and the statistics count
// its connections.
func TestDrainingIsVisible(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, each(echo))
	f.lb.DrainTimeoutSeconds = 600
	counters := dataplane.NewCounters()
	f.start(t, dataplane.Config{Counters: counters, DrainTimeout: -1}) // the load balancer's own timeout applies
	a, b := dial(t, f.address()), dial(t, f.address())                 // one to each target
	a.checkEcho()
	b.checkEcho()
	f.lb.Targets = f.lb.Targets[:1]
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetHealthy, cloudsim.TargetDraining))
	a.checkEcho()
	b.checkEcho()
	s, _ := counters.LoadBalancerStats(lbID)
	if len(s.Targets) != 2 || s.Targets[1].Instance != instance(2) || s.Targets[1].Active != 1 {
		t.Errorf("counters: got %+v, want the draining target with 1 active connection", s.Targets)
	}
	a.Close()
	b.Close()
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetHealthy))
}

// If a target sends an endless answer, a probe reads only the beginning of the answer.
func TestProbeOfAnEndlessAnswer(t *testing.T) {
	t.Parallel()
	sent := make(chan int, 100)
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil { // like an HTTP server, answer only after an HTTP request
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
	f.start(t, dataplane.Config{})
	if n := <-sent; n == 0 || n > 32<<20 { // bytes; more than the socket buffers hold
		t.Errorf("the target sent %d bytes to a health check, want more than 0 and at most 32 MiB", n)
	}
}

// HTTPS probes accept any certificate. They accept only the status codes in the health check.
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
	f.start(t, dataplane.Config{})
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

// The end of one direction counts as activity. After this end, the other
// direction has the full idle timeout.
func TestHalfCloseRestartsIdleTimeout(t *testing.T) {
	t.Parallel()
	const idle = 3 * time.Second
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		if all, err := io.ReadAll(c); err == nil && len(all) > 0 {
			time.Sleep(idle * 3 / 5)
			_, _ = io.WriteString(c, "late")
		}
	}))
	f.start(t, dataplane.Config{IdleTimeout: idle})
	c := dial(t, f.address())
	_, _ = io.WriteString(c, "x")
	time.Sleep(idle * 3 / 5)
	_ = c.CloseWrite()
	if all, err := io.ReadAll(c); string(all) != "late" || err != nil {
		t.Errorf(`rest of the answer: got %q, error %v; want "late"`, all, err)
	}
}
