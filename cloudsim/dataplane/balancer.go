package dataplane

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// lostEvery is how often a balancer may tell that a client found no target: each
// does when all are down, and there may be thousands in a second.
const lostEvery = 10 * time.Second

// balancer is one load balancer at work. The plane's goroutine alone calls
// apply, steer and stop; what they share with the balancer's own goroutines is
// behind mu.
type balancer struct {
	id     cloudsim.LoadBalancerID
	log    *slog.Logger
	cfg    Config
	prober *prober
	probes portion // of the prober's slots
	cloud  Cloud

	forwarder *forwarder

	// work counts the goroutines, of which one reports, one per socket has it
	// open, one per running target probes and one per flow forwards; and the
	// connections.
	work       sync.WaitGroup
	stopReport context.CancelFunc
	changed    chan struct{} // holds one token while there may be news to report

	revision uint64 // of the last apply; the plane's goroutine alone reads it

	mu        sync.Mutex
	lb        cloudsim.LoadBalancer // by whose rules it works
	check     cloudsim.HealthCheck
	sources   []netip.Prefix
	listeners map[port]*listener
	sockets   map[socketKey]*socket
	targets   map[cloudsim.TargetKey]*target
	behind    bool      // some are addresses behind an instance
	order     []*target // those of the spec, in its order
	seats     int       // slots that were given
	kept      affinity
	sessions  map[*session]struct{}
	refused   map[refusal]uint64           // by listeners that are gone
	lost      rate.Sometimes               // of telling that a client found no target
	stopped   bool                         // takes no more connections
	reported  *cloudsim.LoadBalancerStatus // what the cloud was last told; nil when that is not known
}

func newBalancer(p *plane, id cloudsim.LoadBalancerID) *balancer {
	return &balancer{
		id: id, log: p.log.With("loadBalancer", id), cfg: p.cfg, prober: p.prober, cloud: p.cloud, forwarder: p.forwarder,
		changed:   make(chan struct{}, 1),
		listeners: map[port]*listener{}, sockets: map[socketKey]*socket{},
		targets: map[cloudsim.TargetKey]*target{}, sessions: map[*session]struct{}{},
		refused: map[refusal]uint64{}, lost: rate.Sometimes{Interval: lostEvery},
	}
}

// apply makes b what lb says. What lb does not change, it does not touch: not
// a socket, not a probe, not a connection. News from before the last apply,
// and the echo of b's own reports, change nothing.
func (b *balancer) apply(ctx context.Context, lb cloudsim.LoadBalancer, machines map[cloudsim.InstanceID]machine) {
	if lb.Revision < b.revision {
		return
	}
	b.revision = lb.Revision
	if b.does(lb) {
		return
	}
	sockets := b.cfg.socketsOf(lb)
	b.closeSockets(func(s *socket) bool {
		return !slices.ContainsFunc(sockets, func(want *socket) bool {
			return want.key == s.key && want.bind == s.bind && want.l.port == s.l.port
		})
	})

	b.mu.Lock()
	defer b.mu.Unlock()
	b.lb, b.check, b.sources = lb, lb.Check(), prefixes(lb.SourceRanges)
	b.kept.set(lb.AffinityTimeout())
	if b.reported != nil && !same(*b.reported, lb.Status) {
		b.reported = nil // the change may have reset what was reported
	}
	b.setListeners()
	b.setTargets(ctx, machines)
	for _, s := range sockets {
		b.setSocket(ctx, s)
	}
	b.expel()
	b.settleAll()
	b.news()
	if b.stopReport == nil {
		ctx, b.stopReport = context.WithCancel(ctx)
		b.work.Go(func() { b.report(ctx) })
	}
}

// does reports whether b forwards by the rules of lb already.
func (b *balancer) does(lb cloudsim.LoadBalancer) bool {
	return slices.Equal(b.lb.Addresses, lb.Addresses) && slices.Equal(b.lb.Published, lb.Published) && b.lb.Same(lb.LoadBalancerSpec)
}

// closeSockets closes those that which chooses; their ports are free when it
// returns. It must not hold mu, which an accepting socket may wait for.
func (b *balancer) closeSockets(which func(*socket) bool) {
	for key, s := range b.sockets {
		if which(s) {
			s.close()
			b.mu.Lock()
			delete(b.sockets, key)
			b.mu.Unlock()
		}
	}
}

// setListeners makes listeners those of the spec. The connections of one that
// is gone keep it until they end.
func (b *balancer) setListeners() {
	gone := b.listeners
	b.listeners = map[port]*listener{}
	for _, spec := range b.lb.Listeners {
		p := port{spec.Protocol, spec.Port}
		l := gone[p]
		if l == nil {
			l = newListener(p)
		}
		delete(gone, p)
		if l.set(spec, b.cfg) && l.open > 0 {
			b.forwarder.look()
		}
		b.listeners[p] = l
	}
	for _, l := range gone {
		for why, n := range l.refused {
			b.refused[why] += n
		}
	}
}

// setSocket opens a socket that is not open yet.
func (b *balancer) setSocket(ctx context.Context, s *socket) {
	if b.sockets[s.key] != nil {
		return
	}
	s.l = b.listeners[s.l.port]
	s.closed = make(chan struct{})
	b.sockets[s.key] = s
	ctx, s.cancel = context.WithCancel(ctx)
	b.work.Go(func() {
		defer close(s.closed)
		b.listen(ctx, s)
	})
}

// setTargets makes targets and order those of the spec. One that left and
// still has connections stays in targets until they end.
func (b *balancer) setTargets(ctx context.Context, machines map[cloudsim.InstanceID]machine) {
	for _, t := range b.order {
		t.listed = false
	}
	b.order = make([]*target, 0, len(b.lb.Targets))
	for _, want := range b.lb.Targets {
		key := want.Key()
		t := b.targets[key]
		if t == nil {
			t = &target{key: key}
			b.targets[key] = t
		}
		b.behind = b.behind || key.IP != ""
		t.listed, t.weight = true, want.Share()
		b.order = append(b.order, t)
		b.steerTarget(ctx, t, machines[key.Instance])
	}
	for key, t := range b.targets {
		if !t.listed {
			b.steerTarget(ctx, t, machines[key.Instance])
			b.forgetIfUnused(t)
		}
	}
}

// steer takes in what is now known of an instance. O(targets) if there are
// addresses behind instances, and else O(1).
func (b *balancer) steer(ctx context.Context, id cloudsim.InstanceID, m machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var its []*target
	if t := b.targets[cloudsim.TargetKey{Instance: id}]; t != nil {
		its = append(its, t)
	}
	if b.behind {
		for key, t := range b.targets {
			if key.Instance == id && key.IP != "" {
				its = append(its, t)
			}
		}
	}
	for _, t := range its {
		b.steerTarget(ctx, t, m)
	}
	if len(its) > 0 {
		b.settleAll()
		b.news()
	}
}

// steerTarget probes t while it is wanted and running, and takes it out at
// once when it is not. A changed health check starts new probes, but what the
// old ones found stands until those say otherwise.
func (b *balancer) steerTarget(ctx context.Context, t *target, m machine) {
	m = m.at(t.key)
	probe, probed := t.listed && m.on() && m.ip() != "", t.stopProbe != nil
	if t.stopProbe != nil && (!probe || t.machine.ip() != m.ip() || t.check != b.check) {
		t.stopProbe()
		t.stopProbe = nil
	}
	if probe && (!probed || t.machine.ip() != m.ip()) {
		t.verdict = verdict{health: cloudsim.TargetInitial, reason: "no probe has ended yet"}
	}
	if !probe {
		t.verdict = verdict{health: cloudsim.TargetUnhealthy, reason: m.why(t.key.Instance)}
	}
	t.machine, t.check = m, b.check
	if probe && t.stopProbe == nil {
		ctx, t.stopProbe = context.WithCancel(ctx)
		check := b.check
		b.work.Go(func() {
			b.prober.run(ctx, &b.probes, check, m.ip(), func(found error) { b.judge(ctx, t, found) })
		})
	}
	b.seat(t)
}

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
		b.log.Info("target is "+string(t.health), "target", t.key, "reason", t.reason)
		b.seat(t)
		b.settleAll()
	}
}

// forgetIfUnused drops a target that left and has no connection any more.
func (b *balancer) forgetIfUnused(t *target) {
	if t.listed || t.active > 0 || b.targets[t.key] != t {
		return
	}
	delete(b.targets, t.key)
	for _, l := range b.listeners {
		delete(l.slots, t)
	}
	b.news() // it drains no more
}

// stop closes every socket and gives the connections grace. It does not wait
// for them: work does.
func (b *balancer) stop(grace time.Duration) {
	if b.stopReport != nil {
		b.stopReport()
	}
	b.closeSockets(func(*socket) bool { return true })
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.targets {
		if t.stopProbe != nil {
			t.stopProbe()
		}
	}
	b.stopped = true
	for s := range b.sessions {
		s.drain(grace)
	}
}

// news says that there may be something to report.
func (b *balancer) news() {
	select {
	case b.changed <- struct{}{}:
	default: // the reporter has not looked yet: it will see this too
	}
}
