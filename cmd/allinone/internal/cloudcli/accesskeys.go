package cloudcli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var accessKeys = kind[cloudsim.AccessKey, cloudsim.AccessKeyID]{
	kind: cloudsim.KindAccessKey, noun: "access key", plural: "access keys", command: "access-keys", prefix: "ak-",
	sample: "ccm",
	id:     func(k cloudsim.AccessKey) string { return string(k.ID) },
	columns: []cli.Column[cloudsim.AccessKey]{
		{Head: "ID", Cell: func(k cloudsim.AccessKey) string { return string(k.ID) }},
		{Head: "NAME", Cell: func(k cloudsim.AccessKey) string { return k.Name }},
		{Head: "SERVICE-ACCOUNT", Cell: func(k cloudsim.AccessKey) string { return string(k.ServiceAccount) }},
	},
	get:  (*client.Client).GetAccessKey,
	list: (*client.Client).ListAccessKeys,
}

func newAccessKeysCommand(c *cli.Connection) *cobra.Command {
	cmd := accessKeys.groupCommand("Manage the access keys of service accounts, which sign requests", "access-key", "ak")
	cmd.AddCommand(
		accessKeys.listCommand(c),
		accessKeys.getCommand(c),
		newCreateAccessKeyCommand(c),
		accessKeys.deleteCommand(c, false, readFirst(accessKeys, (*client.Client).DeleteAccessKey)),
	)
	return cmd
}

func newCreateAccessKeyCommand(c *cli.Connection) *cobra.Command {
	var (
		o    cli.Output
		req  cloudsim.CreateAccessKey
		file string
	)
	cmd := &cobra.Command{
		Use: "create [NAME]", Short: "Create an access key; its secret is shown once",
		Long: `Create an access key of a service account. The AWS CLI and the AWS SDKs sign their
requests with an access key. The cloud shows the secret of the key once. The command
prints a shared credentials file to stdout (with -o json or -o yaml, the access key). With
--credentials-file it writes the credentials to a new file that only you can read.
The AWS CLI and the SDKs read the path of this file from the environment variable
AWS_SHARED_CREDENTIALS_FILE.`,
		Example: `  allinone cloud access-keys create --service-account ccm --credentials-file aws.credentials`,
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			if len(args) > 0 {
				req.Name = args[0]
			}
			if o.Format == cli.FormatName && file == "" {
				return cloudsim.Errorf(cloudsim.Invalid, "-o name would lose the secret: set --credentials-file")
			}
			if file != "" {
				k, err := createInto(accessKeys, "credentials-file", file, func() (k cloudsim.AccessKey, text string, err error) {
					k, err = cl.CreateAccessKey(ctx, req)
					return k, k.CredentialsFile(), err
				})
				if err != nil {
					return err
				}
				k.Secret = ""
				return accessKeys.printer(c, o).One(k)
			}
			k, err := cl.CreateAccessKey(ctx, req)
			if err != nil {
				return err
			}
			if o.Format == cli.FormatJSON || o.Format == cli.FormatYAML {
				return accessKeys.printer(c, o).One(k)
			}
			fmt.Fprintf(c.Stderr, "access key %s (%s) created; this is the only time that its secret is shown:\n", k.ID, k.Name)
			_, err = fmt.Fprint(c.Stdout, k.CredentialsFile())
			return err
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.StringVar(&req.ServiceAccount, "service-account", "", "service account (name or id) that signs with the access key")
	f.StringVar(&file, "credentials-file", "", "new `FILE` for the id and the secret")
	_ = cmd.MarkFlagRequired("service-account")
	_ = cmd.RegisterFlagCompletionFunc("service-account", completeNames(c, serviceAccounts))
	return cmd
}
