package proxycli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/netproxy/certs"
	"github.com/cloudsim-dev/allinone/netproxy/kube"
	"github.com/cloudsim-dev/allinone/netproxy/server"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// statusPath is the HTTP path of a server's status on its admin socket.
const statusPath = "/status"

type proxyServerFlags struct {
	server.Config
	proxyLog
	proxySide
	kubeAccess

	mode, udsName   string
	frontends       []string
	deleteUDS       bool
	serverHost      string
	serverPort      int
	agentHost       string
	agentPort       int
	front, cluster  certs.Files
	ciphers         []string
	tlsMin          string
	strategies      string
	agentNamespace  string
	agentAccount    string
	audience        string
	publishLease    bool
	tracing         string
	serverID, envID string
	plainOnly       bool
}

func newProxyServerCommand(e cli.Env) *cobra.Command {
	f := proxyServerFlags{Config: server.Default()}
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a server, which connects kube-apiserver with agents",
		Long: `Serve kube-apiserver on one side and agents on the other (KEP-1281).

Clients use gRPC or HTTP CONNECT, over Unix sockets or over TCP with mutual TLS. For
one listener, use upstream's flags --mode, --uds-name and --server-port. For more
listeners, use --frontend. Agents connect over TLS. They need a certificate of the
authority --cluster-ca-cert, or a token of the service account
--agent-service-account in the namespace --agent-namespace, or both.

An agent sends identifiers, and its certificate or its token must grant them. A
certificate grants its DNS names (host) and its addresses (ipv4, ipv6). The URI
netproxy:?cidr=10.0.0.0/24&default-route=true in a certificate grants the other
identifiers. A token that is bound to a pod grants the name, the addresses and the
pod ranges of the pod's node. For this the server needs the permission to list
nodes. --trust-agent-identifiers turns this check off.

The server reads certificates again when their files change. After SIGTERM it
accepts no new clients, and waits for open connections to end.

--proxy-strategies is a list of strategies. The server uses the first strategy that
finds an agent:
  destHost      the agent's host, ipv4 or ipv6 identifier equals the destination
  destCIDR      the agent has the smallest cidr identifier that contains the
                destination
  zone          the agent is in the server's --zone
  defaultRoute  the agent has the identifier default-route=true
  least-loaded  the agent has the fewest connections
  default       any agent`,
		Example: `  # For kube-apiserver, over a Unix socket
  allinone proxy server --uds-name /run/proxy.sock --server-port 0 \
    --cluster-cert server.crt --cluster-key server.key --cluster-ca-cert ca.crt

  # The same, and HTTP CONNECT over TCP for other clients
  allinone proxy server --frontend grpc@unix:/run/proxy.sock --frontend http-connect@127.0.0.1:8090 \
    --server-cert server.crt --server-key server.key --server-ca-cert ca.crt \
    --cluster-cert server.crt --cluster-key server.key --cluster-ca-cert ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.envID = e.Getenv("PROXY_SERVER_ID")
			return f.run(cmd.Context(), f.logger(e))
		},
	}
	fl := cmd.Flags()
	f.frontendFlags(fl)
	f.agentFlags(fl)
	f.limitFlags(fl)
	f.watcherFlags(fl)
	return cmd
}

func (f *proxyServerFlags) frontendFlags(fl *pflag.FlagSet) {
	fl.StringVar(&f.mode, "mode", string(server.GRPC), "protocol of clients at --uds-name or --server-port: grpc or http-connect")
	fl.StringVar(&f.udsName, "uds-name", "", "path of a Unix socket for clients; replaces --server-port")
	fl.BoolVar(&f.deleteUDS, "delete-existing-uds-file", true, "replace an existing socket")
	fl.StringVar(&f.serverHost, "server-bind-address", "", "address for clients over TCP (default: all addresses)")
	fl.IntVar(&f.serverPort, "server-port", 8090, "port for clients over TCP; 0 for none")
	fl.StringArrayVar(&f.frontends, "frontend", nil, "additional listener for clients, as MODE@unix:PATH or MODE@HOST:PORT; may be repeated")
	fl.StringVar(&f.front.Cert, "server-cert", "", "server certificate for clients over TCP (PEM)")
	fl.StringVar(&f.front.Key, "server-key", "", "private key of --server-cert (PEM)")
	fl.StringVar(&f.front.CA, "server-ca-cert", "", "certificate authority of the clients over TCP (PEM)")
	fl.StringSliceVar(&f.ciphers, "cipher-suites", nil, "TLS 1.2 cipher suites to allow (default: Go's choice)")
	fl.StringVar(&f.tlsMin, "tls-min-version", "", "minimum TLS version: VersionTLS12 or VersionTLS13 (default VersionTLS12)")
	fl.DurationVar(&f.FrontendKeepalive, "frontend-keepalive-time", f.FrontendKeepalive, "time without data before a keepalive ping to a gRPC client")
}

func (f *proxyServerFlags) agentFlags(fl *pflag.FlagSet) {
	fl.StringVar(&f.agentHost, "agent-bind-address", "", "address on which the server listens for agents (default: all addresses)")
	fl.IntVar(&f.agentPort, "agent-port", 8091, "port for agents")
	fl.StringVar(&f.cluster.Cert, "cluster-cert", "", "server certificate for agents (PEM)")
	fl.StringVar(&f.cluster.Key, "cluster-key", "", "private key of --cluster-cert (PEM)")
	fl.StringVar(&f.cluster.CA, "cluster-ca-cert", "", "certificate authority of the agents (PEM); agents then need a certificate")
	fl.BoolVar(&f.InsecureAgents, "insecure-agents", false, "accept agents without a certificate and without a token, with any identifiers")
	fl.BoolVar(&f.TrustIdentifiers, "trust-agent-identifiers", false, "accept all identifiers of an authenticated agent, as upstream does")
	fl.StringVar(&f.agentNamespace, "agent-namespace", "", "namespace of the agents' service account; agents then need a token")
	fl.StringVar(&f.agentAccount, "agent-service-account", "", "name of the agents' service account")
	fl.StringVar(&f.audience, "authentication-audience", "", "audience of the agents' tokens")
	fl.DurationVar(&f.ReviewInterval, "authentication-interval", f.ReviewInterval, "interval of token checks for connected agents")
	f.kubeAccess.flags(fl)
	fl.Float32Var(&f.QPS, "kubeconfig-qps", 50, "maximum number of requests per second to the Kubernetes API; 0 for the default of client-go (5)")
	fl.IntVar(&f.Burst, "kubeconfig-burst", 100, "maximum burst of requests to the Kubernetes API; 0 for the default of client-go (10)")
	fl.DurationVar(&f.KeepaliveTime, "keepalive-time", f.KeepaliveTime, "time without data before a keepalive ping to an agent")
	fl.StringVar(&f.strategies, "proxy-strategies", string(server.ByDefault), "strategies that choose an agent, separated by commas")
	fl.StringVar(&f.Zone, "zone", "", "zone of this server, for the strategy zone")
	fl.StringVar(&f.serverID, "server-id", "", "id of this server, unique among all servers (PROXY_SERVER_ID)")
	fl.IntVar(&f.Count, "server-count", f.Count, "number of servers, for agents that do not count leases")
	fl.BoolVar(&f.publishLease, "enable-lease-controller", false, "maintain a lease, so that agents can count the servers")
	fl.BoolVar(&f.plainOnly, "plain-only", false, "use only the protocol of kubernetes-sigs/apiserver-network-proxy with all agents")
}

func (f *proxyServerFlags) limitFlags(fl *pflag.FlagSet) {
	fl.DurationVar(&f.DialTimeout, "backend-dial-timeout", f.DialTimeout, "time limit for opening a connection through an agent")
	fl.DurationVar(&f.HeaderTimeout, "header-timeout", f.HeaderTimeout, "time limit for the header of an HTTP CONNECT request")
	fl.DurationVar(&f.HalfCloseTimeout, "half-close-timeout", f.HalfCloseTimeout, "time without data after which the server ends a half-closed connection")
	fl.DurationVar(&f.DrainTimeout, "graceful-shutdown-timeout", f.DrainTimeout, "time limit for open connections when the server stops")
	fl.IntVar(&f.QueueBytes, "queue-bytes", f.QueueBytes, "maximum number of bytes that wait for one client, with upstream's agents")
	fl.DurationVar(&f.StallGrace, "stall-grace", f.StallGrace, "maximum time that one slow client delays the data of other connections, with upstream's agents")
	addIgnored(fl, func() {
		fl.Int("xfr-channel-size", 0, "")
		fl.Bool("warn-on-channel-limit", false, "")
	}, "xfr-channel-size", "warn-on-channel-limit")
}

func (f *proxyServerFlags) watcherFlags(fl *pflag.FlagSet) {
	fl.StringVar(&f.healthHost, "health-bind-address", "", "address of /healthz, /readyz and /metrics (default: all addresses)")
	fl.IntVar(&f.healthPort, "health-port", 8092, "port of /healthz, /readyz and /metrics; 0 for none")
	fl.StringVar(&f.adminHost, "admin-bind-address", "127.0.0.1", "additional address of /metrics")
	fl.IntVar(&f.adminPort, "admin-port", 0, "port of --admin-bind-address; 0 for none")
	f.profilingFlags(fl)
	fl.StringVar(&f.tracing, "tracing-endpoint", "", "HOST:PORT of an OpenTelemetry collector (OTLP over gRPC, no TLS) for a span of each dial")
	f.proxyLog.flags(fl)
}

// complete converts the flags to the Config of the server. It does not open the listeners.
func (f *proxyServerFlags) complete() error {
	var errs [6]error
	f.ID, errs[0] = ownID(f.serverID, f.envID)
	f.Strategies, errs[1] = server.ParseStrategies(f.strategies)
	f.Streams = !f.plainOnly
	if f.cluster.Cert == "" || f.cluster.Key == "" {
		errs[2] = errors.New("--cluster-cert and --cluster-key are required: agents connect over TLS; 'allinone proxy config' creates these files")
	}
	if (f.agentNamespace == "") != (f.agentAccount == "") {
		errs[3] = errors.New("--agent-namespace and --agent-service-account must be set together")
	}
	errs[4] = cli.CheckCollector(f.tracing)
	switch authenticated := f.cluster.CA != "" || f.agentNamespace != ""; {
	case !authenticated && !f.InsecureAgents:
		errs[5] = errors.New("--cluster-ca-cert, or --agent-namespace and --agent-service-account, are required: without them, any program that connects to --agent-port can act as an agent; --insecure-agents permits this")
	case authenticated && f.InsecureAgents:
		errs[5] = errors.New("--insecure-agents excludes --cluster-ca-cert and --agent-namespace; to accept all identifiers of authenticated agents, use --trust-agent-identifiers")
	}
	return errors.Join(errs[:]...)
}

// frontendNames returns the frontends that the flags request. Each frontend has the form
// MODE@unix:PATH or MODE@HOST:PORT.
func (f *proxyServerFlags) frontendNames() []string {
	all := f.frontends
	switch {
	case f.udsName != "":
		all = append(all, f.mode+"@unix:"+f.udsName)
	case f.serverPort != 0 && (len(f.frontends) == 0 || f.front.Cert != "" && !f.overTCP()):
		all = append(all, f.mode+"@"+net.JoinHostPort(f.serverHost, strconv.Itoa(f.serverPort)))
	}
	return all
}

// overTCP reports whether a flag --frontend requests a frontend that listens on TCP. This frontend
// uses the certificate of the flag --server-cert.
func (f *proxyServerFlags) overTCP() bool {
	for _, place := range f.frontends {
		if !strings.Contains(place, "@unix:") {
			return true
		}
	}
	return false
}

func (f *proxyServerFlags) run(ctx context.Context, log *slog.Logger) (err error) {
	if err := f.complete(); err != nil {
		return cloudsim.Misuse(err)
	}
	wire.QuietGRPC()
	reg := metricsRegistry()
	f.Registry = reg
	spans, stopTracing, err := cli.TraceTo(ctx, f.tracing, "allinone-proxy-server", f.ID)
	if err != nil {
		return err
	}
	f.Tracer = spans
	defer func() { err = errors.Join(err, stopTracing()) }()
	parts, err := f.connectKubernetes(log)
	if err != nil {
		return err
	}
	if err := f.open(ctx, log); err != nil {
		return errors.Join(err, f.closeAll())
	}
	s, err := server.New(log, f.Config)
	if err != nil {
		return errors.Join(cloudsim.Misuse(err), f.closeAll())
	}
	watchers, err := f.serve(ctx, reg, s.Ready, statusHandler(s))
	if err != nil {
		return errors.Join(err, f.closeAll())
	}
	return runWith(ctx, s.Run, append(parts, watchers...))
}

// connectKubernetes connects to the Kubernetes API if a flag needs this API. It returns the
// functions that must run while the server runs.
func (f *proxyServerFlags) connectKubernetes(log *slog.Logger) ([]func(context.Context) error, error) {
	if f.agentNamespace == "" && !f.publishLease {
		return nil, nil
	}
	api, err := kube.Connect(f.Access)
	if err != nil {
		return nil, err
	}
	if f.agentNamespace != "" {
		f.Authenticator = kube.Reviewer{API: api, Namespace: f.agentNamespace, ServiceAccount: f.agentAccount, Audience: f.audience}
	}
	if !f.publishLease {
		return nil, nil
	}
	labels, err := f.leaseLabels()
	if err != nil {
		return nil, err
	}
	l := kube.Leases{API: api, Namespace: f.leaseNamespace, Selector: f.leaseLabel}
	return []func(context.Context) error{func(ctx context.Context) error {
		return l.Publish(ctx, f.ID, labels, func(err error) {
			log.Warn("cannot renew the lease of this server; trying again", "err", err)
		})
	}}, nil
}

func (f *proxyServerFlags) open(ctx context.Context, log *slog.Logger) error {
	minimum, err := tlsMinVersion(f.tlsMin)
	if err != nil {
		return err
	}
	suites, err := cipherSuites(f.ciphers)
	if err != nil {
		return err
	}
	o := certs.Options{MinVersion: minimum, CipherSuites: suites, NextProtos: []string{"h2"}}
	if f.AgentTLS, err = certs.ServerConfig(log, f.cluster, o); err != nil {
		return fmt.Errorf("--cluster-cert: %w", err)
	}
	var lc net.ListenConfig
	if f.Agents, err = lc.Listen(ctx, "tcp", net.JoinHostPort(f.agentHost, strconv.Itoa(f.agentPort))); err != nil {
		return fmt.Errorf("--agent-port: %w", err)
	}
	for _, place := range f.frontendNames() {
		front, err := f.openFrontend(ctx, log, place, o)
		if err != nil {
			return fmt.Errorf("frontend %s: %w", place, err)
		}
		f.Frontends = append(f.Frontends, front)
	}
	return nil
}

func (f *proxyServerFlags) openFrontend(ctx context.Context, log *slog.Logger, place string, o certs.Options) (server.Frontend, error) {
	mode, addr, ok := strings.Cut(place, "@")
	front := server.Frontend{Mode: server.Mode(mode)}
	if !ok || front.Mode != server.GRPC && front.Mode != server.HTTPConnect {
		return front, errors.New("must be MODE@unix:PATH or MODE@HOST:PORT, and MODE must be grpc or http-connect")
	}
	var err error
	if path, local := strings.CutPrefix(addr, "unix:"); local {
		front.Listener, err = f.openSocket(ctx, path)
		return front, err
	}
	if f.front.CA == "" {
		return front, errors.New("--server-cert, --server-key and --server-ca-cert are required over TCP, because a client of this port can reach every node")
	}
	if front.Mode == server.HTTPConnect {
		o.NextProtos = []string{"http/1.1"}
	}
	if front.TLS, err = certs.ServerConfig(log, f.front, o); err != nil {
		return front, err
	}
	var lc net.ListenConfig
	front.Listener, err = lc.Listen(ctx, "tcp", addr)
	return front, err
}

// openSocket opens a Unix socket that only its owner and its group may use. If the path already
// exists, openSocket returns an error. But if the existing file is a socket and the flag
// --delete-existing-uds-file is set, openSocket replaces this socket.
func (f *proxyServerFlags) openSocket(ctx context.Context, path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && f.deleteUDS && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil { //nolint:gosec // kube-apiserver may run as another user of the group
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

func (f *proxyServerFlags) closeAll() error {
	var errs []error
	for _, front := range f.Frontends {
		if front.Listener != nil {
			errs = append(errs, front.Listener.Close())
		}
	}
	if f.Agents != nil {
		errs = append(errs, f.Agents.Close())
	}
	return errors.Join(errs...)
}

func statusHandler(s *server.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.Status()) // fails if the client has closed the connection
	})
}
