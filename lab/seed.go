package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// project is where a lab's instances and load balancers are.
const project = "default"

// cloudClient is the cloud as its administrator.
func (p *plan) cloudClient() *client.Client {
	return administrator(p.ports.url("http", "cloudsim"), p.dir.AdminToken())
}

func administrator(url, tokenFile string) *client.Client {
	return &client.Client{
		URL: url, HTTP: &http.Client{Timeout: 10 * time.Second},
		Token: client.TokenFile(tokenFile), Project: project, UserAgent: "allinone-up",
	}
}

// tokenFile is where the secret of a component's own token is.
func (d Dir) tokenFile(component string) string { return d.path("cloud", component+".token") }

// account is who a component of the lab is to the cloud, and its role: what it
// calls, and no more.
type account struct {
	name string
	role cloudsim.RoleName
}

// nodeAccount is the account that the lab's instances carry, if they are
// machines: who their metadata service says they are.
const nodeAccount = "node"

// accounts are those of a lab's components.
func (n Nodes) accounts() []account {
	all := []account{{"ccm", cloudsim.RoleCCM}, {"hypervisor", cloudsim.RoleHypervisor}}
	if n == Real {
		all = append(all, account{"metadata", cloudsim.RoleMetadata}, account{"csi", cloudsim.RoleCSI}, account{"csi-node", cloudsim.RoleCSINode})
	}
	return all
}

// seed makes what a lab needs in its cloud.
func (p *plan) seed(ctx context.Context) error {
	return seed(ctx, p.cloudClient(), p.dir, p.dir.tokenFile, p.Nodes, p.Instances)
}

// seed makes, each time, the components' service accounts, whose tokens go where
// tokenFile says; the first time, the instances. Creating an instance is
// idempotent by name, so an interrupted seed is repeated.
func seed(ctx context.Context, c *client.Client, d Dir, tokenFile func(component string) string, nodes Nodes, instances int) error {
	for _, a := range nodes.accounts() {
		if err := ensureToken(ctx, c, a, tokenFile(a.name)); err != nil {
			return fmt.Errorf("service account of %s: %w", a.name, err)
		}
	}
	carried := ""
	if nodes == Real {
		carried = nodeAccount
		if _, err := ensureAccount(ctx, c, account{carried, cloudsim.RoleNode}); err != nil {
			return fmt.Errorf("service account of the nodes: %w", err)
		}
	}
	m, err := d.memory()
	if err != nil || m.Seeded {
		return err
	}
	zones, _, err := cloudsim.All(ctx, c.ListZones, cloudsim.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range firstInstances(instances, zones, carried) {
		if _, err := c.CreateInstance(ctx, r); err != nil {
			return fmt.Errorf("instance %s: %w", r.Name, err)
		}
	}
	m.Seeded = true
	return d.remember(m)
}

// firstInstances are spread over the zones of the cloud, are small, and carry a
// service account, or "".
func firstInstances(n int, zones []cloudsim.Zone, account string) []cloudsim.CreateInstance {
	small := cloudsim.DefaultCatalogue().InstanceTypes[0].Name // which each catalogue has
	all := make([]cloudsim.CreateInstance, n)
	for i := range all {
		all[i] = cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", i+1), Zone: zones[i%len(zones)].Name, Type: small, ServiceAccount: account}
	}
	return all
}

// ensureAccount makes sure that a service account has its role.
func ensureAccount(ctx context.Context, c *client.Client, want account) (cloudsim.ServiceAccount, error) {
	a, err := c.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: want.name})
	if err != nil {
		return a, err
	}
	_, err = c.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: want.name, Role: want.role, ServiceAccount: string(a.ID)})
	return a, err
}

// ensureToken makes sure that a service account has its role, and that file
// holds a token of it which the cloud takes. The cloud shows a secret once: if
// the file is lost, or was not yet written when we died, there is a new token,
// and those before are revoked.
func ensureToken(ctx context.Context, c *client.Client, want account, file string) error {
	a, err := ensureAccount(ctx, c, want)
	if err != nil {
		return err
	}
	as := *c
	as.Token, as.Project = client.TokenFile(file), ""
	if me, err := as.WhoAmI(ctx); err == nil && me.ServiceAccount == a.ID {
		return nil
	} else if err != nil && !errors.Is(err, cloudsim.Unauthenticated) {
		return err
	}
	old, _, err := cloudsim.All(ctx, c.ListTokens, cloudsim.ListOptions{})
	if err != nil {
		return err
	}
	for _, t := range old {
		if t.ServiceAccount != a.ID {
			continue
		}
		if err := c.DeleteToken(ctx, t.ID); err != nil && !errors.Is(err, cloudsim.NotFound) {
			return err
		}
	}
	t, err := c.CreateToken(ctx, cloudsim.CreateToken{ServiceAccount: string(a.ID)})
	if err != nil {
		return err
	}
	return writeFile(file, []byte(t.Secret+"\n"))
}
