package cloudsim

import (
	"fmt"
	"slices"
)

// TargetPool is a set of targets with their health check.
type TargetPool struct {
	// Listener is the key of the listener to which the pool belongs. It is empty for the pool with
	// the load balancer's own targets and health check. A listener uses this pool if it has neither
	// its own targets nor its own health check.
	Listener string
	Targets  []Target
	Check    HealthCheck // with a default value for each unset field
}

// Keys returns the keys of the pool's targets, in the order of the targets.
func (p TargetPool) Keys() []TargetKey {
	keys := make([]TargetKey, len(p.Targets))
	for i, t := range p.Targets {
		keys[i] = TargetKey{Instance: t.Instance, IP: t.IP, Listener: p.Listener}
	}
	return keys
}

// Key returns the protocol and the port of the listener, such as "tcp/80".
func (l Listener) Key() string { return fmt.Sprintf("%s/%d", l.Protocol, l.Port) }

// Pool returns the field Listener of the TargetPool from which l chooses targets. If l has its own
// targets or its own health check, this field contains the key of l. Otherwise it is empty.
func (l Listener) Pool() string {
	if l.Targets == nil && l.HealthCheck == nil {
		return ""
	}
	return l.Key()
}

// equal reports whether two listeners are equal. A nil list of targets differs from an empty
// list: nil means the load balancer's targets, and an empty list means no targets.
func (l Listener) equal(other Listener) bool {
	return l.Protocol == other.Protocol && l.Port == other.Port && l.TargetPort == other.TargetPort &&
		l.Mode == other.Mode && l.ProxyProtocol == other.ProxyProtocol &&
		l.IdleTimeoutSeconds == other.IdleTimeoutSeconds && l.MaxConnections == other.MaxConnections &&
		(l.Targets == nil) == (other.Targets == nil) && slices.Equal(l.Targets, other.Targets) &&
		(l.HealthCheck == nil) == (other.HealthCheck == nil) && (l.HealthCheck == nil || *l.HealthCheck == *other.HealthCheck)
}

// Pools returns the pools from which the listeners choose targets. Each listener with its own
// targets or its own health check has its own pool. All other listeners share one pool, which
// contains the load balancer's own targets. The shared pool comes first, before the listeners' own
// pools in the order of the listeners. It also exists if s has no listeners.
func (s LoadBalancerSpec) Pools() []TargetPool {
	var all []TargetPool
	if len(s.Listeners) == 0 || slices.ContainsFunc(s.Listeners, func(l Listener) bool { return l.Pool() == "" }) {
		all = append(all, TargetPool{Targets: s.Targets, Check: s.Check()})
	}
	for _, l := range s.Listeners {
		if l.Pool() == "" {
			continue
		}
		p := TargetPool{Listener: l.Key(), Targets: s.Targets, Check: s.HealthCheck}
		if l.Targets != nil {
			p.Targets = l.Targets
		}
		if l.HealthCheck != nil {
			p.Check = *l.HealthCheck
		}
		// The default port is the target port of l. If l uses UDP, the default port is the
		// target port of the first TCP listener, because a probe needs a TCP port.
		p.Check = p.Check.WithDefaults(append([]Listener{l}, s.Listeners...))
		all = append(all, p)
	}
	return all
}

// TargetLists returns the load balancer's list of targets and the lists of its listeners. The key
// of each list is the list's path in a request, such as listeners[0].targets.
func (s LoadBalancerSpec) TargetLists() map[string][]Target {
	all := map[string][]Target{"targets": s.Targets}
	for i, l := range s.Listeners {
		if l.Targets != nil {
			all[fmt.Sprintf("listeners[%d].targets", i)] = l.Targets
		}
	}
	return all
}
