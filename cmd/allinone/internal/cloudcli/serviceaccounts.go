package cloudcli

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var serviceAccounts = kind[cloudsim.ServiceAccount, cloudsim.ServiceAccountID]{
	kind: cloudsim.KindServiceAccount, noun: "service account", plural: "service accounts", command: "service-accounts", prefix: "sa-",
	sample: "ccm",
	id:     func(a cloudsim.ServiceAccount) string { return string(a.ID) },
	columns: []cli.Column[cloudsim.ServiceAccount]{
		{Head: "ID", Cell: func(a cloudsim.ServiceAccount) string { return string(a.ID) }},
		{Head: "NAME", Cell: func(a cloudsim.ServiceAccount) string { return a.Name }},
		{Head: "DESCRIPTION", Cell: func(a cloudsim.ServiceAccount) string { return a.Description }},
	},
	get:  (*client.Client).GetServiceAccount,
	list: (*client.Client).ListServiceAccounts,
}

func newServiceAccountsCommand(c *cli.Connection) *cobra.Command {
	cmd := serviceAccounts.groupCommand("Manage the identities of programs", "service-account", "sa")
	cmd.Long = `Manage the identities of programs. The roles of a service account define its
permissions. A program calls the cloud with a token of its service account. The token
can be short-lived.`
	cmd.Example = `  allinone cloud service-accounts create ci --role registry-reader
  allinone cloud tokens create --service-account ci --ttl 1h --secret-file ci.token
  allinone cloud --token-file ci.token whoami`
	cmd.AddCommand(
		serviceAccounts.listCommand(c),
		serviceAccounts.getCommand(c),
		newCreateServiceAccountCommand(c),
		serviceAccounts.deleteCommand(c, false, readFirst(serviceAccounts, (*client.Client).DeleteServiceAccount)),
	)
	return cmd
}

func newCreateServiceAccountCommand(c *cli.Connection) *cobra.Command {
	var (
		o       cli.Output
		labels  []string
		granted []string
		req     cloudsim.CreateServiceAccount
	)
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a service account",
		Long: `Create a service account. The account has no permissions until it gets a role. --role
creates a role binding in the project of the account. The name of the binding consists
of the names of the account and the role.`,
		Example: `  allinone cloud service-accounts create ccm --role ccm
  allinone cloud service-accounts create ci --role registry-writer --role reader --project workshop`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			made, err := cl.CreateServiceAccount(ctx, req)
			if err != nil {
				return err
			}
			in := *cl
			in.Project = made.Project
			for i, role := range granted {
				if _, err := in.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{
					Name: bindingName(made.Name, role), Role: cloudsim.RoleName(role), ServiceAccount: string(made.ID),
				}); err != nil {
					return fmt.Errorf("service account %s is created, but these roles are not granted: %s: %w; grant each role with 'allinone cloud role-bindings create'", made.ID, strings.Join(granted[i:], ", "), err)
				}
			}
			return serviceAccounts.printer(c, o).One(made)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	f.StringSliceVar(&granted, "role", nil, "`ROLE` to grant to the service account in its project; may be repeated")
	f.StringVar(&req.Description, "description", "", "purpose of the service account")
	_ = cmd.RegisterFlagCompletionFunc("role", completeNames(c, roles))
	return cmd
}

// bindingName returns the name ACCOUNT-ROLE for the role binding that gives a role to an account.
// If this name is too long, bindingName shortens it and appends a part of the hash of the full
// name.
func bindingName(account, role string) string {
	name := account + "-" + role
	if len(name) <= cloudsim.MaxNameLength {
		return name
	}
	hash := fmt.Sprintf("-%x", sha256.Sum256([]byte(name)))[:9]
	return name[:cloudsim.MaxNameLength-len(hash)] + hash
}
