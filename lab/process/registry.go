package process

import (
	"context"
	"fmt"
	"net"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/credprovider/node"
	"github.com/cloudsim-dev/allinone/lab"
)

// registryName returns host:port of the cloud's registry. With real nodes, the address is reachable
// from machines and from this host. Hollow nodes pull no images, so in a lab with hollow nodes the
// registry is on loopback, where the user can reach it.
func (p *plan) registryName() string {
	at := host
	if p.Nodes == lab.Real {
		at = p.vpc().Host.String()
	}
	return net.JoinHostPort(at, fmt.Sprint(p.ports["registry"]))
}

// registryAliases returns additional host names of the cloud's registry, for all regions. Programs
// that use a dialect (the API of another cloud) expect the registry at these names.
func (p *plan) registryAliases(ctx context.Context) (all []string, err error) {
	if p.RegistryHosts == nil {
		return nil, nil
	}
	me, err := p.hypervisorClient().WhoAmI(ctx)
	if err != nil {
		return nil, err
	}
	regions, _, err := cloudsim.All(ctx, p.cloudClient().ListRegions, cloudsim.ListOptions{})
	for _, r := range regions {
		all = append(all, p.RegistryHosts(me.Project, r.Name)...)
	}
	return all, err
}

// registryFlags returns the flag that makes the cloud serve its registry.
func (p *plan) registryFlags() []string { return []string{"--registry-listen=" + p.registryName()} }

// registryFiles returns the files that a machine's kubelet needs to pull images from the registry.
// The result also contains a file with RBAC objects, which the lab creates in the cluster. The
// strings in aliases are additional host names of the registry.
func (p *plan) registryFiles(aliases []string) (map[string][]byte, error) {
	var ecr *node.ECR
	if p.ECRPlugin != "" {
		ecr = &node.ECR{URL: p.inVPC(dialectPort("aws")), Hosts: aliases}
	}
	return lab.PullFiles(p.inVPC("cloudsim"), p.registryName(), ecr)
}

// inVPC returns the URL at which machines reach a server of the lab. The argument port is the name
// of the server's port, from portNames.
func (p *plan) inVPC(port string) string {
	return "http://" + net.JoinHostPort(p.vpc().Host.String(), fmt.Sprint(p.ports[port]))
}
