package dataplane

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// balancer is one load balancer at work. The plane's goroutine alone calls
// apply, steer and stop; what they share with the balancer's own goroutines is
// behind mu.
type balancer struct {
	id      cloudsim.LoadBalancerID
	log     *slog.Logger
	cfg     Config
	metrics *metrics
	prober  *prober
	cloud   Cloud

	// work counts the goroutines: one reports, one per listener accepts, one
	// per running target probes, and two per connection forward.
	work       sync.WaitGroup
	stopReport context.CancelFunc
	changed    chan struct{} // holds one token while there may be news to report

	revision uint64 // of the last apply; the plane's goroutine alone reads it

	mu        sync.Mutex
	ips       []string
	spec      cloudsim.LoadBalancerSpec
	listeners map[string]*listener // by ip:port
	targets   map[cloudsim.InstanceID]*target
	order     []*target // those of the spec, in its order
	conns     map[*conn]struct{}
	open      int                          // accepted and not yet closed, also those not yet in conns
	stopped   bool                         // takes no more connections
	reported  *cloudsim.LoadBalancerStatus // what the cloud was last told; nil when that is not known
}

func newBalancer(p *plane, id cloudsim.LoadBalancerID) *balancer {
	return &balancer{
		id: id, log: p.log.With("loadBalancer", id), cfg: p.cfg, metrics: p.metrics, prober: p.prober, cloud: p.cloud,
		changed:   make(chan struct{}, 1),
		listeners: map[string]*listener{}, targets: map[cloudsim.InstanceID]*target{}, conns: map[*conn]struct{}{},
	}
}

// apply makes b what lb says. What lb does not change, it does not touch: not
// a listener, not a probe, not a connection. News from before the last apply,
// and the echo of b's own reports, change nothing.
func (b *balancer) apply(ctx context.Context, lb cloudsim.LoadBalancer, machines map[cloudsim.InstanceID]machine) {
	if lb.Revision < b.revision {
		return
	}
	b.revision = lb.Revision
	if b.does(lb) {
		return
	}
	b.closeListeners(func(l *listener) bool { return !l.isIn(lb) })

	b.mu.Lock()
	defer b.mu.Unlock()
	b.ips, b.spec = ipsOf(lb), lb.LoadBalancerSpec
	if b.reported != nil && !same(*b.reported, lb.Status) {
		b.reported = nil // the change may have reset what was reported
	}
	b.setTargets(ctx, machines)
	for _, want := range lb.Listeners {
		for _, ip := range b.ips {
			b.setListener(ctx, ip, want)
		}
	}
	b.settleAll()
	b.news()
	if b.stopReport == nil {
		ctx, b.stopReport = context.WithCancel(ctx)
		b.work.Go(func() { b.report(ctx) })
	}
}

// does reports whether b forwards by the rules of lb already.
func (b *balancer) does(lb cloudsim.LoadBalancer) bool {
	return slices.Equal(b.ips, ipsOf(lb)) && b.spec.Same(lb.LoadBalancerSpec)
}

func ipsOf(lb cloudsim.LoadBalancer) []string {
	var ips []string
	for _, a := range lb.Addresses {
		ips = append(ips, a.IP)
	}
	return ips
}

// closeListeners closes those that which chooses; their ports are free when it
// returns. It must not hold mu, which an accepting listener may wait for.
func (b *balancer) closeListeners(which func(*listener) bool) {
	for address, l := range b.listeners {
		if which(l) {
			l.close()
			b.mu.Lock()
			delete(b.listeners, address)
			b.mu.Unlock()
		}
	}
}

// setListener opens a listener, or points an open one elsewhere.
func (b *balancer) setListener(ctx context.Context, ip string, want cloudsim.Listener) {
	if want.Protocol != cloudsim.TCP {
		return
	}
	address := hostPort(ip, want.Port)
	if l := b.listeners[address]; l != nil {
		l.targetPort = want.TargetPort
		l.enqueue(b.order)
		return
	}
	l := newListener(ip, want)
	l.enqueue(b.order)
	b.listeners[address] = l
	ctx, l.cancel = context.WithCancel(ctx)
	b.work.Go(func() {
		defer close(l.closed)
		b.listen(ctx, l)
	})
}

// setTargets makes targets and order those of the spec. One that left and
// still has connections stays in targets until they end.
func (b *balancer) setTargets(ctx context.Context, machines map[cloudsim.InstanceID]machine) {
	for _, t := range b.order {
		t.listed = false
	}
	b.order = make([]*target, 0, len(b.spec.Targets))
	for _, want := range b.spec.Targets {
		t := b.targets[want.Instance]
		if t == nil {
			t = newTarget(want.Instance, b.metrics.target(b.id, want.Instance))
			b.targets[want.Instance] = t
		}
		t.listed = true
		b.order = append(b.order, t)
	}
	for id, t := range b.targets {
		b.steerTarget(ctx, t, machines[id])
		b.forgetIfUnused(t)
	}
}

// steer takes in what is now known of an instance.
func (b *balancer) steer(ctx context.Context, id cloudsim.InstanceID, m machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.targets[id]; t != nil {
		b.steerTarget(ctx, t, m)
		b.settleAll()
		b.news()
	}
}

// steerTarget probes t while it is wanted and running, and takes it out at
// once when it is not. A changed health check starts new probes, but what the
// old ones found stands until those say otherwise.
func (b *balancer) steerTarget(ctx context.Context, t *target, m machine) {
	check := b.check()
	probe := t.listed && m.state == cloudsim.InstanceRunning && m.ip != ""
	if t.stopProbe != nil && (!probe || t.machine.ip != m.ip || t.check != check) {
		t.stopProbe()
		t.stopProbe = nil
	}
	if probe && (t.machine.state != m.state || t.machine.ip != m.ip) {
		t.verdict = verdict{health: cloudsim.TargetInitial, reason: "no probe has ended yet"}
	}
	if !probe {
		t.verdict = verdict{health: cloudsim.TargetUnhealthy, reason: m.why(t.instance)}
	}
	t.machine, t.check = m, check
	if probe && t.stopProbe == nil {
		ctx, t.stopProbe = context.WithCancel(ctx)
		b.work.Go(func() {
			b.prober.run(ctx, check, m.ip, func(found error) { b.judge(ctx, t, found) })
		})
	}
}

// check is the health check in force.
func (b *balancer) check() cloudsim.HealthCheck { return b.spec.Check() }

// judge takes in what a probe of t found.
func (b *balancer) judge(ctx context.Context, t *target, found error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return // found by rules of the past
	}
	before := t.verdict
	t.verdict = before.after(found, t.check)
	if t.health == before.health && t.reason == before.reason {
		return
	}
	b.news()
	if t.health != before.health {
		b.log.Info("target is "+string(t.health), "instance", t.instance, "reason", t.reason)
	}
}

// forgetIfUnused drops a target that left and has no connection any more.
func (b *balancer) forgetIfUnused(t *target) {
	if !t.listed && t.active == 0 {
		delete(b.targets, t.instance)
		b.metrics.forgetTarget(b.id, t.instance)
	}
}

// stop closes every listener and gives the connections grace. It does not wait
// for them: work does.
func (b *balancer) stop(grace time.Duration) {
	if b.stopReport != nil {
		b.stopReport()
	}
	b.closeListeners(func(*listener) bool { return true })
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.targets {
		if t.stopProbe != nil {
			t.stopProbe()
		}
	}
	b.stopped = true
	for c := range b.conns {
		c.drain(grace)
	}
}

// news says that there may be something to report.
func (b *balancer) news() {
	select {
	case b.changed <- struct{}{}:
	default: // the reporter has not looked yet: it will see this too
	}
}
