package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// Strategy is a rule that chooses an agent for a destination. The server tries its strategies in
// the configured order. It uses the agent of the first strategy that finds an agent. It uses a
// draining agent only if no strategy finds an agent that is not draining.
type Strategy string

const (
	// ByHost chooses agents with a host, ipv4 or ipv6 identifier that is equal to the
	// destination.
	ByHost Strategy = "destHost"
	// ByCIDR chooses agents with the narrowest cidr identifier that contains the destination.
	ByCIDR Strategy = "destCIDR"
	// ByZone chooses agents in the server's own zone.
	ByZone Strategy = "zone"
	// ByDefaultRoute chooses agents with the identifier default-route.
	ByDefaultRoute Strategy = "defaultRoute"
	// ByLoad chooses the agent with the smallest total of open connections and dials in progress.
	ByLoad Strategy = "least-loaded"
	// ByDefault chooses any agent.
	ByDefault Strategy = "default"
)

// Strategies contains all strategies.
var Strategies = []Strategy{ByHost, ByCIDR, ByZone, ByDefaultRoute, ByLoad, ByDefault}

// ParseStrategies parses a list of strategies that are separated by commas. It ignores repeated
// strategies.
func ParseStrategies(text string) ([]Strategy, error) {
	var all []Strategy
	for name := range strings.SplitSeq(text, ",") {
		s := Strategy(strings.TrimSpace(name))
		if !slices.Contains(Strategies, s) {
			return nil, fmt.Errorf("strategy must be one of %v, got %q", Strategies, name)
		}
		if !slices.Contains(all, s) { // a repeated strategy selects no other agent
			all = append(all, s)
		}
	}
	return all, nil
}

// target is the destination of a client's connection.
type target struct {
	protocol string // tcp or udp
	address  string // host:port
	host     string
	ip       netip.Addr // address of host; the zero value if host is a name
}

func parseTarget(protocol, address string) (target, error) {
	t := target{protocol: protocol, address: address}
	if protocol != "tcp" && protocol != "udp" {
		return t, fmt.Errorf("protocol must be tcp or udp, got %q", protocol)
	}
	if !utf8.ValidString(address) { // an agent's stream cannot carry such a text, and would end with all its connections
		return t, fmt.Errorf("address must be valid UTF-8, got %q", address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return t, fmt.Errorf("address must be host:port, got %q", address)
	}
	if n, err := net.LookupPort(protocol, port); err != nil || n == 0 {
		return t, fmt.Errorf("address %q has no valid port", address)
	}
	t.host = host
	if ip, err := netip.ParseAddr(host); err == nil {
		t.ip = ip.Unmap()
	}
	return t, nil
}

// chooseSession returns a session for the target t, or nil. It never returns one of the excluded
// sessions.
func (s *Server) chooseSession(t target, excluded []*session) *session {
	s.agents.mu.RLock()
	defer s.agents.mu.RUnlock()
	for _, draining := range []bool{false, true} {
		usable := func(ses *session) bool {
			return ses.draining.Load() == draining && !slices.Contains(excluded, ses)
		}
		for _, strategy := range s.cfg.Strategies {
			if ses := s.agents.pick(strategy, t, s.cfg.Zone, usable); ses != nil {
				return ses
			}
		}
	}
	return nil
}

// pick returns the strategy's choice among the usable sessions, or nil.
func (a *agentSet) pick(by Strategy, t target, zone string, usable func(*session) bool) *session {
	switch by {
	case ByHost:
		if s := firstMatch(a.byHost[t.host], usable); s != nil || !t.ip.IsValid() {
			return s
		}
		return firstMatch(a.byHost[t.ip.Unmap().String()], usable) // one IPv6 address has several texts
	case ByCIDR:
		return a.narrowest(t, usable)
	case ByZone:
		return firstMatch(a.all, func(s *session) bool { return zone != "" && s.zone == zone && usable(s) })
	case ByDefaultRoute:
		return firstMatch(a.all, func(s *session) bool { return s.identifiers.DefaultRoute && usable(s) })
	case ByLoad:
		return leastLoaded(a.all, usable)
	case ByDefault:
		return firstMatch(a.all, usable)
	}
	return nil
}

// firstMatch returns a session for which isMatch returns true. It begins at a random index, so that
// equal agents share the load.
func firstMatch(all []*session, isMatch func(*session) bool) *session {
	if len(all) == 0 {
		return nil
	}
	start := rand.IntN(len(all)) //nolint:gosec // no secret
	for i := range all {
		if s := all[(start+i)%len(all)]; isMatch(s) {
			return s
		}
	}
	return nil
}

func (a *agentSet) narrowest(t target, usable func(*session) bool) *session {
	if !t.ip.IsValid() {
		return nil
	}
	best := -1
	for _, s := range a.all {
		if usable(s) {
			best = max(best, s.rangeLength(t.ip))
		}
	}
	if best < 0 {
		return nil
	}
	return firstMatch(a.all, func(s *session) bool { return s.rangeLength(t.ip) == best && usable(s) })
}

// rangeLength returns the prefix length of the agent's narrowest range that
// contains ip. If no range contains ip, it returns -1.
func (s *session) rangeLength(ip netip.Addr) int {
	best := -1
	for _, p := range s.identifiers.CIDR {
		if p.Contains(ip) {
			best = max(best, p.Bits())
		}
	}
	return best
}

func leastLoaded(all []*session, usable func(*session) bool) *session {
	if len(all) == 0 {
		return nil
	}
	var best *session
	start := rand.IntN(len(all)) //nolint:gosec // no secret
	for i := range all {
		if s := all[(start+i)%len(all)]; usable(s) && (best == nil || s.load.Load() < best.load.Load()) {
			best = s
		}
	}
	return best
}
