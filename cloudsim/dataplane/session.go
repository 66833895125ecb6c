package dataplane

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// session is one client's connection, or UDP flow, with a target.
type session struct {
	b      *balancer
	l      *listener
	socket *socket // by which the client came
	client netip.Addr
	choice

	cut func() // ends it at once; may be called at any time, and again

	// Behind the balancer's mu.
	end   *time.Timer // cuts it at until; nil unless it drains
	until time.Time
}

// begin takes a client in by the rules and chooses its target, besides those
// that were tried, or says why not. Whoever is taken in must leave, or be
// discharged.
func (b *balancer) begin(l *listener, client netip.Addr, tried []*target) (choice, refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.accepted++
	why := refusal("")
	var c choice
	switch {
	case !b.admits(client):
		why = refusedSource
	case l.open >= l.limit(b.cfg) || b.cfg.total.Load() >= int64(b.cfg.MaxOpen):
		why = refusedLimit
	default:
		var ok bool
		if c, ok = b.pick(l, client, tried); !ok {
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

// closed counts that a connection or flow of l has ended.
func (b *balancer) closed(l *listener) {
	l.open--
	b.cfg.total.Add(-1)
}

// discharge is for one that begin took in and that found no target after all.
func (b *balancer) discharge(l *listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed(l)
	l.refused[refusedDial]++
}

// abandon is for one that begin took in and whose target it did not reach.
func (b *balancer) abandon(l *listener, c choice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(l, c.slot)
	b.closed(l)
	l.refused[refusedDial]++
}

// dialFailed counts that nobody answers where t should.
func (b *balancer) dialFailed(t *target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.failedDials++
}

// retry gives up a target that could not be reached, and chooses one that was
// not tried. A nil error is no failure of the target's: the rules changed.
func (b *balancer) retry(l *listener, client netip.Addr, c choice, tried []*target, err error) (choice, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		c.target.failedDials++
	}
	b.release(l, c.slot)
	if len(tried) < dialAttempts {
		if to, ok := b.pick(l, client, tried); ok {
			return to, true
		}
	}
	b.lost.Do(func() {
		b.log.Warn("a client was turned away: no target took its connection; the counters tell how many are",
			"listener", l.number, "client", client, "tried", keysOf(tried), "error", err)
	})
	return c, false
}

// join takes a session up, unless the rules no longer allow it.
func (b *balancer) join(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || !b.admits(s.client) || b.fate(s) != keep {
		return false
	}
	b.sessions[s] = struct{}{}
	s.target.connections++
	return true
}

// leave forgets a session that has ended.
func (b *balancer) leave(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.undrain()
	delete(b.sessions, s)
	b.closed(s.l)
	if b.kept.find(s.client) == s.target {
		b.kept.keep(s.client, s.target) // it counts from the end
	}
	b.release(s.l, s.slot)
}

// admits reports whether the source ranges let a client in.
func (b *balancer) admits(client netip.Addr) bool {
	return len(b.sources) == 0 || slices.ContainsFunc(b.sources, func(p netip.Prefix) bool { return p.Contains(client) })
}

// expel cuts the sessions of clients that the source ranges no longer let in:
// a door that is closed is closed to all. O(sessions × ranges), and therefore
// for new rules only.
func (b *balancer) expel() {
	for s := range b.sessions {
		if !b.admits(s.client) {
			s.cut()
		}
	}
}

// fate is what becomes of a session by the rules of now, apart from who its
// client is.
type fate int

const (
	keep  fate = iota
	drain      // it may finish, for a while
	cut        // the other end is no more
)

func (b *balancer) fate(s *session) fate {
	elsewhere := b.sockets[s.socket.key] != s.socket || s.l.spec.TargetPort != s.port
	switch {
	case !s.target.machine.keeps():
		return cut
	case s.l.protocol == cloudsim.UDP && (elsewhere || s.target.health == cloudsim.TargetUnhealthy):
		return cut // a client does not notice: its next datagram begins a flow that goes right
	case s.target.stopProbe == nil, elsewhere: // not wanted, or not running
		return drain
	}
	return keep
}

// settleAll gives every session its fate. O(sessions).
func (b *balancer) settleAll() {
	for s := range b.sessions {
		switch b.fate(s) {
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

// drain cuts the session after d, unless undrain is called before. One that
// drains already keeps the earlier of its ends.
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
	s.end, s.until = time.AfterFunc(d, s.cut), until
}

func (s *session) undrain() {
	if s.end != nil {
		s.end.Stop()
		s.end = nil
	}
}
