package cloudcli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var repositories = kind[cloudsim.Repository, cloudsim.RepositoryID]{
	kind: cloudsim.KindRepository, noun: "repository", plural: "repositories", command: "repositories", prefix: "repo-",
	sample: "team-a/web",
	id:     func(r cloudsim.Repository) string { return string(r.ID) },
	columns: []cli.Column[cloudsim.Repository]{
		{Head: "ID", Cell: func(r cloudsim.Repository) string { return string(r.ID) }},
		{Head: "NAME", Cell: func(r cloudsim.Repository) string { return r.Name }},
	},
	get:  (*client.Client).GetRepository,
	list: (*client.Client).ListRepositories,
}

func newRepositoriesCommand(c *cli.Connection) *cobra.Command {
	cmd := repositories.groupCommand("Manage the repositories of the image registry", "repository", "repo")
	cmd.AddCommand(
		repositories.listCommand(c),
		repositories.getCommand(c),
		repositories.createCommand(c, "Create a repository",
			func(ctx context.Context, cl *client.Client, name string, labels map[string]string) (cloudsim.Repository, error) {
				req := cloudsim.CreateRepository{Name: name, Labels: labels}
				return cl.CreateRepository(ctx, req)
			}),
		repositories.deleteCommand(c, false, readFirst(repositories, (*client.Client).DeleteRepository)),
	)
	return cmd
}

func newRegistryCommand(c *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: "registry", Short: "Create passwords for the image registry, and show its access decisions",
		Example: `  allinone cloud registry password | docker login -u cloud --password-stdin 127.0.0.1:5000
  allinone cloud registry decisions`,
	}
	cmd.AddCommand(newRegistryPasswordCommand(c), newRegistryDecisionsCommand(c))
	return cmd
}

func newRegistryPasswordCommand(c *cli.Connection) *cobra.Command {
	var req cloudsim.CreateRegistryCredential
	var ttl time.Duration
	var o cli.Output
	cmd := &cobra.Command{
		Use: "password", Short: "Print a password for the registry that is valid for an hour",
		Long: `Print a password for the registry. The password has the permissions of your roles at
the time of use, and expires after --ttl. The user name is ` + cloudsim.RegistryUser + `. With -o json the
output also contains the name of the registry and the expiry time of the password.`,
		Example: `  allinone cloud registry password | crane auth login 127.0.0.1:5000 -u cloud --password-stdin
  allinone cloud registry password --ttl 15m --repository team-a/web --pull-only`,
		Args: cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			if ttl < 0 || ttl%time.Second != 0 {
				return cli.BadFlag("ttl", ttl.String(), "a duration of whole seconds between 15m and 1h")
			}
			req.TTLSeconds = int64(ttl / time.Second)
			cred, err := cl.CreateRegistryCredential(ctx, req)
			if err != nil {
				return err
			}
			if o.Format == cli.FormatJSON || o.Format == cli.FormatYAML {
				return cli.Printer[cloudsim.RegistryCredential]{Output: o, Writer: c.Stdout}.One(cred)
			}
			_, err = fmt.Fprintln(c.Stdout, cred.Password)
			return err
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&ttl, "ttl", time.Hour, "lifetime of the password: 15m to 1h")
	f.StringSliceVar(&req.Repositories, "repository", nil, "repository that the password is valid for; may be repeated (default all)")
	f.BoolVar(&req.PullOnly, "pull-only", false, "make the password valid only for pulls")
	return cmd
}

func newRegistryDecisionsCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "decisions", Aliases: []string{"audit"}, Short: "Show recent access decisions of the registry, with reasons",
		Example: "  allinone cloud registry decisions\n  allinone cloud registry decisions -o json",
		Args:    cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			l, err := cl.ListRegistryDecisions(ctx)
			if err != nil {
				return err
			}
			return cli.Printer[cloudsim.RegistryDecision]{Output: o, Writer: c.Stdout, ID: func(d cloudsim.RegistryDecision) string { return d.RequestID }, Columns: []cli.Column[cloudsim.RegistryDecision]{
				{Head: "TIME", Cell: func(d cloudsim.RegistryDecision) string { return d.Time.Format(time.RFC3339) }},
				{Head: "CALLER", Cell: func(d cloudsim.RegistryDecision) string { return d.Caller }},
				{Head: "OPERATION", Cell: func(d cloudsim.RegistryDecision) string { return d.Operation }},
				{Head: "RESOURCE", Cell: func(d cloudsim.RegistryDecision) string { return d.Resource }},
				{Head: "ALLOWED", Cell: func(d cloudsim.RegistryDecision) string {
					if d.Allowed {
						return "yes"
					}
					return "no"
				}},
				{Head: "REASON", Cell: func(d cloudsim.RegistryDecision) string { return d.Reason }},
			}}.List(l.Items)
		}),
	}
	o.Flags(cmd)
	return cmd
}

var workloadTrusts = kind[cloudsim.WorkloadTrust, cloudsim.WorkloadTrustID]{
	kind: cloudsim.KindWorkloadTrust, noun: "workload trust", plural: "workload trusts", command: "workload-trusts", prefix: "trust-",
	sample: "shop-web",
	id:     func(w cloudsim.WorkloadTrust) string { return string(w.ID) },
	columns: []cli.Column[cloudsim.WorkloadTrust]{
		{Head: "ID", Cell: func(w cloudsim.WorkloadTrust) string { return string(w.ID) }},
		{Head: "NAME", Cell: func(w cloudsim.WorkloadTrust) string { return w.Name }},
		{Head: "WORKLOAD", Cell: func(w cloudsim.WorkloadTrust) string { return w.Namespace + "/" + w.ServiceAccount }},
		{Head: "ACCOUNT", Cell: func(w cloudsim.WorkloadTrust) string { return string(w.Account) }},
		{Head: "AUDIENCE", Cell: func(w cloudsim.WorkloadTrust) string { return w.Audience }},
		{Head: "ISSUER", Wide: true, Cell: func(w cloudsim.WorkloadTrust) string { return w.Issuer }},
	},
	get:  (*client.Client).GetWorkloadTrust,
	list: (*client.Client).ListWorkloadTrusts,
}

func newWorkloadTrustsCommand(c *cli.Connection) *cobra.Command {
	cmd := workloadTrusts.groupCommand("Let Kubernetes service accounts call the cloud as service accounts of the cloud", "workload-trust")
	cmd.AddCommand(
		workloadTrusts.listCommand(c),
		workloadTrusts.getCommand(c),
		newCreateWorkloadTrustCommand(c),
		workloadTrusts.deleteCommand(c, false, readFirst(workloadTrusts, (*client.Client).DeleteWorkloadTrust)),
	)
	return cmd
}

func newCreateWorkloadTrustCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		labels []string
		keys   string
		req    cloudsim.CreateWorkloadTrust
	)
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Let a Kubernetes service account call the cloud as a service account of the cloud",
		Long: `Let a Kubernetes service account call the cloud as a service account of the cloud, with
the tokens that its cluster signs for an audience. The cloud checks these tokens with
the cluster's public keys, without a call to the cluster.`,
		Example: `  kubectl get --raw /openid/v1/jwks >jwks.json
  allinone cloud workload-trusts create shop-web --jwks-file jwks.json --namespace shop --service-account web \
    --issuer https://kubernetes.default.svc.cluster.local --audience registry.cloudsim --account puller`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			raw, err := os.ReadFile(keys)
			if err != nil {
				return cloudsim.Errorf(cloudsim.Invalid, "--jwks-file: %w", err)
			}
			req.Keys = string(raw)
			w, err := cl.CreateWorkloadTrust(ctx, req)
			if err != nil {
				return err
			}
			return workloadTrusts.printer(c, o).One(w)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.StringVar(&req.Issuer, "issuer", "https://kubernetes.default.svc.cluster.local", "issuer of the cluster's tokens")
	f.StringVar(&req.Audience, "audience", "", "required audience of tokens")
	f.StringVar(&keys, "jwks-file", "", "`FILE` with the cluster's public keys")
	f.StringVar(&req.Namespace, "namespace", "", "namespace of the Kubernetes service account")
	f.StringVar(&req.ServiceAccount, "service-account", "", "name of the Kubernetes service account")
	f.StringVar(&req.UID, "uid", "", "UID of the Kubernetes service account; empty for any UID")
	f.StringVar(&req.Account, "account", "", "service account of the cloud (name or id) that the workload authenticates as")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	for _, name := range []string{"audience", "jwks-file", "namespace", "service-account", "account"} {
		_ = cmd.MarkFlagRequired(name) // error only for an unknown flag name
	}
	return cmd
}
