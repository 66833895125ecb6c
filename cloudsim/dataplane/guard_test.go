package dataplane

import (
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// If the plane has received a newer revision of an instance, it ignores an older event.
func TestOutdatedInstanceEventIsIgnored(t *testing.T) {
	p := &plane{log: slog.New(slog.DiscardHandler), machines: map[cloudsim.InstanceID]machine{}}
	vm := cloudsim.Instance{ID: "i-000001", State: cloudsim.InstanceRunning}
	vm.Revision = 5
	p.putInstance(t.Context(), vm)
	vm.Revision, vm.State = 4, cloudsim.InstanceProvisioning
	p.putInstance(t.Context(), vm)
	if m := p.machines[vm.ID]; m.state != cloudsim.InstanceRunning {
		t.Errorf("state %s after an outdated event, want running", m.state)
	}
}

// If a balancer has received a newer revision of its load balancer, an older event does not stop
// the balancer.
func TestOutdatedLoadBalancerEventIsIgnored(t *testing.T) {
	p := &plane{log: slog.New(slog.DiscardHandler), cfg: Config{Counters: NewCounters()}, balancers: map[cloudsim.LoadBalancerID]*balancer{}}
	b := newBalancer(p, "lb-000001")
	b.revision, p.balancers[b.id] = 5, b
	lb := cloudsim.LoadBalancer{ID: b.id, State: cloudsim.LoadBalancerProvisioning}
	lb.Revision = 4
	p.putLoadBalancer(t.Context(), lb)
	if p.balancers[b.id] != b {
		t.Error("an outdated event stopped the balancer")
	}
	lb.Revision, lb.State = 6, cloudsim.LoadBalancerDeleting
	p.putLoadBalancer(t.Context(), lb)
	if p.balancers[b.id] != nil {
		t.Error("a newer event did not stop the balancer")
	}
}

// If an event changes only the status that the balancer reported, the balancer ignores the event.
func TestOwnReportsAreIgnored(t *testing.T) {
	b := newBalancer(&plane{log: slog.New(slog.DiscardHandler)}, "lb-000001")
	b.stopReport = func() {} // no goroutine reports, so the token stays in changed
	lb := cloudsim.LoadBalancer{ID: b.id}
	lb.Targets = []cloudsim.Target{{Instance: "i-000001"}}
	lb.Revision = 1
	b.apply(t.Context(), lb, nil)
	select {
	case <-b.changed:
	default:
		t.Fatal("a new spec did not wake the reporter")
	}
	lb.Revision, lb.Status.Condition = 2, cloudsim.LoadBalancerWorking
	b.apply(t.Context(), lb, nil)
	if len(b.changed) > 0 {
		t.Error("the balancer's own report woke the reporter")
	}
}

// New source ranges can exclude a client while the data plane connects to the client's target. The
// balancer can also stop during this time. In both cases, the client gets no other target, and no
// log line says that the targets refused the client.
func TestExcludedClientGetsNoOtherTarget(t *testing.T) {
	client := netip.MustParseAddr("198.51.100.2")
	for name, tc := range map[string]struct {
		change func(*balancer)
		want   map[refusal]uint64
	}{
		"excluded": {func(b *balancer) { b.lb.SourceRanges = []string{"10.0.0.0/8"} }, map[refusal]uint64{refusedSource: 1}},
		"stopped":  {func(b *balancer) { b.stopped = true }, map[refusal]uint64{refusedDial: 1}},
	} {
		var log strings.Builder
		p := &plane{log: slog.New(slog.NewTextHandler(&log, nil)), cfg: Config{MaxConnections: 10, MaxOpen: 10}.withDefaults()}
		b := newBalancer(p, "lb-000001")
		l := newListener(port{cloudsim.TCP, 80})
		b.listeners[l.port] = l
		for _, id := range []cloudsim.InstanceID{"i-000001", "i-000002"} {
			target := &target{key: cloudsim.TargetKey{Instance: id}, listed: true, weight: 1, verdict: verdict{health: cloudsim.TargetHealthy}}
			b.targets[target.key] = target
			b.updateSlots(target)
		}
		first, why := b.begin(l, client, nil)
		if why != "" {
			t.Fatalf("%s: begin refused the client: %s", name, why)
		}
		tc.change(b)
		if to, again := b.retry(l, client, first, []*target{first.target}, nil); again {
			t.Fatalf("%s: retry chose target %s, want no target", name, to.target.key)
		}
		b.endUnserved(l, client)
		if !maps.Equal(l.refused, tc.want) || l.open != 0 || log.Len() > 0 {
			t.Errorf("%s: got refusals %v, %d open connections and log %q; want refusals %v", name, l.refused, l.open, log.String(), tc.want)
		}
	}
}

// After claimRanges has added a route for a range, a server can listen on any address of the range.
// No interface needs to have the address. Clients can reach this server. After the call of release,
// no server can listen on the address.
func TestClaim(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to create a network namespace")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	inOwnNetwork(t)
	log := slog.New(slog.DiscardHandler)
	for _, tc := range []struct{ claimed, ip string }{{"2001:db8:7::/64", "2001:db8:7::9"}, {"203.0.113.0/24", "203.0.113.9"}} {
		if isLocal(tc.ip) {
			t.Fatalf("%s is local before the claim", tc.ip)
		}
		release, err := claimRanges(log, []netip.Prefix{netip.MustParsePrefix(tc.claimed)})
		if err != nil {
			t.Fatal(err)
		}
		for _, protocol := range []cloudsim.Protocol{cloudsim.TCP, cloudsim.UDP} {
			o, err := Config{}.openSocket(t.Context(), protocol, tc.ip, 8080)
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial(string(protocol), hostPort(tc.ip, 8080))
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			o.Close()
		}
		release()
		if _, err := (Config{}).openSocket(t.Context(), cloudsim.TCP, tc.ip, 8080); err == nil || isLocal(tc.ip) {
			t.Errorf("%s is local after the release: open returned error %v", tc.ip, err)
		}
	}
}
