package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// Account is the service account of a component. Its role allows only the calls that
// the component makes.
type Account struct {
	Name        string
	Role        cloudsim.RoleName
	AllProjects bool // the role applies in all projects, and to the whole cloud
}

// nodeAccount is the service account of instances that are real machines. The metadata
// service gives these machines the account's identity.
const nodeAccount = "node"

func (n Nodes) componentAccounts() []Account {
	all := []Account{
		{Name: "ccm", Role: cloudsim.RoleCCM}, {Name: "hypervisor", Role: cloudsim.RoleHypervisor},
		{Name: "console", Role: cloudsim.RoleViewer, AllProjects: true},
	}
	if n == Real {
		all = append(all,
			Account{Name: "metadata", Role: cloudsim.RoleMetadata}, Account{Name: "csi", Role: cloudsim.RoleCSI}, Account{Name: "csi-node", Role: cloudsim.RoleCSINode})
	}
	return all
}

// ensureAccount makes sure that a service account exists and has its role.
func ensureAccount(ctx context.Context, c *client.Client, want Account) (cloudsim.ServiceAccount, error) {
	a, err := c.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: want.Name})
	if err != nil {
		return a, err
	}
	_, err = c.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: want.Name, Role: want.Role, ServiceAccount: string(a.ID), AllProjects: want.AllProjects})
	return a, err
}

// EnsureToken makes sure that a service account has its role, and that the given file contains a
// valid token of the account. The cloud returns the secret of a token only once. So if the file
// contains no valid token, EnsureToken deletes the account's tokens and creates a new token.
func EnsureToken(ctx context.Context, c *client.Client, want Account, file string) error {
	a, err := ensureAccount(ctx, c, want)
	if err != nil {
		return err
	}
	if valid, err := isValidCredential(ctx, c, client.TokenFile(file), a.ID); err != nil || valid {
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
	return WriteFile(file, []byte(t.Secret+"\n"))
}

// isValidCredential reports whether a credential is valid, and belongs to the given service
// account.
func isValidCredential(ctx context.Context, c *client.Client, credential func() (string, error), account cloudsim.ServiceAccountID) (bool, error) {
	as := *c
	as.Token, as.Project = credential, ""
	me, err := as.WhoAmI(ctx)
	if errors.Is(err, cloudsim.Unauthenticated) {
		return false, nil
	}
	return err == nil && me.ServiceAccount == account, err
}

// EnsureAccessKey makes sure that a service account has its role, and that the given file is a
// credentials file with a valid access key of the account. If the file contains no valid access
// key, EnsureAccessKey deletes the account's access keys and creates a new access key.
func EnsureAccessKey(ctx context.Context, c *client.Client, want Account, file string) error {
	a, err := ensureAccount(ctx, c, want)
	if err != nil {
		return err
	}
	clock, err := c.GetClock(ctx)
	if err != nil {
		return err
	}
	signature := func() (string, error) {
		raw, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		k := cloudsim.ParseCredentialsFile(string(raw))
		s := cloudsim.Signature{AccessKey: k.ID, Time: clock.Now, Region: "any", Service: "any", Hash: strings.Repeat("0", 64)}
		s.Signature = s.Sign(k.Secret)
		return s.Token(), nil
	}
	if valid, err := isValidCredential(ctx, c, signature, a.ID); err != nil || valid {
		return err
	}
	old, _, err := cloudsim.All(ctx, c.ListAccessKeys, cloudsim.ListOptions{})
	if err != nil {
		return err
	}
	for _, k := range old {
		if k.ServiceAccount != a.ID {
			continue
		}
		if err := c.DeleteAccessKey(ctx, k.ID); err != nil && !errors.Is(err, cloudsim.NotFound) {
			return err
		}
	}
	k, err := c.CreateAccessKey(ctx, cloudsim.CreateAccessKey{ServiceAccount: string(a.ID)})
	if err != nil {
		return err
	}
	return WriteFile(file, []byte(k.CredentialsFile()))
}

// Seed creates the components' service accounts, and writes the token of each account to the path
// that the function tokenFile returns. For real nodes, Seed also creates the nodes' account. If
// withInstances is true, Seed also creates the lab's first instances. After an interruption, the
// caller can call Seed again. Seed then creates only the missing objects.
func Seed(ctx context.Context, c *client.Client, tokenFile func(component string) string, nodes Nodes, instances int, withInstances bool) error {
	for _, a := range nodes.componentAccounts() {
		if err := EnsureToken(ctx, c, a, tokenFile(a.Name)); err != nil {
			return fmt.Errorf("service account of %s: %w", a.Name, err)
		}
	}
	carried := ""
	if nodes == Real {
		carried = nodeAccount
		if _, err := ensureAccount(ctx, c, Account{Name: carried, Role: cloudsim.RoleNode}); err != nil {
			return fmt.Errorf("service account of the nodes: %w", err)
		}
	}
	if !withInstances {
		return nil
	}
	zones, _, err := cloudsim.All(ctx, c.ListZones, cloudsim.ListOptions{})
	if err != nil {
		return err
	}
	if instances > 0 && len(zones) == 0 {
		return errors.New("the cloud has no zone for the first instances: add a zone to the catalogue of the cloud, or start with --instances 0")
	}
	for _, r := range firstInstances(instances, zones, carried) {
		if _, err := c.CreateInstance(ctx, r); err != nil {
			return fmt.Errorf("instance %s: %w", r.Name, err)
		}
	}
	return nil
}

// firstInstances returns requests for n small instances, and distributes the instances over the
// zones. If account is not "", each instance gets this service account.
func firstInstances(n int, zones []cloudsim.Zone, account string) []cloudsim.CreateInstance {
	small := cloudsim.DefaultCatalogue().InstanceTypes[0].Name // each catalogue has this type
	all := make([]cloudsim.CreateInstance, n)
	for i := range all {
		all[i] = cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", i+1), Zone: zones[i%len(zones)].Name, Type: small, ServiceAccount: account}
	}
	return all
}
