package server

import (
	"errors"
	"slices"
	"sync"
)

type agentSet struct {
	mu       sync.RWMutex
	all      []*session
	byHost   map[string][]*session // by each host name and address in the agents' identifiers
	bySecret map[string]*session
	shut     error // error for new sessions after endAll; nil before
}

// hostIdentifiers returns the names and addresses by which the strategy destHost finds the agent.
func (s *session) hostIdentifiers() []string {
	names := slices.Clone(s.identifiers.Host)
	for _, ip := range slices.Concat(s.identifiers.IPv4, s.identifiers.IPv6) {
		names = append(names, ip.Unmap().String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (a *agentSet) addSession(s *session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shut != nil {
		return a.shut
	}
	a.all = append(a.all, s)
	for _, h := range s.hostIdentifiers() {
		a.byHost[h] = append(a.byHost[h], s)
	}
	if s.secret != "" {
		a.bySecret[s.secret] = s
	}
	return nil
}

func (a *agentSet) remove(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	without := func(all []*session) []*session {
		return slices.DeleteFunc(slices.Clone(all), func(o *session) bool { return o == s })
	}
	a.all = without(a.all)
	for _, h := range s.hostIdentifiers() {
		if a.byHost[h] = without(a.byHost[h]); len(a.byHost[h]) == 0 {
			delete(a.byHost, h)
		}
	}
	delete(a.bySecret, s.secret)
}

func (a *agentSet) withSecret(secret string) *session {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.bySecret[secret]
}

func (a *agentSet) list() []*session {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Clone(a.all)
}

// canReachAny reports whether the strategy can choose the agent for at least one target.
func (s *session) canReachAny(by Strategy, zone string) bool {
	switch by {
	case ByHost:
		return len(s.hostIdentifiers()) > 0
	case ByCIDR:
		return len(s.identifiers.CIDR) > 0
	case ByZone:
		return zone != "" && s.zone == zone
	case ByDefaultRoute:
		return s.identifiers.DefaultRoute
	}
	return true
}

// endAll ends every session. After a call of endAll, addSession refuses new sessions.
func (a *agentSet) endAll(why error) {
	a.mu.Lock()
	a.shut = why
	all := slices.Clone(a.all)
	a.mu.Unlock()
	for _, s := range all {
		s.end(why)
	}
}

var errStopping = errors.New("the network proxy server stops")
