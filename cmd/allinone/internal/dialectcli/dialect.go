// Package dialectcli contains the commands for dialects. A dialect serves the API of another cloud.
package dialectcli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/internal/shell"
	"github.com/cloudsim-dev/allinone/netproxy/certs"
)

// NewDialectCommand returns the command "allinone dialect".
func NewDialectCommand(e cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dialect",
		Short: "Serve the API of another cloud",
		Long: `Serve the API of another cloud, so that the programs of that cloud run on this cloud.
A dialect translates each call to calls of this cloud, with the token of the caller. So
permissions, quotas, rate limits, faults, holds and the audit trail apply.

A dialect can also run in the process of the cloud: 'allinone cloudsim --dialect' and
'allinone up --dialect'.`,
		Example: `  # The API of Hetzner Cloud, in front of a running lab
  allinone dialect hcloud &
  eval "$(allinone dialect env hcloud)"
  hcloud server list`,
	}
	for _, d := range cli.Dialects() {
		cmd.AddCommand(newServeCommand(e, d))
	}
	cmd.AddCommand(newEnvCommand(e), newCallsCommand(e), newMetadataCommand(e))
	return cmd
}

type serveFlags struct {
	cli.Connection
	listen    string
	tls       certs.Files
	logFormat logging.Format
	verbose   bool
}

func newServeCommand(e cli.Env, d dialect.Dialect) *cobra.Command {
	f := serveFlags{Connection: cli.Connection{Env: e}, logFormat: logging.Text}
	callers := "use tokens of the cloud"
	if d.CredentialsVariable != "" {
		callers = "sign their requests with access keys of the cloud"
	}
	cmd := &cobra.Command{
		Use:   d.Name,
		Short: "Serve the API of " + d.Title,
		Long: fmt.Sprintf(`Serve the API of %s in front of a cloud. Callers
%s. A caller with the role writer can make all calls.

The path /readyz reports whether the cloud is ready, and /metrics has metrics for
Prometheus. 'allinone dialect calls %s' lists the supported calls.`, d.Title, callers, d.Name),
		Example: fmt.Sprintf(`  allinone dialect %[1]s --listen %[2]s --cloud-url http://127.0.0.1:8180`, d.Name, cli.DefaultDialectAddress),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), logging.New(e.Stderr, logging.Level(f.verbose), f.logFormat), d)
		},
	}
	f.ConnectionFlags(cmd)
	_ = cmd.PersistentFlags().MarkHidden("token-file") // the callers have their own tokens
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", cli.DefaultDialectAddress, "address to listen on, HOST:PORT; port 0 chooses a free port")
	fl.StringVar(&f.tls.Cert, "tls-cert-file", "", "certificate for HTTPS (PEM); a changed file takes effect without a restart")
	fl.StringVar(&f.tls.Key, "tls-private-key-file", "", "private key of --tls-cert-file (PEM)")
	fl.Var(&f.logFormat, "log-format", "log format: text or json")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "verbose logging, with every request")
	return cmd
}

func (f *serveFlags) run(ctx context.Context, log *slog.Logger, d dialect.Dialect) error {
	cl, err := f.Client()
	if err != nil {
		return err
	}
	ln, err := f.open(ctx, log)
	if err != nil {
		return err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("/", dialect.New(log, d, dialect.Config{URL: cl.URL, Transport: cl.HTTP.Transport, Project: cl.Project, Metrics: metrics}))
	log.Info("dialect is up", "dialect", d.Name, "url", f.url(ln), "cloud", cl.URL)
	return dialect.Serve(ctx, ln, mux)
}

func (f *serveFlags) url(ln net.Listener) string {
	if f.tls.Cert != "" {
		return "https://" + ln.Addr().String()
	}
	return "http://" + ln.Addr().String()
}

func (f *serveFlags) open(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	if (f.tls.Cert == "") != (f.tls.Key == "") {
		return nil, cloudsim.Misuse(errors.New("--tls-cert-file and --tls-private-key-file must be set together"))
	}
	var conf *tls.Config
	if f.tls.Cert != "" {
		var err error
		if conf, err = certs.ServerConfig(log, f.tls, certs.Options{NextProtos: []string{"h2", "http/1.1"}}); err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if conf == nil {
		return ln, nil
	}
	return tls.NewListener(ln, conf), nil
}

func newEnvCommand(e cli.Env) *cobra.Command {
	f := cli.Connection{Env: e}
	var url string
	cmd := &cobra.Command{
		Use:   "env NAME",
		Short: "Print the environment variables for the programs of another cloud",
		Long: `Print shell commands that set environment variables. The programs of the other cloud read
the URL of the dialect and the token from these variables. The shell reads the token from
a file when it runs the commands. AWS's programs read their access key from a file, so
for aws a variable contains the path of the file; see 'allinone cloud access-keys create'.

By default the command uses the URL and the token file of a lab that was started with
--dialect. Without such a lab, set --url and --token-file.`,
		Example: `  eval "$(allinone dialect env hcloud)"`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.FixedCompletions(cli.DialectNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := cli.FindDialect(args[0])
			if err != nil {
				return cloudsim.Misuse(err)
			}
			at, tokenFile, err := f.DialectOfLab(d.Name)
			if err != nil {
				return err
			}
			at = cmp.Or(url, at, "http://"+cli.DefaultDialectAddress)
			if tokenFile = cmp.Or(f.TokenFile, tokenFile); tokenFile == "" {
				return cloudsim.Errorf(cloudsim.Invalid, "no lab with the dialect %s runs: start one with 'allinone up --dialect', or set --url and --token-file", d.Name)
			}
			for _, v := range d.Variables(at) {
				fmt.Fprintf(e.Stdout, "export %s=%s\n", v.Name, shell.Word(v.Value))
			}
			if d.CredentialsVariable != "" {
				path, err := filepath.Abs(tokenFile)
				if err != nil {
					return err
				}
				fmt.Fprintf(e.Stdout, "export %s=%s\n", d.CredentialsVariable, shell.Word(path))
				return nil
			}
			fmt.Fprintf(e.Stdout, "export %s=\"$(cat %s)\"\n", d.TokenVariable, shell.Word(tokenFile))
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&url, "url", "", "URL of the dialect (default the URL of the lab's dialect, or http://"+cli.DefaultDialectAddress+")")
	fl.StringVar(&f.TokenFile, "token-file", "", "file with a token of the cloud, or for aws with an access key (default the file of the lab)")
	fl.StringVar(&f.DataDir, "data-dir", "", "data dir of the lab (CLOUDSIM_DATA_DIR)")
	return cmd
}

func newCallsCommand(e cli.Env) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use:   "calls NAME",
		Short: "List the supported calls of a dialect",
		Long: `List the supported calls of a dialect. The dialect answers all other calls with an error.
A fault rule can match a call as DIALECT.CALL, e.g. hcloud.servers.list.`,
		Example: `  allinone dialect calls hcloud`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.FixedCompletions(cli.DialectNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := cli.FindDialect(args[0])
			if err != nil {
				return cloudsim.Misuse(err)
			}
			p := cli.Printer[dialect.Call]{Writer: e.Stdout, Output: o, ID: func(c dialect.Call) string { return c.Name }, Columns: []cli.Column[dialect.Call]{
				{Head: "CALL", Cell: func(c dialect.Call) string { return c.Name }},
				{Head: "METHOD", Cell: func(c dialect.Call) string { return c.Method }},
				{Head: "PATH", Cell: func(c dialect.Call) string { return c.Path }},
				{Head: "SUMMARY", Cell: func(c dialect.Call) string { return c.Summary }},
			}}
			return p.List(d.Calls)
		},
	}
	o.Flags(cmd)
	return cmd
}

func newMetadataCommand(e cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "metadata NAME",
		Short: "Print the metadata tree of another cloud",
		Long: `Print a metadata tree in YAML. With this tree, the metadata service of this cloud serves
the paths of the other cloud's metadata service. A lab that was started with --dialect
already has the tree.`,
		Example: `  allinone dialect metadata aws | allinone cloud metadata-trees set aws --file -`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.FixedCompletions(cli.DialectNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := cli.FindDialect(args[0])
			if err != nil {
				return cloudsim.Misuse(err)
			}
			if d.Metadata == nil {
				return cloudsim.Errorf(cloudsim.Invalid, "the dialect %s has no metadata tree: write a metadata tree, and set it with 'allinone cloud metadata-trees set'", d.Name)
			}
			raw, err := yaml.Marshal(d.Metadata)
			if err != nil {
				return err
			}
			_, err = e.Stdout.Write(raw)
			return err
		},
	}
}
