package process

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/lab"
)

// cloudClient returns a client with the administrator's token.
func (p *plan) cloudClient() *client.Client {
	return lab.Administrator(p.ports.url("http", "cloudsim"), p.dir.AdminToken())
}

// tokenFile returns the path of a component's own token.
func (d Dir) tokenFile(component string) string { return d.path("cloud", component+".token") }

// seed creates the objects that the lab needs in its cloud.
func (p *plan) seed(ctx context.Context) error {
	m, err := p.dir.memory()
	if err != nil {
		return err
	}
	if err := lab.Seed(ctx, p.cloudClient(), p.dir.tokenFile, p.Nodes, p.Instances, !m.Seeded); err != nil || m.Seeded {
		return err
	}
	m.Seeded = true
	return p.dir.remember(m)
}
