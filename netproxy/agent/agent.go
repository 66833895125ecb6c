package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Agent keeps sessions with servers.
type Agent struct {
	log     *slog.Logger
	cfg     Config
	metrics *agentMetrics
	lost    chan struct{} // notification that a session ended; capacity 1
	open    atomic.Int64  // number of connections to targets

	mu       sync.Mutex
	sessions map[string]*session // by server id
	count    int                 // number of servers, as the server of the newest session reports
}

// New checks cfg and makes an Agent. The caller then calls Run.
func New(log *slog.Logger, cfg Config) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &Agent{log: log, cfg: cfg, lost: make(chan struct{}, 1), sessions: map[string]*session{}}
	var err error
	a.metrics, err = newMetrics(cfg.Registry, a)
	return a, err
}

// Run makes an Agent with cfg and runs the Agent until ctx ends.
func Run(ctx context.Context, log *slog.Logger, cfg Config) error {
	a, err := New(log, cfg)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// Ready returns an error if the agent has no session with a server.
func (a *Agent) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.sessions) == 0 {
		return errors.New("the agent is not connected to a server")
	}
	return nil
}

// Run keeps the agent connected until ctx ends. Then it asks the servers to
// prefer other agents, and waits up to the drain timeout for connections to
// end. After that, it cuts the remaining connections.
func (a *Agent) Run(ctx context.Context) error {
	// After the end of ctx, sessions continue until their connections have ended or the drain
	// timeout is over.
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var running sync.WaitGroup
	pause := a.cfg.SyncInterval
	for ctx.Err() == nil {
		if a.sync(ctx, live, &running) {
			pause = a.cfg.SyncInterval
		} else {
			pause = min(pause*3/2, a.cfg.SyncIntervalCap)
		}
		a.waitRandom(ctx, pause)
	}
	a.drain()
	cancel()
	running.Wait()
	return nil
}

// waitRandom waits for a random time between 0.5 d and 1.5 d, so that many
// agents do not call a server at the same moment. If a session ends during
// this wait, a shorter wait begins, so that the agent soon connects again. The
// shorter wait is also random, because many agents may have lost their sessions
// with the same server.
func (a *Agent) waitRandom(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d/2 + rand.N(d)) //nolint:gosec // no secret
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-a.lost:
		short := time.NewTimer(rand.N(a.cfg.SyncInterval / 4)) //nolint:gosec // no secret
		defer short.Stop()
		select {
		case <-ctx.Done():
		case <-short.C:
		}
	}
}

// sync calls each server that has no session with the agent. It returns true
// if every call has succeeded and if the names of all servers are resolved.
func (a *Agent) sync(ctx, live context.Context, running *sync.WaitGroup) bool {
	places, err := a.resolvePlaces(ctx)
	if err != nil {
		a.log.Warn("name of a server not resolved; retrying", "err", err)
	}
	missing := a.unconnectedPlaces(places)
	if len(missing) == 0 && len(places) > 0 && a.serverCount(ctx) > a.connected() {
		// All addresses have a session, but there are more servers than sessions. So several
		// servers share an address. In each sync, the agent calls one random address, until the
		// agent has a session with every server.
		missing = []place{places[rand.N(len(places))]} //nolint:gosec // no secret
	}
	var calls sync.WaitGroup
	var failed atomic.Bool
	for _, p := range missing {
		calls.Go(func() {
			if err := a.openSession(ctx, live, p, running); err != nil && ctx.Err() == nil {
				failed.Store(true)
				a.metrics.callFailed()
				a.log.Warn("no session with a server; retrying", "server", p.addr, "err", err)
			}
		})
	}
	calls.Wait()
	return err == nil && !failed.Load()
}

// place is an address that the agent calls. A server or a load balancer has this address.
type place struct {
	addr string // IP:port
	host string // host as configured, for TLS
}

// resolvePlaces resolves the names of the servers. It returns all addresses that it has found,
// and an error for each name without an address.
func (a *Agent) resolvePlaces(ctx context.Context) ([]place, error) {
	var all []place
	var errs []error
	for _, s := range a.cfg.Servers {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return nil, err // cannot happen: Validate checks the addresses
		}
		found := []string{host}
		if net.ParseIP(host) == nil {
			ctx, cancel := context.WithTimeout(ctx, a.cfg.DialTimeout)
			found, err = net.DefaultResolver.LookupHost(ctx, host)
			cancel()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, ip := range found {
			p := place{net.JoinHostPort(ip, port), host}
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all, errors.Join(errs...)
}

func (a *Agent) unconnectedPlaces(places []place) []place {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(places), func(p place) bool {
		for _, s := range a.sessions {
			if slices.Contains(s.places, p) {
				return true
			}
		}
		return false
	})
}

func (a *Agent) connected() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.sessions)
}

// serverCount returns the number of servers. With CountDefault, the result is the Counter's number.
// With CountMax, the result is the larger of the Counter's number and the number that the servers
// report. If there is no Counter, or if the Counter returns an error or 0, the result is the number
// that the servers report.
func (a *Agent) serverCount(ctx context.Context) int {
	a.mu.Lock()
	n := a.count
	a.mu.Unlock()
	if a.cfg.Counter != nil {
		ctx, cancel := context.WithTimeout(ctx, a.cfg.DialTimeout)
		defer cancel()
		counted, err := a.cfg.Counter.Servers(ctx)
		switch {
		case err != nil:
			a.log.Warn("servers not counted through leases; using the count that the servers report", "err", err)
		case a.cfg.CountSource == CountMax:
			n = max(n, counted)
		case counted > 0:
			n = counted
		}
	}
	a.metrics.knownServers(n)
	return n
}

// openSession opens a session with the server at p. If the agent has a session with this server
// already, the method closes the new session.
func (a *Agent) openSession(ctx, live context.Context, p place, running *sync.WaitGroup) error {
	s, err := a.connect(ctx, live, p)
	if err != nil {
		return err
	}
	if !a.add(s) {
		s.end(nil) // otherwise live would hold the context of the session until the agent stops
		s.hangUp()
		return nil
	}
	running.Go(func() {
		err := s.serve() //nolint:contextcheck // a session has a context of its own
		a.remove(s)
		if live.Err() == nil {
			a.log.Warn("lost the connection to a server; reconnecting", "server", s.serverID, "address", p.addr, "err", err)
		}
	})
	a.log.Info("connected to a server", "server", s.serverID, "address", p.addr, "streams", s.secret != "", "servers", s.count)
	return nil
}

// add stores a session and returns true. If the agent already has a session with this server, add
// returns false and does not store the new session. Instead, it adds the address of the new session
// to the older session. The method sync then regards this address as connected.
func (a *Agent) add(s *session) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count = s.count
	if old := a.sessions[s.serverID]; old != nil {
		if !slices.Contains(old.places, s.places[0]) {
			old.places = append(old.places, s.places[0])
		}
		return false
	}
	a.sessions[s.serverID] = s
	return true
}

func (a *Agent) remove(s *session) {
	a.mu.Lock()
	delete(a.sessions, s.serverID)
	a.mu.Unlock()
	select {
	case a.lost <- struct{}{}:
	default:
	}
}

// drain tells the servers to prefer other agents. It waits until all connections have ended or
// the drain timeout is over.
func (a *Agent) drain() {
	a.mu.Lock()
	for _, s := range a.sessions {
		s.drain()
	}
	a.mu.Unlock()
	end := time.NewTimer(a.cfg.DrainTimeout)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	if n := a.open.Load(); n > 0 {
		a.log.Info("waiting for the connections to end before the stop", "connections", n, "at most", a.cfg.DrainTimeout)
	}
	for a.open.Load() > 0 {
		select {
		case <-tick.C:
		case <-end.C:
			a.log.Warn("closing connections that did not end in time", "connections", a.open.Load())
			return
		}
	}
}

// errNoHeader is the error for a peer that does not send the headers of a network proxy server.
var errNoHeader = errors.New("the peer does not answer like a network proxy server")

func headerError(key string, got []string) error {
	return fmt.Errorf("%w: metadata %s must have exactly one value, got %d", errNoHeader, key, len(got))
}
