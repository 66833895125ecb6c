package lab

import (
	"fmt"
	"net"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/credprovider"
	"github.com/cloudsim-dev/allinone/credprovider/node"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// Settings for pulls as a node or as a service account.
const (
	// pullAudience is the audience of the service account tokens that the kubelet
	// presents to the cloud.
	pullAudience = "registry.cloudsim"
	// PullAnnotation is an annotation of a service account. The account's pods then pull
	// images with the account's own identity. The cloud must trust the account: see
	// `allinone cloud workload-trusts`.
	PullAnnotation = "cloudsim.dev/pull-as-itself"
)

// registryName returns host:port of the cloud's registry. With real nodes, the address is
// reachable from machines and from this host. Hollow nodes pull no images, so their
// registry is on loopback, for the user.
func (p *plan) registryName() string {
	at := host
	if p.Nodes == Real {
		at = p.vpc().Host.String()
	}
	return net.JoinHostPort(at, fmt.Sprint(p.ports["registry"]))
}

// registryFlags returns the flag that makes the cloud serve its registry.
func (p *plan) registryFlags() []string { return []string{"--registry-listen=" + p.registryName()} }

// registryFiles returns the files that a machine's kubelet needs to pull from the
// registry, and the RBAC objects for the cluster.
func (p *plan) registryFiles() (map[string][]byte, error) {
	return pullFiles("http://"+net.JoinHostPort(p.vpc().Host.String(), fmt.Sprint(p.ports["cloudsim"])), p.registryName())
}

func pullFiles(cloud, registry string) (map[string][]byte, error) {
	return node.Config{
		Config: credprovider.Config{
			CloudURL: cloud, MetadataURL: client.DefaultMetadataURL, Registries: []string{registry},
			CacheDir: "/var/lib/cloudsim/credprovider", OptInAnnotation: PullAnnotation,
		},
		Dir: real.CredentialDir, Audience: pullAudience, Optional: true,
	}.Files()
}
