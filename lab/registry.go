package lab

import (
	"fmt"
	"net"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/credprovider"
	"github.com/cloudsim-dev/allinone/credprovider/node"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// How pods pull: as their node, or as themselves.
const (
	// pullAudience is what tokens of service accounts are for that the kubelet
	// shows to the cloud.
	pullAudience = "registry.cloudsim"
	// PullAnnotation is the annotation of a service account whose pods pull as
	// itself. The cloud must trust it: see `allinone cloud workload-trusts`.
	PullAnnotation = "cloudsim.dev/pull-as-itself"
)

// registryName is host:port of the cloud's registry: an address that machines
// and this host reach alike. Hollow nodes pull nothing; theirs is on loopback,
// for people.
func (p *plan) registryName() string {
	at := host
	if p.Nodes == Real {
		at = p.vpc().Host.String()
	}
	return net.JoinHostPort(at, fmt.Sprint(p.ports["registry"]))
}

// registryFlags make the cloud serve it.
func (p *plan) registryFlags() []string { return []string{"--registry-listen=" + p.registryName()} }

// registryFiles are what a machine's kubelet needs to pull from it, and what
// the cluster needs for that.
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
