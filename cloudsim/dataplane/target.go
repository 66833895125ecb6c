package dataplane

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// target is a destination of a balancer's connections: an instance, or an address behind an
// instance, e.g. the address of a pod. A removed target exists until its connections end.
type target struct {
	key   cloudsim.TargetKey
	bytes [2]atomic.Uint64 // bytes forwarded, by direction

	// The balancer's mu protects these fields.
	listed  bool // the target is in the spec
	weight  int
	machine machine
	verdict
	check     cloudsim.HealthCheck // health check of the running probes
	stopProbe context.CancelFunc   // nil while no probes run
	active    int                  // connections, including those being dialed
	draining  int                  // connections that the drain timeout will end

	connections, failedDials uint64
}

func keysOf(all []*target) []cloudsim.TargetKey {
	keys := make([]cloudsim.TargetKey, len(all))
	for i, t := range all {
		keys[i] = t.key
	}
	return keys
}

// isUsable returns true if the balancer may choose the target for new
// connections.
func (t *target) isUsable() bool { return t.listed && t.health == cloudsim.TargetHealthy }

// machine is the known state of an instance. The zero value is an instance that does not exist.
type machine struct {
	revision uint64
	state    cloudsim.InstanceState
	zone     string
	dark     bool      // the machine's zone is out of reach
	ips      [2]string // internal addresses: the first address, which the balancer probes, and the first address of the other IP family
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

func (m machine) isReachable() bool { return m.state == cloudsim.InstanceRunning && !m.dark }

// withAddresses returns a copy of m for a target. If the target is an address behind the instance,
// such as a pod's address, the copy has only this address.
func (m machine) withAddresses(key cloudsim.TargetKey) machine {
	if key.IP != "" {
		m.ips = [2]string{key.IP}
	}
	return m
}

// ip returns the address that the balancer probes, or "" if the machine has no
// address.
func (m machine) ip() string { return m.ips[0] }

// reach returns the address that the balancer dials for a client. It prefers an address of the
// client's IP family. If m has only an address of the other family, reach returns this address. The
// target then cannot see the client's address, because the IP families differ.
func (m machine) reach(client netip.Addr) string {
	if m.ips[1] != "" && isIPv4(m.ips[1]) == client.Is4() {
		return m.ips[1]
	}
	return m.ips[0]
}

func (m machine) unusableReason(id cloudsim.InstanceID) string {
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

// keepsConns returns true if the machine still has its connections. A machine that is shutting down
// still has its connections. A machine that is off, is rebooting or is out of reach has lost its
// connections.
func (m machine) keepsConns() bool {
	if m.dark {
		return false
	}
	switch m.state {
	case cloudsim.InstanceRunning, cloudsim.InstanceStopping, cloudsim.InstanceTerminating:
		return true
	}
	return false
}

// verdict is the result of all probes of a target up to now.
type verdict struct {
	health    cloudsim.TargetHealth
	reason    string // reason why the target is not healthy
	good, bad int    // numbers of successful and failed probes in a row
}

// afterProbe returns the verdict after one more probe. The parameter probeErr is the error of this
// probe, or nil if the probe succeeded.
func (v verdict) afterProbe(probeErr error, check cloudsim.HealthCheck) verdict {
	if probeErr == nil {
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
		v.reason = probeErr.Error()
	}
	return v
}
