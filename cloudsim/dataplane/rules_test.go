package dataplane_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// Only an active or updating load balancer forwards connections.
func TestStatesOfALoadBalancer(t *testing.T) {
	f := newFleet(t, 1, each(echo))
	f.lb.State = cloudsim.LoadBalancerProvisioning
	f.cloud.putLB(f.lb)
	other := newFleet(t, 1, each(echo)) // when the second load balancer is ready, the data plane has seen the first load balancer
	other.lb.ID, other.cloud = "lb-000002", f.cloud
	f.cloud.putInstance(instance(1), f.servers[0].ip, cloudsim.InstanceRunning)
	other.lb.Listeners = f.lb.Listeners
	f.cloud.putLB(other.lb)
	runDataplane(t, f.cloud, dataplane.Config{})
	f.cloud.await(t, "lb-000002", unreadyReason)
	if listens(f.address()) {
		t.Fatal("a provisioning load balancer accepts connections")
	}
	f.lb.State = cloudsim.LoadBalancerUpdating
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, unreadyReason)
	c := dial(t, f.address())
	c.checkEcho()
	f.lb.State = cloudsim.LoadBalancerActive
	f.cloud.putLB(f.lb)
	c.checkEcho()
	f.lb.State = cloudsim.LoadBalancerDeleting
	f.cloud.putLB(f.lb)
	c.wasReset()
	if listens(f.address()) {
		t.Fatal("a deleted load balancer accepts connections")
	}
}

// After a load balancer is deleted, the next load balancer can use the address
// of the deleted load balancer at once.
func TestDeletedFreesItsPorts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, each(echo))
	f.start(t, dataplane.Config{})
	for n := 2; n < 12; n++ {
		c := dial(t, f.address())
		c.checkEcho()
		f.cloud.deleteLB(f.lb.ID)
		f.lb.ID = cloudsim.LoadBalancerID(fmt.Sprintf("lb-%06d", n))
		f.cloud.putLB(f.lb)
		c.wasReset()
		f.cloud.await(t, f.lb.ID, unreadyReason)
		for _, s := range f.cloud.statuses(f.lb.ID) {
			if why := s.Listeners[0].Error; why != "" {
				t.Fatalf("load balancer %d: got listener error %s", n, why)
			}
		}
	}
}

// After the first successful probe, a target takes new connections. While the
// target is unhealthy, it takes no new connections and keeps its open
// connections.
func TestHealthUpAndDown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, sayName)
	first := f.servers[0]
	probed := serve(t, first.ip, 0, sayWord("ok")) // a separate port for probes
	serve(t, f.servers[1].ip, probed.port, sayWord("ok"))
	f.lb.HealthCheck.Port = probed.port
	f.start(t, dataplane.Config{})

	held := dial(t, f.address())
	for held.line() != string(instance(1)) {
		held = dial(t, f.address())
	}
	probed.close()
	s := f.cloud.await(t, lbID, wantHealth(cloudsim.TargetUnhealthy, cloudsim.TargetHealthy))
	if want := fmt.Sprintf("tcp %s:%d: connection refused", first.ip, probed.port); s.Targets[0].Reason != want {
		t.Errorf("got reason %q, want %q", s.Targets[0].Reason, want)
	}
	for range 4 {
		if word, _ := ask(t, f.address()); word != string(instance(2)) {
			t.Fatalf("got an answer of the unhealthy target %s", word)
		}
	}
	if _, err := held.Write([]byte("still here")); err != nil {
		t.Errorf("connection to a target that became unhealthy: got error %v", err)
	}
	held.Close()
	serve(t, first.ip, probed.port, sayWord("ok"))
	f.cloud.await(t, lbID, unreadyReason)
	eventually.Empty(t, func() string {
		if word, _ := ask(t, f.address()); word != string(instance(1)) {
			return "the healthy target gets no connections"
		}
		return ""
	})
}

// An HTTP probe expects status 200 from the configured path, and follows no redirect.
func TestHTTPHealth(t *testing.T) {
	t.Parallel()
	answer := make(chan string, 1)
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		now := <-answer
		answer <- now
		if !strings.HasPrefix(string(buf[:n]), "GET /healthz?full=1 HTTP/1.1\r\n") {
			now = "HTTP/1.0 404 Not Found\r\n\r\n"
		}
		_, _ = io.WriteString(c, now)
	}))
	answer <- "HTTP/1.0 200 OK\r\n\r\nfine"
	f.lb.HealthCheck = cloudsim.HealthCheck{Protocol: cloudsim.HealthHTTP, Path: "/healthz?full=1", IntervalMillis: 5, TimeoutMillis: 50}
	f.start(t, dataplane.Config{})
	for _, tc := range []struct{ answer, reason string }{
		{"HTTP/1.0 503 Service Unavailable\r\n\r\n", "answered 503, want 200"},
		{"HTTP/1.0 204 No Content\r\n\r\n", "answered 204, want 200"},
		{"HTTP/1.0 302 Found\r\nLocation: /healthz?full=1\r\n\r\n", "answered 302, want 200"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
		{"hello\r\n\r\n", "answered something other than HTTP"},
		{"", "connection closed without an answer"},
		{"HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("endless", 100_000), ""},
	} {
		<-answer
		answer <- tc.answer
		want := ""
		if tc.reason != "" {
			want = fmt.Sprintf("GET http://%s:%d/healthz?full=1: %s", f.servers[0].ip, f.servers[0].port, tc.reason)
		}
		f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
			if s.Targets[0].Reason != want {
				return "want reason " + want
			}
			return ""
		})
	}
	<-answer // probes get no answer from here on
	f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
		if !strings.HasSuffix(s.Targets[0].Reason, "no answer in time") {
			return "want a timeout"
		}
		return ""
	})
	answer <- ""
}

// An instance that does not run takes no new connections, even if its last probe succeeded. While
// the instance shuts down, it keeps its connections. When it is off, it has lost its connections.
func TestInstanceStates(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		now   cloudsim.InstanceState // "": the test deletes the instance
		keeps bool
	}{
		{"stopping", cloudsim.InstanceStopping, true},
		{"terminating", cloudsim.InstanceTerminating, true},
		{"stopped", cloudsim.InstanceStopped, false},
		{"rebooting", cloudsim.InstanceRebooting, false},
		{"deleted", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 1, each(echo))
			f.start(t, dataplane.Config{DrainTimeout: time.Minute})
			c := dial(t, f.address())
			c.checkEcho()
			reason := "instance i-000001 does not exist"
			if tc.now == "" {
				f.cloud.deleteInstance(instance(1))
			} else {
				f.cloud.putInstance(instance(1), f.servers[0].ip, tc.now)
				reason = "instance i-000001 is " + string(tc.now)
			}
			s := f.cloud.await(t, lbID, wantHealth(cloudsim.TargetUnhealthy))
			if s.Targets[0].Reason != reason {
				t.Errorf("got reason %q, want %q", s.Targets[0].Reason, reason)
			}
			if _, refused := ask(t, f.address()); !refused {
				t.Error("the unhealthy instance still accepts connections")
			}
			if tc.keeps {
				c.checkEcho()
			} else {
				c.wasReset()
			}
			f.cloud.putInstance(instance(1), f.servers[0].ip, cloudsim.InstanceRunning)
			f.cloud.await(t, lbID, unreadyReason)
			dial(t, f.address()).checkEcho()
			if tc.keeps {
				c.checkEcho()
			}
		})
	}
}

// An update affects only the listeners and targets that it changes.
func TestUpdateInPlace(t *testing.T) {
	f := newFleet(t, 2, each(echo))
	f.lb.Targets = f.lb.Targets[:1]
	f.lb.Listeners = append(f.lb.Listeners, cloudsim.Listener{
		Protocol: cloudsim.TCP, Port: port + 1, TargetPort: f.servers[0].port,
	})
	f.start(t, dataplane.Config{DrainTimeout: 50 * time.Millisecond})
	before := len(f.cloud.statuses(lbID)) // earlier reports may say that no probe has ended yet
	c := dial(t, f.address())
	gone := dial(t, fmt.Sprintf("%s:%d", f.lb.IP, port+1))
	c.checkEcho()
	gone.checkEcho()

	f.lb.HealthCheck.IntervalMillis = 20
	f.lb.Targets = append(f.lb.Targets, cloudsim.Target{Instance: instance(2)})
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, unreadyReason)
	f.lb.Listeners[1].Port = port + 2
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, unreadyReason)
	gone.wasReset() // the listener of this connection was removed, and the drain timeout is over
	if listens(gone.RemoteAddr().String()) {
		t.Error("the removed listener still accepts connections")
	}
	dial(t, fmt.Sprintf("%s:%d", f.lb.IP, port+2)).checkEcho()
	c.checkEcho()
	for _, s := range f.cloud.statuses(lbID)[before:] {
		if s.Targets[0].Health != cloudsim.TargetHealthy {
			t.Errorf("healthy target after an update: got health %s in %+v", s.Targets[0].Health, s)
		}
	}
}

func (f *fleet) removeTargets(t *testing.T) {
	t.Helper()
	f.lb.Targets = nil
	f.cloud.putLB(f.lb)
	eventually.Empty(t, func() string {
		if _, refused := ask(t, f.address()); !refused {
			return "the load balancer takes connections without targets"
		}
		return ""
	})
}

// Connections to a removed target may continue for the drain timeout. If the target is added
// again within this time, it keeps the connections.
func TestRemovedTargetDrains(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, each(echo))
	const drain = 3 * time.Second
	f.start(t, dataplane.Config{DrainTimeout: drain})
	both := f.lb.Targets
	a, b := dial(t, f.address()), dial(t, f.address()) // one to each target
	a.checkEcho()
	b.checkEcho()
	begin := time.Now()
	f.removeTargets(t)
	f.lb.Targets = both
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, unreadyReason)
	for time.Since(begin) < drain+50*time.Millisecond {
		a.checkEcho()
		b.checkEcho()
	}
	begin = time.Now()
	f.removeTargets(t)
	a.checkEcho()
	for cut := false; !cut; { // other changes do not extend the timeout
		f.lb.HealthCheck.IntervalMillis++
		f.cloud.putLB(f.lb)
		_ = a.SetReadDeadline(time.Now().Add(drain / 10))
		_, err := a.Read(make([]byte, 1))
		cut = isReset(err)
		if took := time.Since(begin); cut && took < drain || took > drain+testTimeout/2 {
			t.Fatalf("got error %v after %v, want a reset after %v", err, took, drain)
		}
	}
	b.wasReset()
}

// If a removed target is added again while its connections drain, the target
// begins with the health "initial".
func TestTargetPutBackIsNew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, each(echo))
	f.start(t, dataplane.Config{})
	before := f.lb.Targets
	c := dial(t, f.address())
	c.checkEcho()
	f.removeTargets(t)
	f.lb.Targets, f.lb.HealthCheck.HealthyThreshold = before, 10
	f.lb.HealthCheck.IntervalMillis = 60_000
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetInitial))
	c.checkEcho()
}

// After a change of a listener's target port, new connections go to the new port.
func TestTargetPortMoves(t *testing.T) {
	f := newFleet(t, 1, sayName)
	f.start(t, dataplane.Config{DrainTimeout: -1})
	old := dial(t, f.address())
	old.line()
	moved := serve(t, f.servers[0].ip, 0, sayWord("moved"))
	f.lb.Listeners = []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: port, TargetPort: moved.port}}
	f.cloud.putLB(f.lb)
	old.wasReset()
	eventually.Empty(t, func() string {
		if word, _ := ask(t, f.address()); word != "moved" {
			return "new connections go to " + word
		}
		return ""
	})
}

// A load balancer without listeners does not probe its targets. A new listener takes connections.
// When the last listener is removed, its connections drain.
func TestNoListeners(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, each(echo))
	listeners := f.lb.Listeners
	f.lb.Listeners = nil
	f.lb.DrainTimeoutSeconds = 600
	f.cloud.putLB(f.lb)
	runDataplane(t, f.cloud, dataplane.Config{})
	idle := func(s cloudsim.LoadBalancerStatus) string {
		if s.Condition != "" || s.Targets[0].Reason != "no listener forwards to the target" {
			return "want no condition, and the reason for which the target is not probed"
		}
		return wantHealth(cloudsim.TargetInitial)(s)
	}
	f.cloud.await(t, lbID, idle)

	f.lb.Listeners = listeners
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, unreadyReason)
	c := dial(t, f.address())
	c.checkEcho()

	f.lb.Listeners = nil
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, idle)
	c.checkEcho()
	if listens(f.address()) {
		t.Error("the address of the removed listener accepts connections")
	}
}
