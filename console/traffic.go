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

// Rates are the connections per second, and the bytes per second in both directions.
type Rates struct {
	Connections float64 `json:"connections"`
	Bytes       float64 `json:"bytes"`
}

// counters are sums over all listeners and targets of a load balancer. A sum decreases only after a
// restart of the data plane, or after the removal of a listener or target.
type counters struct {
	accepted, refused, bytes uint64
	targets                  map[cloudsim.TargetKey]cloudsim.TargetStats // by instance and address
}

// pollTraffic reads the counters of all load balancers every second, because counters have no
// events. It computes the rates from two reads, and stores them as Traffic objects in the hub.
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
	c := counters{targets: map[cloudsim.TargetKey]cloudsim.TargetStats{}}
	for _, l := range s.Listeners {
		c.accepted += l.Accepted
		c.refused += l.Refused.SourceRange + l.Refused.NoHealthyTarget + l.Refused.DialFailed + l.Refused.TooManyConnections
	}
	for _, t := range s.Targets {
		c.bytes += t.BytesIn + t.BytesOut
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

// traffic returns the traffic between two reads of the counters of a load balancer.
func traffic(lb cloudsim.LoadBalancerTraffic, before, now counters, took time.Duration) Traffic {
	t := Traffic{
		ID:      lb.ID,
		Rates:   Rates{rate(before.accepted, now.accepted, took), rate(before.bytes, now.bytes, took)},
		Refused: rate(before.refused, now.refused, took),
	}
	for _, l := range lb.Listeners {
		t.Active += l.Active
	}
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
			Rates: Rates{rate(a.Connections, b.Connections, took), rate(a.BytesIn+a.BytesOut, b.BytesIn+b.BytesOut, took)},
		})
	}
	return t
}

// rate returns the growth of a counter per second, rounded to tenths. If newCount is smaller than
// oldCount, for example after a restart of the data plane, rate returns 0.
func rate(oldCount, newCount uint64, took time.Duration) float64 {
	if newCount < oldCount || took <= 0 {
		return 0
	}
	return math.Round(float64(newCount-oldCount)/took.Seconds()*10) / 10
}
