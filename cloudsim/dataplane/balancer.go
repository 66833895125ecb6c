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

// lostEvery is the minimum time between two log lines of a balancer about clients that reached no
// target. Without this limit, an outage of all targets could cause thousands of log lines in a
// second.
const lostEvery = 10 * time.Second

// balancer forwards the traffic of one load balancer. Only the goroutine of the
// function Run may call the methods apply, applyMachine and stop. mu protects the state that
// these methods share with the balancer's own goroutines.
type balancer struct {
	id     cloudsim.LoadBalancerID
	log    *slog.Logger
	cfg    Config
	prober *prober
	probes probeShare // part of the prober's slots that this balancer uses
	cloud  Cloud

	forwarder *forwarder

	// waitGroup counts the balancer's goroutines and connections. One goroutine sends reports.
	// There is one additional goroutine for each open socket, each probed target and each UDP flow.
	waitGroup  sync.WaitGroup
	stopReport context.CancelFunc
	changed    chan struct{} // holds one token while there may be a new status to report

	revision uint64 // revision of the last apply; only the goroutine of Run reads it

	mu        sync.Mutex
	lb        cloudsim.LoadBalancer // the spec that is in force
	pools     map[string]pool       // by the key of a listener, or "" for the load balancer's own targets
	sources   []netip.Prefix
	listeners map[port]*listener
	sockets   map[socketKey]*socket
	targets   map[cloudsim.TargetKey]*target
	several   bool      // an instance may have several targets
	order     []*target // targets in the order of the spec
	seats     int       // number of slots made so far
	kept      affinity
	sessions  map[*session]struct{}
	refused   map[refusal]uint64           // refusals of listeners that were removed
	lost      rate.Sometimes               // limits the log lines about clients that found no target
	stopped   bool                         // accepts no more connections
	reported  *cloudsim.LoadBalancerStatus // the status that was last sent to the cloud; nil if unknown
}

// pool describes a set of targets that have the same health check.
type pool struct {
	check cloudsim.HealthCheck
	used  bool // a listener chooses targets from the pool
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

// apply puts the spec of lb in force. It does not affect sockets, probes and connections that need
// no change. It does nothing if the spec is already in force, for example if lb has only a new
// status. The revision of lb must not be older than b.revision.
func (b *balancer) apply(ctx context.Context, lb cloudsim.LoadBalancer, machines map[cloudsim.InstanceID]machine) {
	b.revision = lb.Revision
	if b.isApplied(lb) {
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
	b.lb, b.sources = lb, parsePrefixes(lb.SourceRanges)
	b.kept.setTimeout(lb.AffinityTimeout())
	if b.reported != nil && !same(*b.reported, lb.Status) {
		b.reported = nil // the change may have reset the status in the cloud
	}
	b.setListeners()
	b.setTargets(ctx, machines)
	for _, s := range sockets {
		b.setSocket(ctx, s)
	}
	b.cutExcluded()
	b.settleAll()
	b.notifyReporter()
	if b.stopReport == nil {
		ctx, b.stopReport = context.WithCancel(ctx)
		b.waitGroup.Go(func() { b.report(ctx) })
	}
}

func (b *balancer) isApplied(lb cloudsim.LoadBalancer) bool {
	return slices.Equal(b.lb.Addresses, lb.Addresses) && slices.Equal(b.lb.Published, lb.Published) && b.lb.Same(lb.LoadBalancerSpec)
}

// closeSockets closes each socket for which mustClose returns true. The ports of closed sockets are
// free when closeSockets returns. The caller must not hold mu, because closeSockets waits for the
// goroutines that accept clients, and these goroutines may wait for mu.
func (b *balancer) closeSockets(mustClose func(*socket) bool) {
	for key, s := range b.sockets {
		if mustClose(s) {
			s.close()
			b.mu.Lock()
			delete(b.sockets, key)
			b.mu.Unlock()
		}
	}
}

// setListeners sets b.listeners to the listeners of the spec. The connections
// of a removed listener keep a pointer to the listener until the connections
// end.
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
		l.pool = spec.Pool()
		if l.setSpec(spec, b.cfg) && l.open > 0 {
			b.forwarder.checkDeadlines()
		}
		b.listeners[p] = l
	}
	for _, l := range gone {
		for why, n := range l.refused {
			b.refused[why] += n
		}
	}
}

func (b *balancer) setSocket(ctx context.Context, s *socket) {
	if b.sockets[s.key] != nil {
		return
	}
	s.l = b.listeners[s.l.port]
	s.closed = make(chan struct{})
	b.sockets[s.key] = s
	ctx, s.cancel = context.WithCancel(ctx)
	b.waitGroup.Go(func() {
		defer close(s.closed)
		b.listen(ctx, s)
	})
}

// setTargets sets b.targets and b.order to the targets of the spec. A removed target stays in
// b.targets until its connections end.
func (b *balancer) setTargets(ctx context.Context, machines map[cloudsim.InstanceID]machine) {
	for _, t := range b.order {
		t.listed = false
	}
	b.order = make([]*target, 0, len(b.lb.Targets))
	b.pools = map[string]pool{}
	for _, p := range b.lb.Pools() {
		b.pools[p.Listener] = pool{p.Check, len(b.lb.Listeners) > 0}
		for i, key := range p.Keys() {
			t := b.targets[key]
			if t == nil {
				t = &target{key: key}
				b.targets[key] = t
			}
			b.several = b.several || key.IP != "" || key.Listener != ""
			t.listed, t.weight = true, p.Targets[i].Share()
			b.order = append(b.order, t)
			b.updateProbes(ctx, t, machines[key.Instance])
		}
	}
	for key, t := range b.targets {
		if !t.listed {
			b.updateProbes(ctx, t, machines[key.Instance])
			b.forgetIfUnused(t)
		}
	}
}

// applyMachine applies the new state m of an instance to all targets on the instance. It also
// drains or cuts the connections to these targets, if the new state requires it.
func (b *balancer) applyMachine(ctx context.Context, id cloudsim.InstanceID, m machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var its []*target
	if t := b.targets[cloudsim.TargetKey{Instance: id}]; t != nil {
		its = append(its, t)
	}
	if b.several {
		for key, t := range b.targets {
			if key.Instance == id && (key.IP != "" || key.Listener != "") {
				its = append(its, t)
			}
		}
	}
	for _, t := range its {
		b.updateProbes(ctx, t, m)
	}
	if len(its) > 0 {
		b.settleAll()
		b.notifyReporter()
	}
}

// updateProbes starts and stops the probes of t. Probes run only while t is in the spec, the
// machine of t is reachable, and a listener uses the pool of t. Without probes, t takes no new
// connections. If the health check changes, updateProbes replaces the probes. The old verdict stays
// in force until a new probe changes it.
func (b *balancer) updateProbes(ctx context.Context, t *target, m machine) {
	m = m.withAddresses(t.key)
	reachable, in := m.isReachable() && m.ip() != "", b.pools[t.key.Listener]
	probe, probed := t.listed && reachable && in.used, t.stopProbe != nil
	if t.stopProbe != nil && (!probe || t.machine.ip() != m.ip() || t.check != in.check) {
		t.stopProbe()
		t.stopProbe = nil
	}
	if probe && (!probed || t.machine.ip() != m.ip()) {
		t.verdict = verdict{health: cloudsim.TargetInitial, reason: "no probe has ended yet"}
	}
	switch {
	case probe:
	case t.listed && reachable:
		t.verdict = verdict{health: cloudsim.TargetInitial, reason: "no listener forwards to the target"}
	default:
		t.verdict = verdict{health: cloudsim.TargetUnhealthy, reason: m.unusableReason(t.key.Instance)}
	}
	t.machine, t.check = m, in.check
	if probe && t.stopProbe == nil {
		ctx, t.stopProbe = context.WithCancel(ctx)
		b.waitGroup.Go(func() {
			b.prober.repeatCheck(ctx, &b.probes, in.check, m.ip(), func(found error) { b.recordProbe(ctx, t, found) })
		})
	}
	b.updateSlots(t)
}

func (b *balancer) recordProbe(ctx context.Context, t *target, probeErr error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return // the probe used rules that are no longer in force
	}
	before := t.verdict
	t.verdict = before.afterProbe(probeErr, t.check)
	if t.health == before.health && t.reason == before.reason {
		return
	}
	b.notifyReporter()
	if t.health != before.health {
		b.log.Info("target is "+string(t.health), "target", t.key, "reason", t.reason)
		b.updateSlots(t)
		b.settleAll()
	}
}

func (b *balancer) forgetIfUnused(t *target) {
	if t.listed || t.active > 0 || b.targets[t.key] != t {
		return
	}
	delete(b.targets, t.key)
	for _, l := range b.listeners {
		delete(l.slots, t)
	}
	b.notifyReporter() // the target no longer drains
}

// stop closes every socket. It lets open connections continue for the grace period, and cuts them
// after this period. stop returns before the connections have ended. To wait for their end, call
// b.waitGroup.Wait.
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

func (b *balancer) notifyReporter() {
	select {
	case b.changed <- struct{}{}:
	default: // the reporting goroutine was already woken, and will see this change too
	}
}
