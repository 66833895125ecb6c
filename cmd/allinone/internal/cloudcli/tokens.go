package cloudcli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var tokens = kind[cloudsim.Token, cloudsim.TokenID]{
	kind: cloudsim.KindToken, noun: "token", plural: "tokens", command: "tokens", prefix: "tok-",
	sample: "ccm",
	id:     func(t cloudsim.Token) string { return string(t.ID) },
	columns: []cli.Column[cloudsim.Token]{
		{Head: "ID", Cell: func(t cloudsim.Token) string { return string(t.ID) }},
		{Head: "NAME", Cell: func(t cloudsim.Token) string { return t.Name }},
		{Head: "ROLE", Cell: func(t cloudsim.Token) string { return string(t.Role) }},
		{Head: "SERVICE-ACCOUNT", Cell: func(t cloudsim.Token) string { return string(t.ServiceAccount) }},
		{Head: "EXPIRES", Cell: expiresCell},
	},
	get:  (*client.Client).GetToken,
	list: (*client.Client).ListTokens,
}

func expiresCell(t cloudsim.Token) string {
	if t.ExpiresAt == nil {
		return "never"
	}
	return t.ExpiresAt.Local().Format(time.DateTime)
}

func newTokensCommand(c *cli.Connection) *cobra.Command {
	cmd := tokens.groupCommand("Manage the tokens of callers", "token")
	cmd.AddCommand(
		tokens.listCommand(c),
		tokens.getCommand(c),
		newCreateTokenCommand(c),
		tokens.deleteCommand(c, false, readFirst(tokens, (*client.Client).DeleteToken)),
	)
	return cmd
}

func newCreateTokenCommand(c *cli.Connection) *cobra.Command {
	var (
		o          cli.Output
		role       string
		account    string
		ttl        time.Duration
		secretFile string
	)
	cmd := &cobra.Command{
		Use: "create [NAME]", Short: "Create a token; its secret is shown once",
		Long: `Create a token of a service account, or a token with a role in the project of
--project. The cloud shows the secret of the token once. The command prints only the
secret to stdout, or with -o json or -o yaml the whole token. With --secret-file it writes
the secret to a new file that only you can read.`,
		Example: `  allinone cloud tokens create --service-account ccm --secret-file ccm.token
  allinone cloud tokens create guest --role reader --project workshop --ttl 8h`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			req := cloudsim.CreateToken{Role: cloudsim.RoleName(role), ServiceAccount: account, TTLSeconds: int64(ttl / time.Second)}
			if len(args) > 0 {
				req.Name = args[0]
			}
			if ttl < 0 || ttl%time.Second != 0 {
				return cli.BadFlag("ttl", ttl.String(), "a duration of whole seconds, such as 8h, or 0 for a token that does not expire")
			}
			if o.Format == cli.FormatName && secretFile == "" {
				return cloudsim.Errorf(cloudsim.Invalid, "-o name would lose the secret: set --secret-file")
			}
			if secretFile != "" {
				t, err := createInto(tokens, "secret-file", secretFile, func() (t cloudsim.Token, text string, err error) {
					t, err = cl.CreateToken(ctx, req)
					return t, t.Secret + "\n", err
				})
				if err != nil {
					return err
				}
				t.Secret = ""
				return tokens.printer(c, o).One(t)
			}
			t, err := cl.CreateToken(ctx, req)
			if err != nil {
				return err
			}
			if o.Format == cli.FormatJSON || o.Format == cli.FormatYAML {
				return tokens.printer(c, o).One(t)
			}
			fmt.Fprintf(c.Stderr, "token %s (%s) created; this is the only time that its secret is shown:\n", t.ID, t.Name)
			_, err = fmt.Fprintln(c.Stdout, t.Secret)
			return err
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.StringVar(&account, "service-account", "", "service account (name or id) of the token")
	f.StringVar(&role, "role", "", "role of a token without a service account, e.g. writer or reader; see 'allinone cloud roles list'")
	f.DurationVar(&ttl, "ttl", 0, "lifetime of the token, e.g. 8h; 0 for a token that does not expire")
	f.StringVar(&secretFile, "secret-file", "", "new `FILE` for the secret")
	_ = cmd.RegisterFlagCompletionFunc("role", completeNames(c, roles))
	_ = cmd.RegisterFlagCompletionFunc("service-account", completeNames(c, serviceAccounts))
	return cmd
}

// createInto creates a new file at path and then calls createFn. createFn creates a resource, and
// returns the resource and a text with its secret. createInto writes this text into the file. If
// createInto cannot create the file, it does not call createFn, because it could not store the
// secret. If createFn returns an error, createInto removes the file. The user sets path with the
// flag flagName.
func createInto[T cloudsim.Resource, ID ~string](k kind[T, ID], flagName, path string, createFn func() (T, string, error)) (v T, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return v, cloudsim.Errorf(cloudsim.Exists, "--%s %s: the file already exists; choose another path, or remove the file", flagName, path)
	}
	if err != nil {
		return v, fmt.Errorf("--%s: %w", flagName, err)
	}
	v, text, err := createFn()
	if err != nil {
		return v, errors.Join(err, f.Close(), os.Remove(path))
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return v, fmt.Errorf("%[1]s %[2]s is created, but its secret could not be written to the file of --%[3]s: %[4]w; delete the %[1]s %[2]s and create it again", k.noun, k.id(v), flagName, err)
	}
	return v, nil
}
