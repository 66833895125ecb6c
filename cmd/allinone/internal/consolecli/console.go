// Package consolecli contains the commands of the web console.
package consolecli

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/console"
	"github.com/cloudsim-dev/allinone/console/kube"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// defaultListen is the default address of a console that runs in a separate process.
const defaultListen = "127.0.0.1:8179"

// redirectLife is the time after which openBrowser removes its file. This file redirects the
// browser to the console. A browser reads the file at its start, so this time is long enough.
const redirectLife = 10 * time.Second

type consoleFlags struct {
	cli.Connection
	listen, kubeconfig string
	hosts              []string
	logFormat          logging.Format
	verbose            bool
}

// NewConsoleCommand returns the command "allinone console".
func NewConsoleCommand(e cli.Env) *cobra.Command {
	f := consoleFlags{Connection: cli.Connection{Env: e}, logFormat: logging.Text}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve the web console, or print a link to it",
		Long: `Serve the web console of a cloud. Every cloud also serves its own console at the path
/console/ of its URL, but that console does not know a cluster.

With --kubeconfig, the console shows the cluster beside the cloud and marks the
differences. It needs the permission to list and watch nodes, pods, services,
persistentvolumes and volumeattachments. With --data-dir, the console also shows the
logs of the lab's components and real nodes.

The console reads the cloud for all viewers with the token of --token-file. Each viewer
makes calls with its own token, and sees only the resources that this token may read.`,
		Example: `  # Open the console of the running lab
  allinone console open

  # A console for a cloud and a cluster
  allinone console --cloud-url http://127.0.0.1:8180 --token-file admin.token --kubeconfig ~/.kube/config &
  allinone console link --console-url http://127.0.0.1:8179`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), logging.New(e.Stderr, logging.Level(f.verbose), f.logFormat))
		},
	}
	f.ConnectionFlags(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", defaultListen, "address to listen on, HOST:PORT; port 0 chooses a free port")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty: the console shows only the cloud")
	fl.StringSliceVar(&f.hosts, "console-host", nil, "additional host name in the URL of the console; may be repeated")
	fl.Var(&f.logFormat, "log-format", "log format: text or json")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "verbose logging")
	cmd.AddCommand(newLinkCommand(&f.Connection, "open", "Open the console in a browser"), newLinkCommand(&f.Connection, "link", "Print a link to the console"))
	return cmd
}

func (f *consoleFlags) run(ctx context.Context, log *slog.Logger) error {
	cl, err := f.Client()
	if err != nil {
		return err
	}
	if cl.Token == nil {
		return cloudsim.Errorf(cloudsim.Unauthenticated, "the console needs a token of the cloud: set --token-file")
	}
	cl.Project = cmp.Or(cl.Project, "*")
	cl.UserAgent = "console/" + cli.Version()
	cfg := console.Config{Cloud: cl}
	if f.DataDir != "" {
		if cfg.Logs, err = logsOf(f.DataDir); err != nil {
			return err
		}
	}
	if f.kubeconfig != "" {
		w, err := kube.New(log, f.kubeconfig, cl.UserAgent)
		if err != nil {
			return err
		}
		cfg.Cluster = w.Run
	}
	c := console.New(log, cfg)
	h, err := c.Standalone()
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	log.Info("console is up", "url", "http://"+ln.Addr().String()+"/console/", "cloud", cl.URL)
	return run.All(ctx, c.Run, func(ctx context.Context) error {
		return httpapi.Serve(ctx, ln, httpapi.CheckHost(h, f.hosts...), run.Limits{})
	})
}

type linkFlags struct {
	url      string
	readOnly bool
	ttl      time.Duration
}

func newLinkCommand(c *cli.Connection, name, short string) *cobra.Command {
	var f linkFlags
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long: short + `. One browser can sign in with the link, once, within two minutes. The
link of an administrator without --project can change everything. With --project, the
link can change the resources of one project. With --read-only, the link can only read,
and only the project of --project (default: the caller's project).`,
		Example: `  allinone console ` + name + `
  allinone console ` + name + ` --read-only --ttl 4h --project default`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			at, err := f.make(ctx, c, cl)
			if err != nil || name == "link" {
				if err == nil {
					fmt.Fprintln(c.Stdout, at)
				}
				return err
			}
			return openBrowser(ctx, c.Stdout, at)
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.url, "console-url", "", "URL of the console without a path (CLOUDSIM_CONSOLE_URL; default the console of the lab or of the cloud)")
	fl.BoolVar(&f.readOnly, "read-only", false, "create a read-only link")
	fl.DurationVar(&f.ttl, "ttl", 12*time.Hour, "time for which the browser stays signed in")
	return cmd
}

// make requests a new link for signing in to the console, and returns the URL of the link.
func (f *linkFlags) make(ctx context.Context, c *cli.Connection, cl *client.Client) (string, error) {
	if f.ttl < time.Second {
		return "", cloudsim.Misuse(cli.BadFlag("ttl", f.ttl.String(), "at least 1s"))
	}
	at := f.url
	if c.DataDir == "" { // if a flag selects a lab, the lab takes precedence over the environment
		at = cmp.Or(at, c.Getenv("CLOUDSIM_CONSOLE_URL"))
	}
	if at == "" {
		lab, err := c.ConsoleOfLab()
		if err != nil {
			return "", err
		}
		at = cmp.Or(lab, cl.URL)
	}
	return console.RequestLink(ctx, cl, at, console.CreateLink{ReadOnly: f.readOnly, TTLSeconds: int64(f.ttl / time.Second), Project: cl.Project})
}

// openBrowser opens the link in a browser. Other users can see the arguments of a program, so
// openBrowser writes the link into a file that only the user can read. The browser gets the path of
// this file.
func openBrowser(ctx context.Context, w io.Writer, link string) error {
	for _, name := range []string{"xdg-open", "open"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		dir, err := os.MkdirTemp("", "console-") // mode 0700
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		file := filepath.Join(dir, "open.html")
		page := `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=` + html.EscapeString(link) + `"><title>Console</title>`
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			return err
		}
		if err := exec.CommandContext(ctx, path, file).Run(); err != nil {
			continue
		}
		u, _, _ := strings.Cut(link, "#")
		fmt.Fprintln(w, "Opened the console at", u)
		t := time.NewTimer(redirectLife)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		return nil
	}
	fmt.Fprintf(w, "No program on this machine could open a browser. Open this link within two minutes:\n\n  %s\n", link)
	return nil
}
