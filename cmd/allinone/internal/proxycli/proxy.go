// Package proxycli contains the command "allinone proxy" and its subcommands.
package proxycli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/internal/run"
	"github.com/cloudsim-dev/allinone/netproxy/kube"
)

// NewProxyCommand returns the command "allinone proxy".
func NewProxyCommand(e cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Run a network proxy (Konnectivity) between the control plane and the nodes",
		Long: `Run the API server network proxy of KEP-1281, also known as Konnectivity. It carries
the control plane's traffic to the nodes. The server runs beside kube-apiserver.
Agents run in the network of the nodes, pods and services, and connect to the server.
So the control plane needs no route to the nodes for logs, exec, port-forward,
webhooks and aggregated APIs.

The server and the agent also work with upstream's agent, server and clients
(kubernetes-sigs/apiserver-network-proxy), and accept the flags of upstream's programs.`,
		Example: `  # Write keys, certificates and configuration, and print the commands that start all components
  allinone proxy config --out ./proxy --host proxy.example

  # Watch the connections of a server
  allinone proxy status --server unix:///run/network-proxy/admin.sock --connections --watch`,
	}
	cmd.AddCommand(newProxyServerCommand(e), newProxyAgentCommand(e), newProxyConfigCommand(e), newProxyStatusCommand(e))
	return cmd
}

// proxyLog contains the logging flags of the server and the agent, with upstream's names.
type proxyLog struct {
	format    logging.Format
	verbosity int
}

func (l *proxyLog) flags(fl *pflag.FlagSet) {
	l.format = logging.Text
	fl.Var(&l.format, "log-format", "log format: text or json")
	fl.IntVarP(&l.verbosity, "v", "v", 0, "log level, as in upstream's programs; with 5 or more, the log contains broken connections")
}

func (l *proxyLog) logger(e cli.Env) *slog.Logger {
	return logging.New(e.Stderr, logging.Level(l.verbosity >= 5), l.format)
}

// proxySide contains the flags of the server and the agent for health probes, metrics and the
// admin socket.
type proxySide struct {
	healthHost string
	healthPort int
	adminSock  string
	adminHost  string
	adminPort  int
	profiling  bool
	contention bool
}

func (s *proxySide) profilingFlags(fl *pflag.FlagSet) {
	fl.StringVar(&s.adminSock, "admin-socket", "", "`PATH` of a Unix socket for pprof and, on a server, for 'allinone proxy status'; only the user of this process can use the socket")
	fl.BoolVar(&s.profiling, "enable-profiling", false, "serve pprof on --admin-socket")
	fl.BoolVar(&s.contention, "enable-contention-profiling", false, "record lock contention for pprof; needs --enable-profiling")
}

func metricsRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// serve opens the listeners of the health port, the admin port and the admin socket. If a port is 0
// or the path of the socket is empty, serve does not open this listener. It returns one function
// for each listener. Each function serves its listener until the context of the function ends. If
// status is not nil, the admin socket serves this handler.
func (s *proxySide) serve(ctx context.Context, reg *prometheus.Registry, ready func() error, status http.Handler) ([]func(context.Context) error, error) {
	if s.contention && !s.profiling {
		return nil, errors.New("--enable-contention-profiling needs --enable-profiling, because only pprof shows the lock contention")
	}
	if s.contention {
		runtime.SetBlockProfileRate(1)
	}
	var parts []func(context.Context) error
	metrics := proxyMetrics(reg)
	onAdminPort := http.NewServeMux()
	onAdminPort.Handle("/metrics", metrics)
	for _, p := range []struct {
		flag, host string
		port       int
		handler    http.Handler
	}{
		{"health", s.healthHost, s.healthPort, healthHandler(metrics, ready)},
		{"admin", s.adminHost, s.adminPort, onAdminPort},
	} {
		if p.port == 0 {
			continue
		}
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(p.host, strconv.Itoa(p.port)))
		if err != nil {
			return nil, fmt.Errorf("%s port: %w", p.flag, err)
		}
		parts = append(parts, func(ctx context.Context) error { return httpapi.Serve(ctx, ln, p.handler, run.Limits{}) })
	}
	switch {
	case s.adminSock != "":
		ln, err := run.Socket(ctx, s.adminSock)
		if err != nil {
			return nil, fmt.Errorf("--admin-socket: %w", err)
		}
		parts = append(parts, func(ctx context.Context) error { return httpapi.Serve(ctx, ln, s.adminHandler(status), run.Limits{}) })
	case s.profiling:
		return nil, errors.New("--enable-profiling needs --admin-socket, because profiles contain memory contents")
	}
	return parts, nil
}

// runWith runs a proxy and its companions. The companions are the health server, the admin
// servers, and the functions that use the Kubernetes API. A stopping proxy waits for its
// connections to end. The companions stop after the proxy, so that they still work during this
// wait.
func runWith(ctx context.Context, proxy func(context.Context) error, companions []func(context.Context) error) error {
	if len(companions) == 0 {
		return proxy(ctx)
	}
	others, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	return run.All(ctx,
		func(ctx context.Context) error { defer stop(); return proxy(ctx) },
		func(context.Context) error { return run.All(others, companions...) },
	)
}

func proxyMetrics(reg *prometheus.Registry) http.Handler {
	return httpapi.CheckHost(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
}

// healthHandler returns the handler for the health probes and the metrics. Liveness probes always
// succeed. Readiness probes succeed if readyFn returns nil.
func healthHandler(metrics http.Handler, readyFn func() error) http.Handler {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	isReady := func(w http.ResponseWriter, _ *http.Request) {
		if err := readyFn(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
	mux.HandleFunc("/healthz", alive)
	mux.HandleFunc("/livez", alive)
	mux.HandleFunc("/readyz", isReady)
	mux.HandleFunc("/ready", isReady)
	mux.Handle("/metrics", metrics)
	return mux
}

func (s *proxySide) adminHandler(status http.Handler) http.Handler {
	mux := http.NewServeMux()
	if status != nil {
		mux.Handle(statusPath, status)
	}
	if s.profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

type kubeAccess struct {
	kube.Access
	leaseNamespace string
	leaseLabel     string
}

func (k *kubeAccess) flags(fl *pflag.FlagSet) {
	fl.StringVar(&k.Kubeconfig, "kubeconfig", "", "kubeconfig file for the Kubernetes API (default: the pod's service account)")
	fl.StringVar(&k.ContentType, "kube-api-content-type", "application/vnd.kubernetes.protobuf", "content type of requests to the Kubernetes API")
	fl.StringVar(&k.leaseNamespace, "lease-namespace", "kube-system", "namespace of the servers' leases")
	fl.StringVar(&k.leaseLabel, "lease-label", "k8s-app=konnectivity-server", "label of the servers' leases")
}

// leaseLabels parses --lease-label and returns the labels as a map.
func (k *kubeAccess) leaseLabels() (map[string]string, error) {
	labels := map[string]string{}
	for pair := range strings.SplitSeq(k.leaseLabel, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--lease-label must be key=value, got %q", pair)
		}
		labels[key] = value
	}
	return labels, nil
}

// addIgnored adds upstream's flags that have no effect in this program. With these flags, a command
// line for upstream's program also works for this program. The help does not show these flags.
func addIgnored(fl *pflag.FlagSet, add func(), names ...string) {
	add()
	for _, n := range names {
		_ = fl.MarkHidden(n) // error only for an unknown flag name
	}
}

// tlsMinVersion parses the name of a TLS version, in the form of upstream's flags.
func tlsMinVersion(name string) (uint16, error) {
	switch name {
	case "", "VersionTLS12":
		return tls.VersionTLS12, nil
	case "VersionTLS13":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("--tls-min-version must be VersionTLS12 or VersionTLS13, got %q", name)
}

// cipherSuites parses the names of cipher suites. It accepts the suites that Go's package tls
// lists as secure.
func cipherSuites(names []string) ([]uint16, error) {
	var ids []uint16
	var errs []error
	for _, n := range names {
		i := slices.IndexFunc(tls.CipherSuites(), func(c *tls.CipherSuite) bool { return c.Name == n })
		if i < 0 {
			errs = append(errs, fmt.Errorf("--cipher-suites: %q is an unknown or insecure cipher suite", n))
			continue
		}
		ids = append(ids, tls.CipherSuites()[i].ID)
	}
	return ids, errors.Join(errs...)
}

// ownID returns the id of a server or an agent. The parameters contain the values of the flag and
// of the environment variable for this id. The flag takes precedence. If both values are empty, the
// id consists of the host name and the process id.
func ownID(flag, env string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if env != "" {
		return env, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("cannot read the host name for the default id: %w; set --server-id or --agent-id", err)
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid()), nil
}
