package dataplane_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
)

// If another program uses the port of a listener, the status of the load balancer shows why the
// listener does not work. The data plane opens the port as soon as the other program has freed it.
// Until then, the load balancer's other ports work.
func TestPortTakenThenFreed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, each(echo))
	f.lb.Listeners = append(f.lb.Listeners, cloudsim.Listener{
		Protocol: cloudsim.TCP, Port: port + 1, TargetPort: f.servers[0].port,
	})
	other := serve(t, f.lb.IP, port, sayWord("another server"))
	f.cloud.putLB(f.lb)
	runDataplane(t, f.cloud, dataplane.Config{})
	s := f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
		if s.Listeners[1].Endpoint == "" {
			return "second listener without endpoint"
		}
		return ""
	})
	want := fmt.Sprintf("another program listens on %s or on port %d of all addresses; trying again until the port is free", f.address(), port)
	if l := s.Listeners[0]; l.Endpoint != "" || l.Error != want {
		t.Errorf("listener on a used port: got %+v, want error %q", l, want)
	}
	f.cloud.await(t, lbID, wantHealth(cloudsim.TargetHealthy))
	dial(t, fmt.Sprintf("%s:%d", f.lb.IP, port+1)).checkEcho()
	other.close()
	s = f.cloud.await(t, lbID, unreadyReason)
	if l := s.Listeners[0]; l.Endpoint != f.address() || l.Error != "" {
		t.Errorf("listener on a free port: got %+v, want no error", l)
	}
	dial(t, f.address()).checkEcho()
}

// If low ports need privileges, the listener uses a high port, and the status has the reason.
func TestLowPortFallsBack(t *testing.T) {
	f := newFleet(t, 1, each(echo))
	f.lb.Listeners[0].Port = 80
	var cfg dataplane.Config
	cfg.ListenWith(func(ctx context.Context, network, address string) (net.Listener, error) {
		if strings.HasSuffix(address, ":80") {
			return nil, &net.OpError{Op: "listen", Net: network, Err: os.NewSyscallError("bind", syscall.EACCES)}
		}
		return new(net.ListenConfig).Listen(ctx, network, address)
	})
	f.cloud.putLB(f.lb)
	runDataplane(t, f.cloud, cfg)
	s := f.cloud.await(t, lbID, unreadyReason)
	start, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err != nil {
		t.Skip("cannot read the first unprivileged port: ", err)
	}
	want := cloudsim.ListenerStatus{
		Protocol: cloudsim.TCP, Port: 80, IP: f.lb.IP, Endpoint: f.lb.IP + ":10080",
		Error: "port 80 needs privileges on this machine (net.ipv4.ip_unprivileged_port_start is " +
			strings.TrimSpace(string(start)) + "): listening on 10080 instead",
	}
	if diff := cmp.Diff(want, s.Listeners[0]); diff != "" {
		t.Error(diff)
	}
	dial(t, f.lb.IP+":10080").checkEcho()
}

// The data plane does not listen on an unspecified or invalid address, or on an address that does
// not exist on this machine. The status of the listener contains the reason.
func TestUnusableListenAddresses(t *testing.T) {
	for ip, want := range map[string]string{
		"":          `"" is not an address to listen on`,
		"0.0.0.0":   `"0.0.0.0" is not an address to listen on`,
		"::":        `"::" is not an address to listen on`,
		"shop.test": `"shop.test" is not an address to listen on`,
		"192.0.2.1": "192.0.2.1 is not an address of this machine; trying again until the address exists. To add the address: sudo ip route add local 192.0.2.1 dev lo, or run the cloud as root with --claim-addresses",
	} {
		f := newFleet(t, 1, each(echo))
		f.lb.IP = ip
		f.cloud.putLB(f.lb)
		runDataplane(t, f.cloud, dataplane.Config{})
		f.cloud.await(t, lbID, func(s cloudsim.LoadBalancerStatus) string {
			want := []cloudsim.ListenerStatus{{Protocol: cloudsim.TCP, Port: port, IP: ip, Error: want}}
			return cmp.Diff(want, s.Listeners)
		})
	}
}

// A new listener waits until the old listener has freed the port, even if this takes a while. So
// the new listener never finds the port in use.
func TestNewListenerWaitsForPort(t *testing.T) {
	f := newFleet(t, 1, each(echo))
	var cfg dataplane.Config
	cfg.ListenWith(func(ctx context.Context, network, address string) (net.Listener, error) {
		ln, err := new(net.ListenConfig).Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return lingeringListener{ln.(*net.TCPListener)}, nil
	})
	f.start(t, cfg)
	f.cloud.deleteLB(lbID)
	f.lb.ID = "lb-000002"
	f.cloud.putLB(f.lb)
	f.cloud.await(t, f.lb.ID, unreadyReason)
	for _, s := range f.cloud.statuses(f.lb.ID) {
		if why := s.Listeners[0].Error; why != "" {
			t.Error(why)
		}
	}
}

// lingeringListener is a listener. Its method Close takes 40 ms. Accept returns an error at the
// beginning of these 40 ms, and Close frees the port at their end.
type lingeringListener struct{ *net.TCPListener }

func (l lingeringListener) Close() error {
	_ = l.SetDeadline(time.Now())
	time.Sleep(40 * time.Millisecond)
	return l.TCPListener.Close()
}

// The data plane sends few reports: one at the start, and one for each group of changes.
func TestReportsAreFew(t *testing.T) {
	f := newFleet(t, 3, sayName)
	f.lb.HealthCheck.IntervalMillis = 1
	f.start(t, dataplane.Config{})
	reportCount := len(f.cloud.statuses(lbID))
	if reportCount > 1+1+3 { // the first report, one report for the socket and one report for each target; on an idle machine, one report has all these changes
		t.Errorf("got %d reports until all targets were healthy: %+v", reportCount, f.cloud.statuses(lbID))
	}
	f.cloud.breakWatches()
	for i := range 3 { // events of the instances, but no change of the load balancer
		f.cloud.putInstance(instance(i+1), f.servers[i].ip, cloudsim.InstanceRunning)
	}
	time.Sleep(200 * time.Millisecond) // time in which an unexpected report would be sent
	if n := len(f.cloud.statuses(lbID)); n != reportCount {
		t.Errorf("got %d reports without a change, want 0", n-reportCount)
	}

	begin := time.Now()
	for time.Since(begin) < 500*time.Millisecond { // the target stops and starts repeatedly
		for _, state := range []cloudsim.InstanceState{cloudsim.InstanceStopped, cloudsim.InstanceRunning} {
			f.cloud.putInstance(instance(1), f.servers[0].ip, state)
			ask(t, f.address())
		}
	}
	if n, most := len(f.cloud.statuses(lbID))-reportCount, 2+int(time.Since(begin)/(100*time.Millisecond)); n > most {
		t.Errorf("got %d reports in %v, want at most %d", n, time.Since(begin), most)
	}
}
