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
		Short: "Run an agent, which connects proxy servers to nodes, pods and services",
		Long: `Connect network proxy servers to nodes, pods and services (KEP-1281). An agent has no
port for proxy traffic: it connects to the servers.

--proxy-server-host takes several hosts. The agent resolves a name repeatedly and
connects to each of its addresses. One address can lead to several servers behind a load
balancer. The agent then connects repeatedly, until it has a connection to each server.
The servers report how many servers there are. With --count-server-leases the agent
counts the servers' leases instead.

The agent reads certificates and the token again for each connection. After SIGTERM
it asks the servers to prefer other agents, and waits for open connections to end.`,
		Example: `  allinone proxy agent --proxy-server-host 192.0.2.1,192.0.2.2 \
    --ca-cert ca.crt --agent-cert agent.crt --agent-key agent.key

  # On each node, for the destinations on this node
  allinone proxy agent --proxy-server-host proxy.example --ca-cert ca.crt \
    --service-account-token-path /var/run/secrets/tokens/proxy \
    --agent-identifiers 'host=node-1&ipv4=192.0.2.10&cidr=10.128.3.0/24'

  # The same, with identifiers from the metadata of the instance
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
	fl.StringSliceVar(&f.hosts, "proxy-server-host", []string{"127.0.0.1"}, "proxy servers, as HOST or HOST:PORT, separated by commas")
	fl.IntVar(&f.port, "proxy-server-port", 8091, "port of servers without a port in --proxy-server-host")
	fl.StringVar(&f.files.CA, "ca-cert", "", "certificate authority of the servers (PEM; default: the system's authorities)")
	fl.StringVar(&f.files.Cert, "agent-cert", "", "certificate of this agent (PEM)")
	fl.StringVar(&f.files.Key, "agent-key", "", "private key of this agent (PEM)")
	fl.StringSliceVar(&f.alpn, "alpn-proto", nil, "further ALPN protocols to offer")
	fl.StringVar(&f.TokenFile, "service-account-token-path", "", "file with the token of this agent")
	fl.DurationVar(&f.RenewInterval, "token-renew-interval", f.RenewInterval, "interval at which the agent sends its current token to a server")
	f.kubeAccess.flags(fl)
	fl.BoolVar(&f.countLeases, "count-server-leases", false, "use the number of the servers' leases as the number of servers")
	fl.StringVar(&f.CountSource, "server-count-source", f.CountSource, "source of the number of servers: default (leases with --count-server-leases, otherwise the servers' reports) or max (the larger of both numbers)")
	fl.DurationVar(&f.SyncInterval, "sync-interval", f.SyncInterval, "interval of checks for servers without a connection")
	fl.DurationVar(&f.SyncIntervalCap, "sync-interval-cap", f.SyncIntervalCap, "maximum delay after a failed connection attempt")
	fl.DurationVar(&f.KeepaliveTime, "keepalive-time", f.KeepaliveTime, "time without data before a keepalive ping to a server; upstream's servers close the connection if the value is below 30s")
	fl.BoolVar(&f.plainOnly, "plain-only", false, "use only the protocol of kubernetes-sigs/apiserver-network-proxy with all servers")
	addIgnored(fl, func() {
		fl.Duration("probe-interval", 0, "")
		fl.Bool("sync-forever", false, "")
		fl.Int("xfr-channel-size", 0, "")
		fl.Bool("warn-on-channel-limit", false, "")
	}, "probe-interval", "sync-forever", "xfr-channel-size", "warn-on-channel-limit")
}

func (f *proxyAgentFlags) ownFlags(fl *pflag.FlagSet) {
	fl.StringVar(&f.agentID, "agent-id", "", "id of this agent (PROXY_AGENT_ID)")
	fl.StringVar(&f.identifiers, "agent-identifiers", "", "identifiers of this agent, as a URL query with the keys host, ipv4, ipv6, cidr and default-route")
	fl.BoolVar(&f.fromMetadata, "agent-identifiers-from-metadata", false, "add the names, addresses and pod ranges of this instance from its metadata to the identifiers; also use the instance's zone, and its id as the agent's id")
	fl.StringVar(&f.metadataURL, "metadata-url", client.DefaultMetadataURL, "URL at which this instance reaches its metadata service")
	fl.StringVar(&f.Zone, "zone", "", "zone of this agent, for the strategy zone")
	fl.BoolVar(&f.DialLocal, "dial-local", false, "also connect to loopback and link-local addresses; the servers can then reach metadata services and all local services of this machine")
	fl.DurationVar(&f.DialTimeout, "dial-timeout", f.DialTimeout, "time limit for opening a connection to a destination")
	fl.DurationVar(&f.DrainTimeout, "graceful-shutdown-timeout", f.DrainTimeout, "time limit for open connections when the agent stops")
	fl.IntVar(&f.QueueBytes, "queue-bytes", f.QueueBytes, "maximum number of bytes that wait for one destination, with upstream's servers")
	fl.DurationVar(&f.StallGrace, "stall-grace", f.StallGrace, "maximum time that one slow destination delays the data of other connections, with upstream's servers")
	fl.StringVar(&f.healthHost, "health-server-host", "", "address of /healthz, /readyz and /metrics (default: all addresses)")
	fl.IntVar(&f.healthPort, "health-server-port", 8093, "port of /healthz, /readyz and /metrics; 0 for none")
	fl.StringVar(&f.adminHost, "admin-bind-address", "127.0.0.1", "additional address of /metrics")
	fl.IntVar(&f.adminPort, "admin-server-port", 0, "port of --admin-bind-address; 0 for none")
	f.profilingFlags(fl)
	f.proxyLog.flags(fl)
}

// complete converts the flags to the Config of the agent.
func (f *proxyAgentFlags) complete() error {
	var errs [3]error
	f.ID, errs[0] = ownID(f.agentID, f.envID)
	f.Identifiers, errs[1] = wire.ParseIdentifiers(f.identifiers)
	if (f.files.Cert == "") != (f.files.Key == "") {
		errs[2] = errors.New("--agent-cert and --agent-key must be set together")
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
