package main

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
)

var projects = kind[cloudsim.Project, cloudsim.ProjectID]{
	kind: cloudsim.KindProject, noun: "project", plural: "projects", command: "projects", prefix: "proj-",
	sample: "workshop",
	id:     func(p cloudsim.Project) string { return string(p.ID) },
	columns: []column[cloudsim.Project]{
		{head: "ID", cell: func(p cloudsim.Project) string { return string(p.ID) }},
		{head: "NAME", cell: func(p cloudsim.Project) string { return p.Name }},
	},
	get:  (*client.Client).GetProject,
	list: (*client.Client).ListProjects,
}

var tokens = kind[cloudsim.Token, cloudsim.TokenID]{
	kind: cloudsim.KindToken, noun: "token", plural: "tokens", command: "tokens", prefix: "tok-",
	sample: "ccm",
	id:     func(t cloudsim.Token) string { return string(t.ID) },
	columns: []column[cloudsim.Token]{
		{head: "ID", cell: func(t cloudsim.Token) string { return string(t.ID) }},
		{head: "NAME", cell: func(t cloudsim.Token) string { return t.Name }},
		{head: "ROLE", cell: func(t cloudsim.Token) string { return string(t.Role) }},
		{head: "EXPIRES", cell: expiresCell},
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

func newProjectsCommand(c *cloudCLI) *cobra.Command {
	cmd := projects.group("What owns resources", "project")
	cmd.AddCommand(
		projects.listCommand(c),
		projects.getCommand(c),
		projects.createCommand(c, "Create a project",
			func(ctx context.Context, cl *client.Client, name string, labels map[string]string) (cloudsim.Project, error) {
				req := cloudsim.CreateProject{Name: name, Labels: labels}
				if err := req.Validate(); err != nil {
					return cloudsim.Project{}, err
				}
				return cl.CreateProject(ctx, req)
			}),
		projects.deleteCommand(c, false, whole(projects, (*client.Client).DeleteProject)),
	)
	return cmd
}

func newTokensCommand(c *cloudCLI) *cobra.Command {
	cmd := tokens.group("What lets callers in", "token")
	cmd.AddCommand(
		tokens.listCommand(c),
		tokens.getCommand(c),
		newCreateTokenCommand(c),
		tokens.deleteCommand(c, false, whole(tokens, (*client.Client).DeleteToken)),
	)
	return cmd
}

var roles = []cloudsim.Role{cloudsim.RoleAdmin, cloudsim.RoleEditor, cloudsim.RoleViewer}

func newCreateTokenCommand(c *cloudCLI) *cobra.Command {
	var (
		o          output
		role       string
		ttl        time.Duration
		secretFile string
	)
	cmd := &cobra.Command{
		Use: "create NAME --role ROLE", Short: "Create a token; its secret is shown once",
		Long: `Create a token for the project chosen by --project, or for your own. The cloud
shows its secret once: it is printed alone on stdout, or written to a new file
that only you can read.`,
		Example: `  allinone cloud tokens create ccm --role editor --secret-file ccm.token
  allinone cloud tokens create guest --role viewer --project workshop --ttl 8h`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			req := cloudsim.CreateToken{Name: args[0], Role: cloudsim.Role(role), TTLSeconds: int64(ttl / time.Second)}
			if ttl < 0 || ttl%time.Second != 0 {
				return badFlag("ttl", ttl.String(), "whole seconds, or 0 for a token that does not expire")
			}
			if err := req.Validate(); err != nil {
				return err
			}
			if o.format == formatName && secretFile == "" {
				return cloudsim.Errorf(cloudsim.Invalid, "-o name would lose the secret: set --secret-file")
			}
			if secretFile != "" {
				return createTokenInto(ctx, cl, req, secretFile, tokens.printer(c, o))
			}
			t, err := cl.CreateToken(ctx, req)
			if err != nil {
				return err
			}
			if o.format == formatJSON || o.format == formatYAML {
				return tokens.printer(c, o).one(t)
			}
			fmt.Fprintf(c.stderr, "token %s (%s) created; this is the only time that its secret is shown:\n", t.ID, t.Name)
			_, err = fmt.Fprintln(c.stdout, t.Secret)
			return err
		}),
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&role, "role", string(cloudsim.RoleEditor), "what it may do: "+join(roles))
	f.DurationVar(&ttl, "ttl", 0, "how long it lives, e.g. 8h; 0 for ever")
	f.StringVar(&secretFile, "secret-file", "", "write the secret to this `FILE`, which must not exist yet")
	_ = cmd.RegisterFlagCompletionFunc("role", fixed(roles...))
	return cmd
}

// createTokenInto makes the file first, so that no token is made whose secret
// has no place to go, and removes it if there is no token.
func createTokenInto(ctx context.Context, cl *client.Client, req cloudsim.CreateToken, path string, p printer[cloudsim.Token]) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return cloudsim.Errorf(cloudsim.Exists, "--secret-file %s: it exists; choose another or remove it first", path)
	}
	if err != nil {
		return fmt.Errorf("--secret-file: %w", err)
	}
	t, err := cl.CreateToken(ctx, req)
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(path))
	}
	_, err = fmt.Fprintln(f, t.Secret)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("token %s is made, but its secret could not be written: %w; delete it", t.ID, err)
	}
	t.Secret = ""
	return p.one(t)
}
