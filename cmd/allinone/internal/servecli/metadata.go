package servecli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/internal/logging"
)

type metadataFlags struct {
	cli.Connection
	listen    string
	instance  string
	hosts     []string
	trust     bool
	logFormat logging.Format
	verbose   bool
}

// NewMetadataCommand returns the command "allinone metadata".
func NewMetadataCommand(e cli.Env) *cobra.Command {
	f := metadataFlags{Connection: cli.Connection{Env: e}, logFormat: logging.Text}
	cmd := &cobra.Command{
		Use:   "metadata",
		Short: "Serve the metadata of instances",
		Long: `Serve the metadata of instances: id, type, zone, addresses, labels, user data,
notices of maintenance and preemption, signed identity documents, and tokens of the
instance's service account.

With --instance, the service treats every caller as this instance. Then set --listen
to an address that only this instance can reach, such as ` + metadata.Address + ` in
the instance's network namespace.
Without --instance, the source address of a connection identifies the instance.

The token of this service needs the role metadata, because the service acts for any
instance.`,
		Example: `  # For instances that share this machine's loopback
  allinone metadata --listen 127.0.0.1:8160
  token=$(curl -s --interface 127.64.0.1 -X PUT -H 'Metadata-Token-TTL-Seconds: 300' http://127.0.0.1:8160/v1/token)
  curl -s --interface 127.64.0.1 -H "Metadata-Token: $token" http://127.0.0.1:8160/v1/instance/id

  # For one instance, in its network namespace
  ip netns exec node-1 allinone metadata --listen ` + metadata.Address + ` --instance i-000001`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), logging.New(e.Stderr, logging.Level(f.verbose), f.logFormat))
		},
	}
	f.ConnectionFlags(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8160", "address to listen on; port 0 chooses a free port")
	fl.StringVar(&f.instance, "instance", "", "id of the instance that the service describes to every caller")
	fl.BoolVar(&f.trust, "trust-loopback", false, trustLoopbackHelp)
	fl.StringSliceVar(&f.hosts, "host", []string{"localhost"}, "host name that requests may use, besides IP addresses; may be repeated")
	fl.Var(&f.logFormat, "log-format", "log format: text or json")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "verbose logging")
	return cmd
}

func (f *metadataFlags) run(ctx context.Context, log *slog.Logger) error {
	cl, err := f.Client()
	if err != nil {
		return err
	}
	if f.instance != "" {
		if _, err := cl.GetInstance(ctx, cloudsim.InstanceID(f.instance)); err != nil {
			return cli.Advise(cl, fmt.Errorf("--instance: %w", err))
		}
	}
	ln, err := listenMetadata(ctx, "listen", f.listen)
	if err != nil {
		return err
	}
	log.Info("metadata service is up", "url", "http://"+ln.Addr().String(), "instance", f.instance, "cloud", cl.URL)
	return metadata.Run(ctx, log, metadata.Config{Listener: ln, Instance: cloudsim.InstanceID(f.instance), Hosts: f.hosts, TrustLoopback: f.trust}, cl)
}

const trustLoopbackHelp = "return user data, identity documents and service account tokens also to callers from 127.0.0.0/8; any user of this machine can then call as any instance with such an address"

// listenMetadata opens a listener at a loopback or link-local address. It refuses other
// addresses, because the metadata is confidential and the metadata service has no encryption.
func listenMetadata(ctx context.Context, flag, address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(strings.Replace(address, "localhost:", "127.0.0.1:", 1))
	if err != nil || !at.Addr().IsLoopback() && !at.Addr().IsLinkLocalUnicast() {
		return nil, cli.BadFlag(flag, address, "a loopback or link-local IP address and port, such as 127.0.0.1:8160 or "+metadata.Address)
	}
	ln, err := metadata.Listen(ctx, at.String())
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return ln, nil
}
