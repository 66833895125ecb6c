package dataplane_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// secondAddress returns the address of the listener that the method withSecond adds.
func (f *fleet) secondAddress() string { return fmt.Sprintf("%s:%d", f.lb.IP, port+1) }

// withSecond adds a second listener with its own targets and health check. The port of the second
// listener is the constant port plus one. Both listeners have the same target port.
func (f *fleet) withSecond(targets []cloudsim.Target, check *cloudsim.HealthCheck) {
	second := f.lb.Listeners[0]
	second.Port, second.Targets, second.HealthCheck = port+1, targets, check
	f.lb.Listeners = []cloudsim.Listener{f.lb.Listeners[0], second}
}

// awaitAnswer waits until a connection to the address reaches the server of the instance n.
func awaitAnswer(t *testing.T, address string, n int) {
	t.Helper()
	eventually.Empty(t, func() string {
		if word, refused := ask(t, address); refused || word != string(instance(n)) {
			return fmt.Sprintf("%s: got answer %q, refused: %v; want %s", address, word, refused, instance(n))
		}
		return ""
	})
}

// A listener with its own targets forwards only to these targets. Its targets have their own
// entries in the status, in the statistics and in the metrics.
func TestListenerTargets(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, sayName)
	own := f.lb.Targets[1:]
	f.lb.Targets = f.lb.Targets[:1]
	f.withSecond(own, nil)
	counters, reg := dataplane.NewCounters(), prometheus.NewRegistry()
	f.start(t, dataplane.Config{Counters: counters, Registry: reg})
	for range 4 {
		if word, _ := ask(t, f.address()); word != string(instance(1)) {
			t.Errorf("first listener: got answer %q, want the first target", word)
		}
		if word, _ := ask(t, f.secondAddress()); word != string(instance(2)) {
			t.Errorf("second listener: got answer %q, want the second target", word)
		}
	}
	const key = "tcp/8081"
	f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
		return cmp.Diff([]cloudsim.TargetStatus{
			{Instance: instance(1), Health: cloudsim.TargetHealthy}, {Instance: instance(2), Listener: key, Health: cloudsim.TargetHealthy},
		}, s.Targets)
	})
	s, _ := counters.LoadBalancerStats(lbID)
	if len(s.Targets) != 2 || s.Targets[0].Connections != 4 || s.Targets[1].Connections != 4 || s.Targets[1].Listener != key {
		t.Errorf("statistics: got %+v, want 4 connections for each listener", s.Targets)
	}
	if n := metricSeries(t, reg)["cloudsim_lb_connections_total{instance=i-000002,ip=,listener="+key+",load_balancer=lb-000001}"]; n != 4 {
		t.Errorf("metric of the second listener's target: got %v, want 4", n)
	}

	f.withSecond(append(own, f.lb.Targets...), nil) // the same instance is a target of both listeners
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, unreadyReason)
	awaitAnswer(t, f.secondAddress(), 1)
	awaitAnswer(t, f.secondAddress(), 2)
	awaitAnswer(t, f.address(), 1)
	f.cloud.putInstance(instance(1), f.servers[0].ip, cloudsim.InstanceStopped)
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetUnhealthy, cloudsim.TargetHealthy, cloudsim.TargetUnhealthy))

	f.withSecond([]cloudsim.Target{}, nil) // no targets
	f.cloud.putInstance(instance(1), f.servers[0].ip, cloudsim.InstanceRunning)
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetHealthy))
	if word, refused := ask(t, f.secondAddress()); !refused {
		t.Errorf("listener without targets: got answer %q, want a reset", word)
	}
	f.withSecond(nil, nil) // the targets of the load balancer
	f.cloud.putLB(f.lb)
	awaitAnswer(t, f.secondAddress(), 1)
}

// A listener with its own health check uses only this check. The other listener uses the load
// balancer's check.
func TestListenerHealthCheck(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, sayName)
	probed := serve(t, f.servers[0].ip, 0, sayWord("ok"))
	f.withSecond(nil, &cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, Port: probed.port, IntervalMillis: 10})
	f.start(t, dataplane.Config{})
	awaitAnswer(t, f.secondAddress(), 1)

	probed.close()
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetHealthy, cloudsim.TargetUnhealthy))
	if word, refused := ask(t, f.secondAddress()); !refused {
		t.Errorf("listener with an unhealthy target: got answer %q, want a reset", word)
	}
	awaitAnswer(t, f.address(), 1)

	f.lb.HealthCheck.Port = probed.port
	f.withSecond(nil, &cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, IntervalMillis: 10}) // the default port is the target port
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetUnhealthy, cloudsim.TargetHealthy))
	awaitAnswer(t, f.secondAddress(), 1)
	f.lb.Listeners = f.lb.Listeners[1:] // no listener uses the load balancer's check
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetHealthy))
}

// When a listener gets its own health check or its own targets, its connections continue. The data
// plane ends only the connections to targets that the listener no longer has. In this test, the
// drain timeout is zero, so these connections end at once.
func TestListenerGetsOwnTargets(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, func(n int) func(*net.TCPConn) {
		return func(c *net.TCPConn) {
			if _, err := fmt.Fprintln(c, n); err == nil {
				echo(c)
			}
		}
	})
	f.lb.DrainTimeoutSeconds = -1
	f.start(t, dataplane.Config{})
	a, b := dial(t, f.address()), dial(t, f.address()) // one to each target
	first := f.lb.Targets[:1]
	if b.line(); a.line() == "2" {
		first = f.lb.Targets[1:]
	}
	f.lb.Listeners[0].HealthCheck = &cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, IntervalMillis: 10}
	f.cloud.putLB(f.lb)
	f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
		if len(s.Targets) == 0 || s.Targets[0].Listener == "" {
			return "want the targets of the listener"
		}
		return unreadyReason(s) // no target drains
	})
	a.checkEcho()
	b.checkEcho()

	f.lb.Listeners[0].Targets = first
	f.cloud.putLB(f.lb)
	b.wasReset()
	a.checkEcho()
}
