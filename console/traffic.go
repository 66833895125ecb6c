package console

import (
	"context"
	"math"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// KindTraffic is the kind of Traffic objects in the console's stream. The cloud's API does not have
// this kind.
const KindTraffic = "traffic"

const trafficEvery = time.Second

// Traffic is the traffic of a load balancer in the last second. The field ID is the id of the load
// balancer.
type Traffic struct {
	ID     cloudsim.LoadBalancerID `json:"id"`
	Active int                     `json:"active"` // open connections or flows
	Rates
	Refused float64         `json:"refused,omitempty"` // connections per second that the listeners did not forward
	Targets []TargetTraffic `json:"targets,omitempty"`
}

// TargetTraffic is the traffic between a load balancer and one target. It is the sum over all
// listeners.
type TargetTraffic struct {
	Instance cloudsim.InstanceID `json:"instance"`
	IP       string              `json:"ip,omitempty"`
	Active   int                 `json:"active"`
	Rates
}

// Rates are the connections and the bytes per second. Bytes is the sum of both directions.
type Rates struct {
	Connections float64 `json:"connections"`
	Bytes       float64 `json:"bytes"`
}

// counters contains the values of a load balancer's counters at one moment.
type counters struct {
	listeners map[listenerKey]listenerCounters
	targets   map[cloudsim.TargetKey]cloudsim.TargetStats // by instance and address; sums over all listeners
}

type listenerKey struct {
	protocol cloudsim.Protocol
	port     int
}

type listenerCounters struct{ accepted, refused uint64 }

// pollTraffic reads the counters of all load balancers every second, because the cloud writes no
// events about counters. It computes rates from the last two reads, and stores these rates as
// Traffic objects in the hub.
func (h *hub) pollTraffic(ctx context.Context) {
	last, lastAt := map[cloudsim.LoadBalancerID]counters{}, time.Time{}
	for ; ctx.Err() == nil; backoff.Sleep(ctx, trafficEvery) {
		all, _, err := cloudsim.All(ctx, h.cloud.ListLoadBalancerStats, cloudsim.ListOptions{})
		if err != nil {
			continue // the informer reports the problem
		}
		now := time.Now()
		sums := map[cloudsim.LoadBalancerID]counters{}
		for _, lb := range all {
			sum := sumOf(lb.LoadBalancerStats)
			sums[lb.ID] = sum
			if before, ok := last[lb.ID]; ok {
				h.put(key{KindTraffic, string(lb.ID)}, lb.Project, traffic(lb, before, sum, now.Sub(lastAt)))
			}
		}
		for id := range last {
			if _, ok := sums[id]; !ok {
				h.remove(key{KindTraffic, string(id)})
			}
		}
		last, lastAt = sums, now
	}
}

func sumOf(s cloudsim.LoadBalancerStats) counters {
	c := counters{listeners: map[listenerKey]listenerCounters{}, targets: map[cloudsim.TargetKey]cloudsim.TargetStats{}}
	for _, l := range s.Listeners {
		r := l.Refused
		c.listeners[listenerKey{l.Protocol, l.Port}] = listenerCounters{l.Accepted, r.SourceRange + r.NoHealthyTarget + r.DialFailed + r.TooManyConnections}
	}
	for _, t := range s.Targets {
		k := cloudsim.TargetKey{Instance: t.Instance, IP: t.IP}
		sum := c.targets[k]
		sum.Connections += t.Connections
		sum.Active += t.Active
		sum.BytesIn += t.BytesIn
		sum.BytesOut += t.BytesOut
		c.targets[k] = sum
	}
	return c
}

// traffic returns the traffic between two reads of the counters of a load balancer. It first
// computes the growth for each listener and each target, and then adds the results. If it compared
// the sums of the counters instead, the removal of a listener or target would reduce the sum. This
// reduction would hide the traffic of the remaining listeners or targets.
func traffic(lb cloudsim.LoadBalancerTraffic, before, now counters, took time.Duration) Traffic {
	t := Traffic{ID: lb.ID}
	for _, l := range lb.Listeners {
		t.Active += l.Active
	}
	var accepted, refused, bytes uint64
	for k, b := range now.listeners {
		a := before.listeners[k]
		accepted, refused = accepted+growth(a.accepted, b.accepted), refused+growth(a.refused, b.refused)
	}
	for k, b := range now.targets {
		a := before.targets[k]
		bytes += growth(a.BytesIn+a.BytesOut, b.BytesIn+b.BytesOut)
	}
	t.Connections, t.Bytes, t.Refused = rate(accepted, took), rate(bytes, took), rate(refused, took)
	seen := map[cloudsim.TargetKey]bool{}
	for _, s := range lb.Targets { // in the same order as in the load balancer's status
		k := cloudsim.TargetKey{Instance: s.Instance, IP: s.IP}
		if seen[k] {
			continue
		}
		seen[k] = true
		a, b := before.targets[k], now.targets[k]
		t.Targets = append(t.Targets, TargetTraffic{
			Instance: s.Instance, IP: s.IP, Active: b.Active,
			Rates: Rates{rate(growth(a.Connections, b.Connections), took), rate(growth(a.BytesIn+a.BytesOut, b.BytesIn+b.BytesOut), took)},
		})
	}
	return t
}

// growth returns the growth of a counter. If newCount is smaller than oldCount, for example after a
// restart of the data plane, growth returns 0.
func growth(oldCount, newCount uint64) uint64 { return max(newCount, oldCount) - oldCount }

func rate(n uint64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return math.Round(float64(n)/took.Seconds()*10) / 10
}
