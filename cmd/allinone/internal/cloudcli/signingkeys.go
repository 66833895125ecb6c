package cloudcli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var signingKeys = kind[cloudsim.SigningKey, cloudsim.SigningKeyID]{
	kind: cloudsim.KindSigningKey, noun: "signing key", plural: "signing keys", command: "signing-keys", prefix: "key-",
	sample: "key-000001",
	id:     func(k cloudsim.SigningKey) string { return string(k.ID) },
	state:  func(k cloudsim.SigningKey) string { return string(k.State) },
	columns: []cli.Column[cloudsim.SigningKey]{
		{Head: "ID", Cell: func(k cloudsim.SigningKey) string { return string(k.ID) }},
		{Head: "USE", Cell: func(k cloudsim.SigningKey) string { return string(k.Use) }},
		{Head: "STATE", Cell: func(k cloudsim.SigningKey) string { return string(k.State) }},
		{Head: "RETIRES", Cell: retiresCell},
	},
	get:  (*client.Client).GetSigningKey,
	list: (*client.Client).ListSigningKeys,
}

func retiresCell(k cloudsim.SigningKey) string {
	if k.RetiresAt == nil {
		return "-"
	}
	return k.RetiresAt.Local().Format(time.DateTime)
}

func newSigningKeysCommand(c *cli.Connection) *cobra.Command {
	cmd := signingKeys.groupCommand("Manage the keys that sign identity documents, and passwords and tokens of the registry", "signing-key")
	cmd.AddCommand(
		signingKeys.listCommand(c),
		signingKeys.getCommand(c),
		newRotateCommand(c),
		signingKeys.deleteCommand(c, false, readFirst(signingKeys, (*client.Client).DeleteSigningKey)),
	)
	return cmd
}

func newRotateCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var overlap time.Duration
	cmd := &cobra.Command{
		Use: "rotate USE", Short: "Create a new key and retire the previous key",
		Long: `Create a new key. A key with the USE identity signs identity documents, and a key with
the USE registry signs registry passwords. The previous key no longer signs, and its
signatures stay valid for the overlap. Identity documents and registry passwords are
valid for 1h. If the overlap is shorter, the cloud refuses identity documents or passwords
that have not expired.`,
		Example: `  allinone cloud signing-keys rotate registry --overlap 1h
  allinone cloud signing-keys rotate identity --overlap 0s   # after a leak: all signatures of the old key are invalid`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(cli.Fixed(cloudsim.KeyUses()...)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			if overlap < 0 || overlap%time.Second != 0 {
				return cli.BadFlag("overlap", overlap.String(), "whole seconds, e.g. 1h")
			}
			req := cloudsim.RotateSigningKey{Use: cloudsim.KeyUse(args[0]), OverlapSeconds: int64(overlap / time.Second)}
			k, err := cl.RotateSigningKey(ctx, req)
			if err != nil {
				return err
			}
			return signingKeys.printer(c, o).One(k)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().DurationVar(&overlap, "overlap", time.Hour, "time for which signatures of the previous key stay valid")
	return cmd
}
