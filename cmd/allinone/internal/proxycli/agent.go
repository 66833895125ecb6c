package proxycli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/certs"
	"github.com/cloudsim-dev/allinone/netproxy/kube"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// proxyAgentFlags contains the flags of the proxy agent command.
type proxyAgentFlags struct {
	agent.Config
	proxyLog
	proxySide
	kubeAccess

	hosts          []string
	port           int
	files          certs.Files
	alpn           []string
	identifiers    string
	agentID, envID string
	fromMetadata   bool
	metadataURL    string
	countLeases    bool
	plainOnly      bool
}

func newProxyAgentCommand(e cli.Env) *cobra.Command {
	f := proxyAgentFlags{Config: agent.Default()}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent, which dials nodes, pods and services for proxy servers",
		Long: `Dial nodes, pods and services for network proxy servers (KEP-1281). An agent
listens on nothing: it calls the servers.

--proxy-server-host takes several hosts. A name is resolved again and again, and
each of its addresses called. Behind one address with several servers, a load
balancer, the agent calls until it has met as many as the servers, or with
--count-server-leases their leases, say that there are.

Certificates and the token are read again for each call. SIGTERM tells the servers
to prefer other agents and waits for connections to end.`,
		Example: `  allinone proxy agent --proxy-server-host 192.0.2.1,192.0.2.2 \
    --ca-cert ca.crt --agent-cert agent.crt --agent-key agent.key

  # On each node, for what is on that node
  allinone proxy agent --proxy-server-host proxy.example --ca-cert ca.crt \
    --service-account-token-path /var/run/secrets/tokens/proxy \
    --agent-identifiers 'host=node-1&ipv4=192.0.2.10&cidr=10.128.3.0/24'

  # The same, as the instance's metadata knows it
  allinone proxy agent --proxy-server-host proxy.example --ca-cert ca.crt \
    --agent-cert agent.crt --agent-key agent.key --agent-identifiers-from-metadata`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.envID = e.Getenv("PROXY_AGENT_ID")
			return f.run(cmd.Context(), f.logger(e))
		},
	}
	fl := cmd.Flags()
	f.serverFlags(fl)
	f.ownFlags(fl)
	return cmd
}

func (f *proxyAgentFlags) serverFlags(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.hosts, "proxy-server-host", []string{"127.0.0.1"}, "the servers: HOST or HOST:PORT, several with commas between")
	fl.IntVar(&f.port, "proxy-server-port", 8091, "port of servers that are given without one")
	fl.StringVar(&f.files.CA, "ca-cert", "", "authority of the servers (PEM; default: the system's)")
	fl.StringVar(&f.files.Cert, "agent-cert", "", "certificate of this agent (PEM)")
	fl.StringVar(&f.files.Key, "agent-key", "", "its private key (PEM)")
	fl.StringSliceVar(&f.alpn, "alpn-proto", nil, "further ALPN protocols to offer")
	fl.StringVar(&f.TokenFile, "service-account-token-path", "", "file with the token of this agent")
	fl.DurationVar(&f.RenewInterval, "token-renew-interval", f.RenewInterval, "between showings of a fresh token to a server")
	f.kubeAccess.flags(fl)
	fl.BoolVar(&f.countLeases, "count-server-leases", false, "count the servers by their leases")
	fl.StringVar(&f.CountSource, "server-count-source", f.CountSource, "default: leases if they are counted, else the servers' reports; max: the larger number")
	fl.DurationVar(&f.SyncInterval, "sync-interval", f.SyncInterval, "between looks whether a server is missing")
	fl.DurationVar(&f.SyncIntervalCap, "sync-interval-cap", f.SyncIntervalCap, "longest pause between calls that fail")
	fl.DurationVar(&f.KeepaliveTime, "keepalive-time", f.KeepaliveTime, "silence before a server is asked for a sign of life; upstream's hang up below 30s")
	fl.BoolVar(&f.plainOnly, "plain-only", false, "speak upstream's wire to all servers")
	ignored(fl, func() {
		fl.Duration("probe-interval", 0, "")
		fl.Bool("sync-forever", false, "")
		fl.Int("xfr-channel-size", 0, "")
		fl.Bool("warn-on-channel-limit", false, "")
	}, "probe-interval", "sync-forever", "xfr-channel-size", "warn-on-channel-limit")
}

func (f *proxyAgentFlags) ownFlags(fl *pflag.FlagSet) {
	fl.StringVar(&f.agentID, "agent-id", "", "name of this agent (env PROXY_AGENT_ID)")
	fl.StringVar(&f.identifiers, "agent-identifiers", "", "identifiers of this agent, as a URL query: host, ipv4, ipv6, cidr, default-route")
	fl.BoolVar(&f.fromMetadata, "agent-identifiers-from-metadata", false, "add identifiers from the metadata of this instance: names, addresses and pod ranges; use its zone, and its id as the agent's name")
	fl.StringVar(&f.metadataURL, "metadata-url", client.DefaultMetadataURL, "where this instance reaches its metadata service")
	fl.StringVar(&f.Zone, "zone", "", "zone of this agent, for the strategy zone")
	fl.BoolVar(&f.DialLocal, "dial-local", false, "dial also loopback and link-local addresses: every local service of this machine, and metadata services")
	fl.DurationVar(&f.DialTimeout, "dial-timeout", f.DialTimeout, "how long a target may take to answer")
	fl.DurationVar(&f.DrainTimeout, "graceful-shutdown-timeout", f.DrainTimeout, "how long connections may take to end when the agent stops")
	fl.IntVar(&f.QueueBytes, "queue-bytes", f.QueueBytes, "bytes that may wait for a target, with upstream's servers")
	fl.DurationVar(&f.StallGrace, "stall-grace", f.StallGrace, "how long a target may hold up others, with upstream's servers")
	fl.StringVar(&f.healthHost, "health-server-host", "", "address of /healthz, /readyz and /metrics (default: all)")
	fl.IntVar(&f.healthPort, "health-server-port", 8093, "their port; 0 for none")
	fl.StringVar(&f.adminHost, "admin-bind-address", "127.0.0.1", "another address of /metrics")
	fl.IntVar(&f.adminPort, "admin-server-port", 0, "its port; 0 for none")
	f.profilingFlags(fl)
	f.proxyLog.flags(fl)
}

// complete converts the flags to the Config of the agent.
func (f *proxyAgentFlags) complete() error {
	var errs [3]error
	f.ID, errs[0] = ownID(f.agentID, f.envID)
	f.Identifiers, errs[1] = wire.ParseIdentifiers(f.identifiers)
	if (f.files.Cert == "") != (f.files.Key == "") {
		errs[2] = errors.New("--agent-cert and --agent-key go together")
	}
	f.Streams = !f.plainOnly
	f.Servers = nil
	for _, h := range f.hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), strconv.Itoa(f.port))
		}
		f.Servers = append(f.Servers, h)
	}
	o := certs.Options{NextProtos: f.alpn}
	f.TLS = func() (*tls.Config, error) { return certs.ClientConfig(f.files, o) }
	return errors.Join(errs[:]...)
}

func (f *proxyAgentFlags) run(ctx context.Context, log *slog.Logger) error {
	if err := f.complete(); err != nil {
		return cloudsim.Misuse(err)
	}
	wire.QuietGRPC()
	if f.fromMetadata {
		if err := f.askMetadata(ctx, log); err != nil {
			return err
		}
	}
	if _, err := f.TLS(); err != nil { // report invalid files at the start
		return fmt.Errorf("--ca-cert, --agent-cert: %w", err)
	}
	if f.countLeases {
		api, err := kube.Connect(f.Access)
		if err != nil {
			return err
		}
		f.Counter = kube.Leases{API: api, Namespace: f.leaseNamespace, Selector: f.leaseLabel}
	}
	reg := metricsRegistry()
	f.Registry = reg
	a, err := agent.New(log, f.Config)
	if err != nil {
		return cloudsim.Misuse(err)
	}
	watchers, err := f.serve(ctx, reg, a.Ready, nil)
	if err != nil {
		return err
	}
	return runWith(ctx, a.Run, watchers)
}
