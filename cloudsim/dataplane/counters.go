package dataplane

import (
	"maps"
	"slices"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Counters provides the statistics of the load balancers of a data plane. Its methods work at any
// time, even before the data plane starts and after it ends.
type Counters struct {
	mu        sync.Mutex
	balancers map[cloudsim.LoadBalancerID]*balancer
}

// NewCounters returns the counters of a data plane that does not run yet.
func NewCounters() *Counters {
	return &Counters{balancers: map[cloudsim.LoadBalancerID]*balancer{}}
}

func (c *Counters) add(b *balancer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balancers[b.id] = b
}

// remove deletes b, unless another balancer with the same id has replaced b.
func (c *Counters) remove(b *balancer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.balancers[b.id] == b {
		delete(c.balancers, b.id)
	}
}

// LoadBalancerStats returns the statistics of a load balancer. When the data plane adds a listener
// or target, the counters of this listener or target begin at 0. LoadBalancerStats returns false if
// the data plane does not forward the traffic of the load balancer. The time of a call is
// proportional to the number of targets.
func (c *Counters) LoadBalancerStats(id cloudsim.LoadBalancerID) (cloudsim.LoadBalancerStats, bool) {
	c.mu.Lock()
	b := c.balancers[id]
	c.mu.Unlock()
	if b == nil {
		return cloudsim.LoadBalancerStats{}, false
	}
	return b.stats(), true
}

func (c *Counters) all() []*balancer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.balancers))
}

func (b *balancer) stats() cloudsim.LoadBalancerStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := cloudsim.LoadBalancerStats{Listeners: []cloudsim.ListenerStats{}, Targets: []cloudsim.TargetStats{}}
	for _, spec := range b.lb.Listeners {
		l := b.listeners[port{spec.Protocol, spec.Port}]
		s.Listeners = append(s.Listeners, cloudsim.ListenerStats{
			Protocol: spec.Protocol, Port: spec.Port, Accepted: l.accepted, Active: l.open,
			Refused: cloudsim.Refusals{
				SourceRange: l.refused[refusedSource], NoHealthyTarget: l.refused[refusedNoTarget],
				DialFailed: l.refused[refusedDial], TooManyConnections: l.refused[refusedLimit],
			},
		})
	}
	for _, t := range b.order {
		s.Targets = append(s.Targets, t.stats())
	}
	for _, t := range b.drainingTargets() {
		s.Targets = append(s.Targets, t.stats())
	}
	return s
}

func (t *target) stats() cloudsim.TargetStats {
	return cloudsim.TargetStats{
		Instance: t.key.Instance, IP: t.key.IP, Listener: t.key.Listener, Connections: t.connections, Active: t.active, FailedDials: t.failedDials,
		BytesIn: t.bytes[in].Load(), BytesOut: t.bytes[out].Load(),
	}
}

// sumRefusals returns the number of refused connections and datagrams for each reason, at all
// listeners. The numbers include listeners that were removed.
func (b *balancer) sumRefusals() map[refusal]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := maps.Clone(b.refused)
	for _, l := range b.listeners {
		for why, n := range l.refused {
			all[why] += n
		}
	}
	return all
}
