package dataplane

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// target is an instance, or an address behind one, that a balancer forwards to,
// or that left and still has connections.
type target struct {
	key   cloudsim.TargetKey
	bytes [2]atomic.Uint64 // forwarded, by direction

	// Behind the balancer's mu.
	listed  bool // it is in the spec
	weight  int
	machine machine
	verdict
	check     cloudsim.HealthCheck // by which it is probed
	stopProbe context.CancelFunc   // nil while it is not
	active    int                  // connections, also those being dialled

	connections, failedDials uint64
}

func keysOf(all []*target) []cloudsim.TargetKey {
	keys := make([]cloudsim.TargetKey, len(all))
	for i, t := range all {
		keys[i] = t.key
	}
	return keys
}

// takes reports whether it may be chosen.
func (t *target) takes() bool { return t.listed && t.health == cloudsim.TargetHealthy }

// machine is what the data plane knows of an instance; the zero value is one
// that does not exist.
type machine struct {
	revision uint64
	state    cloudsim.InstanceState
	zone     string
	dark     bool      // nothing reaches its zone
	ips      [2]string // internal: the one that is probed, and one of the other family
}

func machineOf(i cloudsim.Instance) machine {
	m := machine{revision: i.Revision, state: i.State, zone: i.Zone}
	for _, a := range i.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case err != nil || a.Type != cloudsim.AddressInternal:
		case m.ips[0] == "":
			m.ips[0] = a.Address
		case m.ips[1] == "" && ip.Is4() != isIPv4(m.ips[0]):
			m.ips[1] = a.Address
		}
	}
	return m
}

func isIPv4(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Is4()
}

// on reports whether a connection can reach it.
func (m machine) on() bool { return m.state == cloudsim.InstanceRunning && !m.dark }

// at is the machine as the target of that key sees it: an address behind it is
// reached there alone.
func (m machine) at(key cloudsim.TargetKey) machine {
	if key.IP != "" {
		m.ips = [2]string{key.IP}
	}
	return m
}

// ip is where it is probed, or "".
func (m machine) ip() string { return m.ips[0] }

// reach is where a client's connections go: to the address of the client's
// family if it has one, and else to the other, because a connection to a
// target is one of the load balancer's own.
func (m machine) reach(client netip.Addr) string {
	if m.ips[1] != "" && isIPv4(m.ips[1]) == client.Is4() {
		return m.ips[1]
	}
	return m.ips[0]
}

// why says why a machine takes no connections.
func (m machine) why(id cloudsim.InstanceID) string {
	switch {
	case m.state == "":
		return fmt.Sprintf("instance %s does not exist", id)
	case m.state != cloudsim.InstanceRunning:
		return fmt.Sprintf("instance %s is %s", id, m.state)
	case m.dark:
		return fmt.Sprintf("zone %s does not answer", m.zone)
	}
	return fmt.Sprintf("instance %s has no internal address", id)
}

// keeps reports whether connections to the machine outlive its state: one that
// is shutting down still has them, one that is off, was restarted or is in a
// dark zone has not.
func (m machine) keeps() bool {
	if m.dark {
		return false
	}
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
