package cloudcli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var roles = kind[cloudsim.Role, cloudsim.RoleName]{
	kind: cloudsim.KindRole, noun: "role", plural: "roles", command: "roles",
	sample: "ccm",
	id:     func(r cloudsim.Role) string { return r.Name },
	columns: []cli.Column[cloudsim.Role]{
		{Head: "NAME", Cell: func(r cloudsim.Role) string { return r.Name }},
		{Head: "PREDEFINED", Cell: func(r cloudsim.Role) string { return yesNo(r.Predefined) }},
		{Head: "DESCRIPTION", Cell: func(r cloudsim.Role) string { return r.Description }},
		{Head: "PERMISSIONS", Wide: true, Cell: func(r cloudsim.Role) string { return cli.Join(r.Permissions) }},
	},
	get:  (*client.Client).GetRole,
	list: (*client.Client).ListRoles,
}

var roleBindings = kind[cloudsim.RoleBinding, cloudsim.RoleBindingID]{
	kind: cloudsim.KindRoleBinding, noun: "role binding", plural: "role bindings", command: "role-bindings", prefix: "binding-",
	sample: "ci-pulls",
	id:     func(b cloudsim.RoleBinding) string { return string(b.ID) },
	columns: []cli.Column[cloudsim.RoleBinding]{
		{Head: "ID", Cell: func(b cloudsim.RoleBinding) string { return string(b.ID) }},
		{Head: "NAME", Cell: func(b cloudsim.RoleBinding) string { return b.Name }},
		{Head: "ROLE", Cell: func(b cloudsim.RoleBinding) string { return string(b.Role) }},
		{Head: "SERVICE-ACCOUNT", Cell: func(b cloudsim.RoleBinding) string { return string(b.ServiceAccount) }},
		{Head: "RESOURCE", Cell: func(b cloudsim.RoleBinding) string { return orAll(b.Resource) }},
	},
	get:  (*client.Client).GetRoleBinding,
	list: (*client.Client).ListRoleBindings,
}

func orAll(s string) string {
	if s == "" {
		return "all"
	}
	return s
}

func newRolesCommand(c *cli.Connection) *cobra.Command {
	cmd := roles.groupCommand("Manage roles, which are lists of permissions", "role")
	cmd.AddCommand(
		roles.listCommand(c),
		roles.getCommand(c),
		newCreateRoleCommand(c),
		roles.deleteCommand(c, false, readFirst(roles, (*client.Client).DeleteRole)),
	)
	return cmd
}

func newCreateRoleCommand(c *cli.Connection) *cobra.Command {
	var (
		o           cli.Output
		labels      []string
		permissions []string
		req         cloudsim.CreateRole
	)
	cmd := &cobra.Command{
		Use: "create NAME --permission PATTERN...", Short: "Create a role",
		Long: `Create a role. A permission is the id of an operation, in which * matches any
characters. The permissions @read and @write cover the operations that read or change the
resources of a project, except operations on access rights, such as tokens and role
bindings. 'allinone cloud faults targets' lists the operations. The list omits the
operations whose ids begin with faults, holds, durations, states, clock or why.`,
		Example: `  allinone cloud roles create disk-keeper --permission 'disks.*' --permission instances.get
  allinone cloud roles create auditor --permission @read --permission '*.list'`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			for _, p := range permissions {
				req.Permissions = append(req.Permissions, cloudsim.Permission(p))
			}
			made, err := cl.CreateRole(ctx, req)
			if err != nil {
				return err
			}
			return roles.printer(c, o).One(made)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	f.StringSliceVar(&permissions, "permission", nil, "`PATTERN` of permitted operations; may be repeated")
	f.StringVar(&req.Description, "description", "", "purpose of the role")
	return cmd
}

func newRoleBindingsCommand(c *cli.Connection) *cobra.Command {
	cmd := roleBindings.groupCommand("Assign roles to service accounts", "role-binding", "bindings")
	cmd.AddCommand(
		roleBindings.listCommand(c),
		roleBindings.getCommand(c),
		newCreateRoleBindingCommand(c),
		roleBindings.deleteCommand(c, false, readFirst(roleBindings, (*client.Client).DeleteRoleBinding)),
	)
	return cmd
}

func newCreateRoleBindingCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		labels []string
		req    cloudsim.CreateRoleBinding
	)
	cmd := &cobra.Command{
		Use: "create NAME --role ROLE --service-account ACCOUNT", Short: "Grant a role to a service account",
		Long: `Grant a role to a service account, in the project of --project or in all projects.
With --resource the role applies only to resources with these names or ids.`,
		Example: `  allinone cloud role-bindings create ci-pulls --role registry-reader --service-account ci --resource 'team-a/*'
  allinone cloud role-bindings create watcher --role reader --service-account monitor --all-projects`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			made, err := cl.CreateRoleBinding(ctx, req)
			if err != nil {
				return err
			}
			return roleBindings.printer(c, o).One(made)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	f.StringVar((*string)(&req.Role), "role", "", "`ROLE` to grant")
	f.StringVar(&req.ServiceAccount, "service-account", "", "service account (name or id) that gets the role")
	f.StringVar(&req.Resource, "resource", "", "name or id of the resources that the role applies to; * matches any characters (default all)")
	f.BoolVar(&req.AllProjects, "all-projects", false, "grant the role in all projects, and for operations on the whole cloud")
	_ = cmd.RegisterFlagCompletionFunc("role", completeNames(c, roles))
	_ = cmd.RegisterFlagCompletionFunc("service-account", completeNames(c, serviceAccounts))
	return cmd
}

func newWhoAmICommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "whoami", Short: "Show your identity and permissions",
		Example: "  allinone cloud whoami\n  allinone cloud whoami --token-file ci.token -o yaml",
		Args:    cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			me, err := cl.WhoAmI(ctx)
			if err != nil {
				return err
			}
			return cli.Printer[cloudsim.Identity]{Output: o, Writer: c.Stdout, ID: func(i cloudsim.Identity) string { return i.Caller }, Columns: []cli.Column[cloudsim.Identity]{
				{Head: "CALLER", Cell: func(i cloudsim.Identity) string { return i.Caller }},
				{Head: "SERVICE-ACCOUNT", Cell: func(i cloudsim.Identity) string { return string(i.ServiceAccount) }},
				{Head: "PROJECT", Cell: func(i cloudsim.Identity) string { return orAll(string(i.Project)) }},
				{Head: "ROLES", Cell: grantsCell},
			}}.One(me)
		}),
	}
	o.Flags(cmd)
	return cmd
}

// grantsCell returns the roles of a caller. If a role applies only to some resources, grantsCell
// adds these resources. If a role applies to a project that is not the caller's project, grantsCell
// adds this project.
func grantsCell(i cloudsim.Identity) string {
	var all []string
	for _, g := range i.Grants {
		word := string(g.Role)
		if g.Project != i.Project {
			word += "@" + orAll(string(g.Project))
		}
		if g.Resource != "" {
			word += ":" + g.Resource
		}
		all = append(all, word)
	}
	return strings.Join(all, ",")
}
