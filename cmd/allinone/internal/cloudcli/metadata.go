package cloudcli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func newCloudMetadataCommand(c *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: "metadata", Short: "Show the metadata of instances, and announce notices",
		Long: `Show the data that the metadata service returns to instances, and announce or withdraw
notices. 'allinone metadata' runs this service.`,
		Example: `  allinone cloud metadata show node-1
  allinone cloud metadata announce node-1 preemption --in 2m
  allinone cloud metadata identity node-1 --audience vault --claims`,
	}
	cmd.AddCommand(
		newShowMetadataCommand(c), newShowUserDataCommand(c), newShowIdentityCommand(c),
		newAnnounceCommand(c), newWithdrawCommand(c),
	)
	return cmd
}

type pathValue struct {
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func newShowMetadataCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "show INSTANCE", Short: "Show the metadata of an instance, path by path",
		Long: `Show the metadata of an instance, path by path. User data and identity documents
have commands of their own.`,
		Example: "  allinone cloud metadata show node-1\n  allinone cloud metadata show node-1 -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, instances)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			i, err := instances.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			p := cli.Printer[pathValue]{Output: o, Writer: c.Stdout, ID: func(v pathValue) string { return v.Path }, Columns: []cli.Column[pathValue]{
				{Head: "PATH", Cell: func(v pathValue) string { return v.Path }},
				{Head: "VALUE", Cell: func(v pathValue) string { return valueCell(v.Value) }},
			}}
			var all []pathValue
			for path, v := range metadata.Of(i).All() {
				all = append(all, pathValue{path, v})
			}
			return p.List(all)
		}),
	}
	o.Flags(cmd)
	return cmd
}

func valueCell(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func newShowUserDataCommand(c *cli.Connection) *cobra.Command {
	return &cobra.Command{
		Use: "user-data INSTANCE", Short: "Print the user data of an instance",
		Example: "  allinone cloud metadata user-data node-1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, instances)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			i, err := instances.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			d, err := cl.GetUserData(ctx, i.ID)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.Stdout, d.UserData)
			return err
		}),
	}
}

func newShowIdentityCommand(c *cli.Connection) *cobra.Command {
	var req cloudsim.CreateIdentityDocument
	var claims bool
	cmd := &cobra.Command{
		Use: "identity INSTANCE --audience AUDIENCE", Short: "Print a signed identity document of an instance",
		Long: `Print a new identity document of an instance, signed by the cloud. The instance gets
the same kind of document from its metadata service. The document is a JSON Web Token.
The recipient verifies the document with the key set that the cloud publishes at
/.well-known/jwks.json.`,
		Example: `  allinone cloud metadata identity node-1 --audience vault
  allinone cloud metadata identity node-1 --audience vault --claims`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, instances)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			i, err := instances.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			doc, err := cl.CreateIdentityDocument(ctx, i.ID, req)
			if err != nil {
				return err
			}
			shown := doc.Token
			if claims {
				if shown, err = payload(doc.Token); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintln(c.Stdout, shown)
			return err
		}),
	}
	cmd.Flags().StringVar(&req.Audience, "audience", "", "audience of the document")
	cmd.Flags().BoolVar(&claims, "claims", false, "print the claims as JSON, instead of the token")
	_ = cmd.MarkFlagRequired("audience")
	return cmd
}

// payload returns the payload of a JSON Web Token as indented JSON. It does not verify the
// signature, because it gets the token directly from the cloud.
func payload(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", cloudsim.Errorf(cloudsim.Internal, "the identity document from the cloud is not a JSON Web Token of three parts")
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", err
	}
	pretty, err := json.MarshalIndent(v, "", "  ")
	return string(pretty), err
}

func newAnnounceCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var in time.Duration
	cmd := &cobra.Command{
		Use: "announce INSTANCE TYPE", Short: "Announce maintenance or preemption to an instance",
		Long: `Announce maintenance or preemption to an instance. The instance reads the notice from
its metadata service. At the announced time, maintenance reboots the instance, and
preemption terminates it. A second notice of the same type replaces the first.`,
		Example: `  allinone cloud metadata announce node-1 preemption --in 2m
  allinone cloud metadata announce node-1 maintenance --in 1h`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: inOrder(completeNames(c, instances), cli.Fixed(cloudsim.NoticeTypes()...)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			if in < 0 || in%time.Second != 0 {
				return cli.BadFlag("in", in.String(), "a duration of whole seconds from now, e.g. 2m")
			}
			req := cloudsim.CreateNotice{Type: cloudsim.NoticeType(args[1]), InSeconds: int64(in / time.Second)}
			i, err := instances.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			i, err = cl.AnnounceNotice(ctx, i.ID, req)
			if err != nil {
				return err
			}
			return noticePrinter(c, o).One(i)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().DurationVar(&in, "in", 2*time.Minute, "time from now until the action")
	return cmd
}

func newWithdrawCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "withdraw INSTANCE TYPE", Short: "Withdraw a notice before its time",
		Example: "  allinone cloud metadata withdraw node-1 preemption",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: inOrder(completeNames(c, instances), cli.Fixed(cloudsim.NoticeTypes()...)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			t := cloudsim.NoticeType(args[1])
			i, err := instances.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			if i, err = cl.WithdrawNotice(ctx, i.ID, t); err != nil {
				return err
			}
			return noticePrinter(c, o).One(i)
		}),
	}
	o.Flags(cmd)
	return cmd
}

// noticePrinter returns a printer for instances. The table of the printer has a column for the
// maintenance and preemption notices of each instance.
func noticePrinter(c *cli.Connection, o cli.Output) cli.Printer[cloudsim.Instance] {
	p := instances.printer(c, o)
	p.Columns = []cli.Column[cloudsim.Instance]{
		{Head: "ID", Cell: func(i cloudsim.Instance) string { return string(i.ID) }},
		{Head: "NAME", Cell: func(i cloudsim.Instance) string { return i.Name }},
		{Head: "STATE", Cell: func(i cloudsim.Instance) string { return string(i.State) }},
		{Head: "NOTICES", Cell: func(i cloudsim.Instance) string {
			var words []string
			for _, n := range i.Notices {
				words = append(words, string(n.Type)+"@"+n.At.Format(time.RFC3339))
			}
			return strings.Join(words, ",")
		}},
	}
	return p
}
