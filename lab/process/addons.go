package process

import (
	"context"
	"path/filepath"

	"github.com/cloudsim-dev/allinone/credprovider/node"
	"github.com/cloudsim-dev/allinone/lab"
)

// installAddons applies the objects that the cluster needs at its start, for example the roles of
// the components. The lab calls installAddons each time the API server becomes ready, and then
// starts the components that need a role. Without its role, a component's first request would fail,
// and the component would repeat the request only after some seconds. Only a cluster with real
// nodes gets a name server, because hollow nodes run no containers.
func (p *plan) installAddons(ctx context.Context) error {
	k, err := p.adminClient()
	if err != nil {
		return err
	}
	if err := lab.InstallRoles(ctx, k); err != nil || p.Nodes != lab.Real {
		return err
	}
	pulls, err := p.registryFiles(nil)
	if err != nil {
		return err
	}
	crds := ""
	if p.hasVolumes() {
		crds = filepath.Join(p.CSIDir, "crds")
	}
	return lab.InstallRealAddons(ctx, k, lab.Addons{CRDs: crds, ServeAs: p.ServeAs, Pulls: pulls[node.RBACFile], NameServer: p.vpc().NameServer()})
}
