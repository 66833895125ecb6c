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

// project is the cloud project of a lab's instances and load balancers.
const project = "default"

// cloudClient returns a client with the administrator's token.
func (p *plan) cloudClient() *client.Client {
	return administrator(p.ports.url("http", "cloudsim"), p.dir.AdminToken())
}

func administrator(url, tokenFile string) *client.Client {
	return &client.Client{
		URL: url, HTTP: &http.Client{Timeout: 10 * time.Second},
		Token: client.TokenFile(tokenFile), Project: project, UserAgent: "allinone-up",
	}
}

// tokenFile returns the path of a component's own token.
func (d Dir) tokenFile(component string) string { return d.path("cloud", component+".token") }

// account is the service account of a component. Its role allows only the calls that
// the component makes.
type account struct {
	name string
	role cloudsim.RoleName
}

// nodeAccount is the service account of instances that are real machines. The metadata
// service gives these machines the account's identity.
const nodeAccount = "node"

// accounts returns the accounts of a lab's components.
func (n Nodes) accounts() []account {
	all := []account{{"ccm", cloudsim.RoleCCM}, {"hypervisor", cloudsim.RoleHypervisor}}
	if n == Real {
		all = append(all, account{"metadata", cloudsim.RoleMetadata}, account{"csi", cloudsim.RoleCSI}, account{"csi-node", cloudsim.RoleCSINode})
	}
	return all
}

// seed creates the objects that the lab needs in its cloud.
func (p *plan) seed(ctx context.Context) error {
	return seed(ctx, p.cloudClient(), p.dir, p.dir.tokenFile, p.Nodes, p.Instances)
}

// seed creates the components' service accounts on each start, and writes their tokens
// to the files that tokenFile names. It creates the instances on the first start only.
// Creation of an instance is idempotent by name, so an interrupted seed can run again.
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
	if instances > 0 && len(zones) == 0 {
		return errors.New("the cloud has no zone for the first instances: create a zone, or start with --instances 0")
	}
	for _, r := range firstInstances(instances, zones, carried) {
		if _, err := c.CreateInstance(ctx, r); err != nil {
			return fmt.Errorf("instance %s: %w", r.Name, err)
		}
	}
	m.Seeded = true
	return d.remember(m)
}

// firstInstances returns requests for n small instances. The requests spread the
// instances over the zones. Each instance gets the service account if account is not
// "".
func firstInstances(n int, zones []cloudsim.Zone, account string) []cloudsim.CreateInstance {
	small := cloudsim.DefaultCatalogue().InstanceTypes[0].Name // each catalogue has this type
	all := make([]cloudsim.CreateInstance, n)
	for i := range all {
		all[i] = cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", i+1), Zone: zones[i%len(zones)].Name, Type: small, ServiceAccount: account}
	}
	return all
}

// ensureAccount makes sure that a service account exists and has its role.
func ensureAccount(ctx context.Context, c *client.Client, want account) (cloudsim.ServiceAccount, error) {
	a, err := c.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: want.name})
	if err != nil {
		return a, err
	}
	_, err = c.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: want.name, Role: want.role, ServiceAccount: string(a.ID)})
	return a, err
}

// ensureToken makes sure that a service account has its role, and that the file at the
// path in the argument file contains a valid token of the account. The cloud shows the
// secret of a token only once. If the file is lost, or the process died before it wrote
// the file, ensureToken creates a new token and revokes the account's older tokens.
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
