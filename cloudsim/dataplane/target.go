package dataplane

import (
	"context"
	"fmt"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// target is an instance that a balancer forwards to, or one that left and
// still has connections.
type target struct {
	instance cloudsim.InstanceID
	stats    targetStats
	listed   bool // it is in the spec
	machine  machine
	verdict
	check     cloudsim.HealthCheck // by which it is probed
	stopProbe context.CancelFunc   // nil while it is not
	active    int                  // connections, also those being dialled
}

func newTarget(id cloudsim.InstanceID, stats targetStats) *target {
	return &target{instance: id, stats: stats}
}

// why says why a machine takes no connections.
func (m machine) why(id cloudsim.InstanceID) string {
	switch {
	case m.state == "":
		return fmt.Sprintf("instance %s does not exist", id)
	case m.state != cloudsim.InstanceRunning:
		return fmt.Sprintf("instance %s is %s", id, m.state)
	}
	return fmt.Sprintf("instance %s has no internal address", id)
}

// keeps reports whether connections to the machine outlive its state: one that
// is shutting down still has them, one that is off or was restarted has not.
func (m machine) keeps() bool {
	switch m.state {
	case cloudsim.InstanceRunning, cloudsim.InstanceStopping, cloudsim.InstanceTerminating:
		return true
	}
	return false
}

// verdict is what the probes say of a target so far.
type verdict struct {
	health    cloudsim.TargetHealth
	reason    string // why it is not healthy
	good, bad int    // probes in a row that ended so
}

// after is the verdict after one more probe, which found an error or nil.
func (v verdict) after(found error, check cloudsim.HealthCheck) verdict {
	if found == nil {
		v.good, v.bad = v.good+1, 0
		if v.good >= check.HealthyThreshold {
			v.health, v.reason = cloudsim.TargetHealthy, ""
		}
		return v
	}
	v.good, v.bad = 0, v.bad+1
	if v.bad >= check.UnhealthyThreshold {
		v.health = cloudsim.TargetUnhealthy
	}
	if v.health != cloudsim.TargetHealthy {
		v.reason = found.Error()
	}
	return v
}

// pick chooses the healthy target with the fewest connections, and among
// equals the one that l chose longest ago; nil if there is none besides tried.
// It counts the connection: whoever picks must release. O(targets), but it
// stops at the first that is idle.
func (b *balancer) pick(l *listener, tried []*target) (t *target, ip string, port int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	best := -1
	for at, t := range l.queue {
		if t.health != cloudsim.TargetHealthy || slices.Contains(tried, t) {
			continue
		}
		if best < 0 || t.active < l.queue[best].active {
			best = at
		}
		if t.active == 0 {
			break
		}
	}
	if best < 0 {
		return nil, "", 0
	}
	t = l.queue[best]
	l.queue = append(slices.Delete(l.queue, best, best+1), t)
	t.active++
	return t, t.machine.ip, l.targetPort
}

// enqueue makes l's queue the targets of order: those that left go, new ones
// come first, the others keep their turn.
func (l *listener) enqueue(order []*target) {
	old := slices.DeleteFunc(l.queue, func(t *target) bool { return !t.listed })
	had := make(map[*target]bool, len(old))
	for _, t := range old {
		had[t] = true
	}
	l.queue = slices.DeleteFunc(slices.Clone(order), func(t *target) bool { return had[t] })
	l.queue = append(l.queue, old...)
}

// release takes back what pick counted.
func (b *balancer) release(t *target) {
	t.active--
	b.forgetIfUnused(t)
}
