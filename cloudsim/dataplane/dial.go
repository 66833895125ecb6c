package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/internal/hostnet"
)

// dialPolicy decides to which addresses load balancers and health checks may connect. Projects
// choose the addresses of instances, and this machine connects to these addresses. Without a
// policy, a project could reach servers that only this machine may reach, such as servers on
// its loopback interface.
type dialPolicy struct {
	instances, networks []netip.Prefix
	host                func() ([]netip.Prefix, error) // addresses of this machine

	mu    sync.Mutex
	until time.Time      // time at which the addresses in known expire
	known []netip.Prefix // addresses of this machine at the last call of host
	err   error
}

// hostFor is the time for which dialPolicy keeps the list of this machine's addresses in memory.
const hostFor = time.Second

func newDialPolicy(c Config) *dialPolicy {
	return &dialPolicy{instances: c.Instances, networks: c.Networks, host: hostnet.Addresses}
}

// check returns an error if the policy does not allow connections to ip, or if it cannot read this
// machine's addresses.
func (p *dialPolicy) check(ip netip.Addr) error {
	if contains(p.instances, ip) {
		return nil
	}
	if !contains(p.networks, ip) || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return fmt.Errorf("connections to %s are not allowed: the address is in no range of instances or pods of this cloud", ip)
	}
	host, err := p.hostAddresses()
	if err != nil {
		return fmt.Errorf("cannot check whether connections to %s are allowed: %w", ip, err)
	}
	if contains(host, ip) {
		return fmt.Errorf("connections to %s are not allowed: the address belongs to the cloud's own machine", ip)
	}
	return nil
}

func (p *dialPolicy) hostAddresses() ([]netip.Prefix, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); !now.Before(p.until) {
		p.known, p.err = p.host()
		p.until = now.Add(hostFor)
	}
	return p.known, p.err
}

func contains(all []netip.Prefix, ip netip.Addr) bool {
	ip = ip.WithZone("")
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(ip) })
}
