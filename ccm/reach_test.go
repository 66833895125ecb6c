package ccm_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// If clients cannot reach a listener at the address and the port of the Service, the CCM emits an
// event. The event contains the address and the port that clients must use. If clients cannot reach
// the listener at any address, the event contains only the reason. The event is necessary, because
// the status of a Service has no field for a port that differs from the port of the Service.
//
// A load balancer can become active before the data plane reports the addresses and ports of the
// listeners. The CCM waits for this report.
func TestServiceSaysWhereItIsReachable(t *testing.T) {
	r, e := newRigAndEngine(t)
	report := func(l cloudsim.ListenerStatus) {
		eventually.True(t, "the cloud has the load balancer", func() bool { return len(r.balancersInCloud(t)) == 1 })
		l.IP = r.onlyLoadBalancer(t).IP
		if err := e.ReportLoadBalancer(engine.AsCloud(t.Context()), r.onlyLoadBalancer(t).ID, cloudsim.LoadBalancerStatus{Listeners: []cloudsim.ListenerStatus{l}}); err != nil {
			t.Error(err)
		}
	}
	r.provider = ccm.New(slog.New(slog.DiscardHandler), r.api, ccm.NewSettings(ccm.Config{}), r.events) // this provider has the normal backoff, unlike the provider of the rig
	done := make(chan struct{})
	go func() {
		defer close(done)
		report(cloudsim.ListenerStatus{Protocol: cloudsim.TCP, Port: 80, Endpoint: "127.65.0.1:10080", Error: "no privilege for ports below 1024"})
	}()
	r.ensure(t, newService())
	<-done
	if events := r.takeEvents(); !strings.HasPrefix(events, "Normal ") || !strings.Contains(events, "127.65.0.1:10080") || !strings.Contains(events, "privilege") {
		t.Errorf("events:\n%s\nwant an event with the address and its reason", events)
	}

	report(cloudsim.ListenerStatus{Protocol: cloudsim.TCP, Port: 80, Error: "the port is taken"})
	r.ensure(t, newService())
	if events := r.takeEvents(); !strings.HasPrefix(events, "Warning ") || !strings.Contains(events, "taken") {
		t.Errorf("events:\n%s\nwant a warning with the reason why the load balancer is not reachable", events)
	}

	report(cloudsim.ListenerStatus{Protocol: cloudsim.TCP, Port: 80, Endpoint: r.onlyLoadBalancer(t).IP + ":80"})
	r.ensure(t, newService())
	if events := r.takeEvents(); events != "" {
		t.Errorf("the load balancer is reachable at its port, but got the events:\n%s", events)
	}
}
