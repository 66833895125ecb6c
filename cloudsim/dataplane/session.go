package dataplane

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// session is a connection or UDP flow between one client and one target.
type session struct {
	b      *balancer
	l      *listener
	socket *socket // the socket that the client connected to
	client netip.Addr
	choice

	cut func() // ends the session at once; callers may call cut at any time and more than once

	// The balancer's mu protects these fields.
	end   *time.Timer // calls cut when the drain timeout ends; nil unless the session drains
	until time.Time   // end of the drain timeout
}

// begin returns a refusal if the source ranges do not allow the client, if a limit of connections
// is reached, or if no target is available. Otherwise it counts the connection and chooses a target
// that the caller has not tried. The caller must later call removeSession, endUnserved or abandon.
func (b *balancer) begin(l *listener, client netip.Addr, tried []*target) (choice, refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.accepted++
	why := refusal("")
	var c choice
	switch {
	case !b.isAllowed(client):
		why = refusedSource
	case l.open >= l.limit(b.cfg) || b.cfg.total.Load() >= int64(b.cfg.MaxOpen):
		why = refusedLimit
	default:
		var ok bool
		if c, ok = b.pickTarget(l, client, tried); !ok {
			why = refusedNoTarget
		}
	}
	if why != "" {
		l.refused[why]++
		return c, why
	}
	l.open++
	b.cfg.total.Add(1)
	return c, ""
}

// updateOpen counts the end of a connection or flow of l.
func (b *balancer) updateOpen(l *listener) {
	l.open--
	b.cfg.total.Add(-1)
}

// endUnserved counts the refusal of a connection for which b.retry has found no other target. The
// caller closes the connection.
func (b *balancer) endUnserved(l *listener, client netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endRefused(l, client)
}

// endRefused counts the end and the refusal of a connection that has no session. If the source
// ranges no longer allow the client, they are the reason for the refusal. Otherwise the reason is a
// failed dial.
func (b *balancer) endRefused(l *listener, client netip.Addr) {
	b.updateOpen(l)
	if b.isAllowed(client) {
		l.refused[refusedDial]++
	} else {
		l.refused[refusedSource]++
	}
}

// abandon releases the target that b.begin or b.retry chose for a connection without a session. It
// also counts the refusal of the connection. The caller closes the connection.
func (b *balancer) abandon(l *listener, client netip.Addr, c choice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(l, c.slot)
	b.endRefused(l, client)
}

func (b *balancer) dialFailed(t *target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.failedDials++
}

// retry releases the target of c, and chooses another target that the caller has not tried. If the
// connection to the target of c failed, err contains the error, and retry counts a failed dial. If
// another event prevented the session, e.g. a change of the rules, err is nil. retry returns false
// if no other target is available, or if the caller has tried dialAttempts targets. It also returns
// false if the balancer has stopped, or if the source ranges no longer allow the client.
func (b *balancer) retry(l *listener, client netip.Addr, c choice, tried []*target, err error) (choice, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		c.target.failedDials++
	}
	b.release(l, c.slot)
	if b.stopped || !b.isAllowed(client) {
		return c, false
	}
	if len(tried) < dialAttempts {
		if to, ok := b.pickTarget(l, client, tried); ok {
			return to, true
		}
	}
	b.lost.Do(func() {
		b.log.Warn("a client was refused, because no target accepted the connection; the load balancer counts each refusal, and logs at most one in "+lostEvery.String(),
			"listener", l.number, "client", client, "tried", keysOf(tried), "error", err)
	})
	return c, false
}

// join starts a session and returns true. If the balancer has stopped, or if the rules no longer
// allow the session, join returns false.
func (b *balancer) join(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || !b.isAllowed(s.client) || b.effectOn(s) != keep {
		return false
	}
	b.sessions[s] = struct{}{}
	s.target.connections++
	return true
}

func (b *balancer) removeSession(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.undrain()
	delete(b.sessions, s)
	b.updateOpen(s.l)
	if b.kept.find(s.client, s.target.key.Listener) == s.target {
		b.kept.keep(s.client, s.target.key.Listener, s.target) // the affinity timeout begins at the end of the session
	}
	b.release(s.l, s.slot)
}

// isAllowed reports whether the source ranges allow a client. Without source ranges, each client is
// allowed.
func (b *balancer) isAllowed(client netip.Addr) bool {
	return len(b.lb.SourceRanges) == 0 || slices.ContainsFunc(b.sources, func(p netip.Prefix) bool { return p.Contains(client) })
}

// cutExcluded cuts the sessions of clients that the source ranges no longer
// allow. Its run time is O(sessions × ranges), so the balancer calls cutExcluded
// only after a change of the rules.
func (b *balancer) cutExcluded() {
	for s := range b.sessions {
		if !b.isAllowed(s.client) {
			s.cut()
		}
	}
}

// sessionEffect is the effect of the present rules on a session. It depends on the listener and the
// target, not on the client.
type sessionEffect int

const (
	keep  sessionEffect = iota
	drain               // the session may finish within the drain timeout
	cut                 // the session must end at once
)

func (b *balancer) effectOn(s *session) sessionEffect {
	moved := b.sockets[s.socket.key] != s.socket || s.l.spec.TargetPort != s.port
	t := b.presentTarget(s)
	switch {
	case !s.target.machine.keepsConns():
		return cut
	case s.l.protocol == cloudsim.UDP && (moved || t.health == cloudsim.TargetUnhealthy):
		return cut // the client does not notice: its next datagram begins a new flow to the right target
	case t.stopProbe == nil, moved: // stopProbe is nil if the target is not in the spec or not running
		return drain
	}
	return keep
}

// presentTarget returns the session's target in the pool that the session's listener uses now. If
// the pool does not have the target, the method returns a placeholder: an unhealthy target that is
// not in the spec. The balancer then drains or cuts the session.
func (b *balancer) presentTarget(s *session) *target {
	if s.l.pool == s.target.key.Listener {
		return s.target
	}
	key := s.target.key
	key.Listener = s.l.pool
	if t := b.targets[key]; t != nil {
		return t
	}
	return &target{verdict: verdict{health: cloudsim.TargetUnhealthy}}
}

// settleAll keeps, drains or cuts each session according to its sessionEffect. Its run time is
// O(sessions).
func (b *balancer) settleAll() {
	for s := range b.sessions {
		switch b.effectOn(s) {
		case keep:
			s.undrain()
		case drain:
			s.drain(b.drainTimeout())
		case cut:
			s.cut()
		}
	}
}

func (b *balancer) drainTimeout() time.Duration {
	switch n := b.lb.DrainTimeoutSeconds; {
	case n > 0:
		return time.Duration(n) * time.Second
	case n < 0:
		return 0
	}
	return b.cfg.DrainTimeout
}

// drain cuts the session after the duration d. A call of undrain prevents the cut. If a previous
// call of drain has set an earlier time for the cut, the earlier time stays in force.
func (s *session) drain(d time.Duration) {
	if d <= 0 {
		s.cut()
		return
	}
	until := time.Now().Add(d)
	if s.end != nil && until.After(s.until) {
		return
	}
	s.undrain()
	s.target.draining++
	s.end, s.until = time.AfterFunc(d, s.cut), until
}

func (s *session) undrain() {
	if s.end != nil {
		s.end.Stop()
		s.end = nil
		s.target.draining--
	}
}
