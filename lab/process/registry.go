package process

import (
	"fmt"
	"github.com/cloudsim-dev/allinone/lab"
	"net"
)

// registryName returns host:port of the cloud's registry. With real nodes, the address is
// reachable from machines and from this host. Hollow nodes pull no images, so their
// registry is on loopback, for the user.
func (p *plan) registryName() string {
	at := host
	if p.Nodes == lab.Real {
		at = p.vpc().Host.String()
	}
	return net.JoinHostPort(at, fmt.Sprint(p.ports["registry"]))
}

// registryFlags returns the flag that makes the cloud serve its registry.
func (p *plan) registryFlags() []string { return []string{"--registry-listen=" + p.registryName()} }

// registryFiles returns the files that a machine's kubelet needs to pull from the
// registry, and the RBAC objects for the cluster.
func (p *plan) registryFiles() (map[string][]byte, error) {
	return lab.PullFiles("http://"+net.JoinHostPort(p.vpc().Host.String(), fmt.Sprint(p.ports["cloudsim"])), p.registryName())
}
