package server

import (
	"errors"
	"slices"
	"sync"
)

// agents are the sessions that are open.
type agents struct {
	mu       sync.RWMutex
	all      []*session
	byHost   map[string][]*session // by every host and address identifier
	bySecret map[string]*session
	shut     error // why no more are taken
}

// hosts are the names under which destHost finds the agent.
func (s *session) hosts() []string {
	names := slices.Clone(s.identifiers.Host)
	for _, ip := range slices.Concat(s.identifiers.IPv4, s.identifiers.IPv6) {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (a *agents) add(s *session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shut != nil {
		return a.shut
	}
	a.all = append(a.all, s)
	for _, h := range s.hosts() {
		a.byHost[h] = append(a.byHost[h], s)
	}
	if s.secret != "" {
		a.bySecret[s.secret] = s
	}
	return nil
}

func (a *agents) remove(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	without := func(all []*session) []*session {
		return slices.DeleteFunc(slices.Clone(all), func(o *session) bool { return o == s })
	}
	a.all = without(a.all)
	for _, h := range s.hosts() {
		if a.byHost[h] = without(a.byHost[h]); len(a.byHost[h]) == 0 {
			delete(a.byHost, h)
		}
	}
	delete(a.bySecret, s.secret)
}

func (a *agents) withSecret(secret string) *session {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.bySecret[secret]
}

func (a *agents) list() []*session {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Clone(a.all)
}

// suits reports whether a strategy would choose the agent for some target.
func (s *session) suits(by Strategy, zone string) bool {
	switch by {
	case ByHost:
		return len(s.hosts()) > 0
	case ByCIDR:
		return len(s.identifiers.CIDR) > 0
	case ByZone:
		return zone != "" && s.zone == zone
	case ByDefaultRoute:
		return s.identifiers.DefaultRoute
	}
	return true
}

// endAll ends every session, and takes no more.
func (a *agents) endAll(why error) {
	a.mu.Lock()
	a.shut = why
	all := slices.Clone(a.all)
	a.mu.Unlock()
	for _, s := range all {
		s.end(why)
	}
}

// errStopping is why a session ends with its server.
var errStopping = errors.New("the network proxy server stops")
