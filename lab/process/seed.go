package process

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/lab"
)

func (p *plan) cloudClient() *client.Client {
	return lab.Administrator(p.ports.url("http", "cloudsim"), p.dir.AdminToken())
}

// tokenFile returns the path of the file with a component's own token.
func (d Dir) tokenFile(component string) string { return d.path("cloud", component+".token") }

// seedCloud creates the objects that the lab needs in its cloud. If an error occurs and no earlier
// start of the lab has created these objects, seedCloud returns the error. If an earlier start has
// created them, seedCloud only shows the error to the user, and the lab starts. The reason is that
// a fault in the cloud can cause the error, and the user needs a running lab to delete this fault.
func (p *plan) seedCloud(ctx context.Context) error {
	m, err := p.dir.memory()
	if err != nil {
		return err
	}
	err = p.seed(ctx, m)
	if err == nil || !m.Seeded || ctx.Err() != nil {
		return err
	}
	p.say("the setup of the cloud failed, possibly because of a fault: %v; the lab uses the accounts of its last start", err)
	return nil
}

func (p *plan) seed(ctx context.Context, m memory) error {
	for _, d := range p.Dialects {
		ensure := lab.EnsureToken
		if d == "aws" {
			ensure = lab.EnsureAccessKey
		}
		if err := ensure(ctx, p.cloudClient(), lab.Account{Name: d, Role: cloudsim.RoleWriter}, p.dir.tokenFile(d)); err != nil {
			return fmt.Errorf("service account of the dialect %s: %w", d, err)
		}
		if tree, ok := p.MetadataTrees[d]; ok {
			_, err := p.cloudClient().SetMetadataTree(ctx, d, cloudsim.SetMetadataTree{MetadataTreeSpec: tree})
			if err != nil && !errors.Is(err, cloudsim.Conflict) { // a conflict means that a metadata tree of the user already has these paths
				return fmt.Errorf("metadata of the dialect %s: %w", d, err)
			}
		}
	}
	if err := lab.Seed(ctx, p.cloudClient(), p.dir.tokenFile, p.Nodes, p.Instances, !m.Seeded); err != nil || m.Seeded {
		return err
	}
	m.Seeded = true
	return p.dir.writeMemory(m)
}
