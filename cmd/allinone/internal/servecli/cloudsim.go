// Package servecli contains the commands cloudsim and metadata, which run the servers of the cloud,
// and the command certificates, which writes the keys of these servers.
package servecli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	diskfiles "github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
	"github.com/cloudsim-dev/allinone/cloudsim/registry"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/internal/run"
	"github.com/cloudsim-dev/allinone/netproxy/certs"
)

type cloudsimFlags struct {
	listen                        []string
	listenSocket                  string
	dataDir                       string
	adminTokenFile                string
	profile, catalogue            string
	instanceRange, instanceRange6 string
	pods                          cli.PodFlags
	networkRanges                 []string
	loadBalancerRange             string
	loadBalancerRange6            string
	internalRange, internalRange6 string
	published, publishedBind      string
	claimAddresses, showClients   bool
	readyFile                     string
	tls                           certs.Files
	metadataListen, issuer        string
	metadataTrust                 bool
	dialects                      []string
	registry                      registryFlags
	noDataPlane                   bool
	disks                         diskfiles.Config // cloudsimFlags.run sets this field
	quotas                        []string
	rateRead, rateWrite           string
	rateProject                   string
	auditFile, pprofSocket        string
	record, applyFile             string
	journalKeep                   uint64
	logFormat                     logging.Format
	verbose                       bool

	logRequests  bool
	tracing      string
	frozenAt     string
	randSeed     uint64
	diskCooldown time.Duration
}

// NewCloudsimCommand returns the command "allinone cloudsim".
func NewCloudsimCommand(e cli.Env) *cobra.Command {
	f := cloudsimFlags{logFormat: logging.Text}
	cmd := &cobra.Command{
		Use:   "cloudsim",
		Short: "Serve the simulated cloud",
		Long: `Serve the simulated cloud: its REST API, and the data plane for load balancers and
disks. One file in the data directory holds all records. The folder disks beside it
holds the data of the disks.

The command reads the admin token from a file, and creates the file if it is missing.
The reference of the API is at the path /docs of the served address.`,
		Example: `  # Start a cloud, and list its instances
  allinone cloudsim --data-dir ./cloud &
  export CLOUDSIM_URL=http://127.0.0.1:8180 CLOUDSIM_TOKEN_FILE=./cloud/admin.token
  allinone cloud instances list

  # For tests: operations take no time, a free port, the URL in a file
  allinone cloudsim --profile instant --listen 127.0.0.1:0 --ready-file url --data-dir ./cloud`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), logging.New(e.Stderr, logging.Level(f.verbose), f.logFormat))
		},
	}
	d := engine.Default()
	fl := cmd.Flags()
	fl.StringSliceVar(&f.listen, "listen", []string{"127.0.0.1:8180"}, "address to listen on, HOST:PORT; port 0 chooses a free port; may be repeated: the first address is in the cloud's URL")
	fl.StringVar(&f.listenSocket, "listen-socket", "", "additional Unix socket to listen on, for programs of this user; the URL is unix://`PATH`; faster than TCP")
	fl.StringVar(&f.dataDir, "data-dir", cli.DefaultCloudDir(e.Getenv), "folder of the cloud (folder cloud in CLOUDSIM_DATA_DIR)")
	fl.StringVar(&f.adminTokenFile, "admin-token-file", "", "file with the admin token; created if missing (default admin.token in the data directory)")
	fl.StringVar(&f.profile, "profile", d.Profile.Name, "durations of operations: instant or realistic")
	fl.StringVar(&f.catalogue, "catalogue", "", "YAML `FILE` with regions and zones that replace region sim-1 and its three zones, and with instanceTypes and diskTypes that are added to the default types, or replace types with the same name; needed at each start")
	fl.StringVar(&f.instanceRange, "instance-range", d.Instances.String(), "range of the addresses of instances: the range of the default network of each project")
	fl.StringVar(&f.instanceRange6, "instance-range6", "", "range of the additional IPv6 addresses of instances; empty: no IPv6")
	f.pods.Flags(fl)
	fl.StringSliceVar(&f.networkRanges, "network-ranges", nil, "`RANGE`s that projects may use for networks, pods and routes (default 10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7 without the ranges of this machine's routes)")
	fl.StringVar(&f.loadBalancerRange, "load-balancer-range", d.LoadBalancers.String(), "range of the addresses of load balancers")
	fl.StringVar(&f.loadBalancerRange6, "load-balancer-range6", d.LoadBalancers6.String(), "IPv6 range of the addresses of load balancers; empty: no IPv6")
	fl.StringVar(&f.internalRange, "internal-load-balancer-range", "", "range of the addresses of load balancers with the scheme internal (default the same range as other load balancers)")
	fl.StringVar(&f.internalRange6, "internal-load-balancer-range6", "", "IPv6 range of the addresses of load balancers with the scheme internal (default the IPv6 range of other load balancers)")
	fl.StringVar(&f.published, "published-ports", "", "`HOST:FIRST-LAST`: additional ports of a host at which listeners can be reached, e.g. 127.0.0.1:30080-30099")
	fl.StringVar(&f.publishedBind, "published-bind", "", "address of this machine on which the cloud opens the ports of --published-ports; set it if another program, such as a container engine, forwards the ports of HOST to this machine (default HOST)")
	fl.BoolVar(&f.claimAddresses, "claim-addresses", false, "add the load balancers' ranges to the addresses of this machine while the cloud runs; needs Linux and CAP_NET_ADMIN")
	fl.BoolVar(&f.showClients, "show-clients", false, "let targets see the source addresses of IPv4 clients that are outside the cloud's networks; targets must route their answers through this machine; needs Linux and CAP_NET_ADMIN")
	fl.StringVar(&f.metadataListen, "metadata-listen", "", "address of the metadata service for instances that share this machine's loopback, e.g. 127.0.0.1:8160")
	fl.BoolVar(&f.metadataTrust, "metadata-trust-loopback", false, trustLoopbackHelp)
	fl.StringSliceVar(&f.dialects, "dialect", nil, "`NAME=HOST:PORT`: API of another cloud to serve as well, e.g. hcloud="+cli.DefaultDialectAddress+"; may be repeated; see 'allinone dialect'")
	f.registry.flags(fl)
	fl.StringVar(&f.issuer, "issuer", "", "URL at which programs find the keys that verify signed identity documents (default the URL of the cloud)")
	fl.StringVar(&f.readyFile, "ready-file", "", "file to which the cloud writes its URL when it is ready; the cloud removes the file when it stops")
	fl.StringVar(&f.tls.Cert, "tls-cert-file", "", "certificate for HTTPS (PEM); a changed file takes effect without a restart; 'allinone certificates' creates the certificate")
	fl.StringVar(&f.tls.Key, "tls-private-key-file", "", "private key of --tls-cert-file (PEM)")
	fl.BoolVar(&f.noDataPlane, "no-data-plane", false, "keep only records: load balancers do not forward, and disks have no data")
	fl.StringSliceVar(&f.quotas, "quota", nil, "default quota `NAME=LIMIT` of projects, e.g. instances=10; may be repeated")
	fl.StringVar(&f.rateRead, "rate-limit-read", "", "limit for the reads of each caller: PERSECOND:BURST, e.g. 10:20; see 'allinone cloud rate-limits'")
	fl.StringVar(&f.rateWrite, "rate-limit-write", "", "limit for the other calls of each caller: PERSECOND:BURST")
	fl.StringVar(&f.rateProject, "project-rate-limit", fmt.Sprintf("%v:%d", d.ProjectRate.PerSecond, d.ProjectRate.Burst), "limit for all calls of a project together, without the calls of callers with a role in all projects: PERSECOND:BURST, or off")
	fl.StringVar(&f.auditFile, "audit-file", "", "`FILE` to which the cloud appends a line of JSON for each call, except calls about the bill and the audit trail")
	fl.BoolVar(&f.logRequests, "log-requests", false, "write a line for each request to the log: info, warn for 4xx, error for 5xx; never secrets")
	fl.StringVar(&f.tracing, "tracing-endpoint", "", "HOST:PORT of an OpenTelemetry collector (OTLP over gRPC, no TLS) for a span of each request")
	fl.StringVar(&f.pprofSocket, "pprof-socket", "", "Unix socket at `PATH` for Go profiles, which contain memory contents: curl --unix-socket PATH http://cloud/debug/pprof/heap -o heap")
	fl.Uint64Var(&f.journalKeep, "journal-keep", d.JournalKeep, "maximum number of events in the journal, for watches that begin at an earlier revision")
	fl.Uint64Var(&f.randSeed, "seed", 0, "seed of random choices other than secrets, for repeatable runs; 0 chooses a random seed")
	fl.StringVar(&f.applyFile, "apply", "", "`FILE` with resources to create before the cloud is ready; see 'allinone cloud apply'")
	fl.StringVar(&f.record, "record", "", "new `FILE` for a transcript of the calls, without watches and secrets, of at most 256 MiB; see 'allinone cloud replay'")
	fl.StringVar(&f.frozenAt, "frozen-at", "", "`TIME` (RFC 3339) that the clock of a new cloud shows; this clock is stopped from the start; see 'allinone cloud clock'")
	fl.DurationVar(&f.diskCooldown, "disk-modify-cooldown", d.DiskCooldown, "minimum time between two modifications of a disk")
	fl.Var(&f.logFormat, "log-format", "log format: text or json")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "verbose logging, with every request")
	return cmd
}

func (f *cloudsimFlags) run(ctx context.Context, log *slog.Logger) (err error) {
	cfg, err := f.config() //nolint:contextcheck // the calls of a dialect have the contexts of their requests
	if err != nil {
		return cloudsim.Misuse(err)
	}
	if err := os.MkdirAll(f.dataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	tokenFile := f.adminTokenFile
	if tokenFile == "" {
		tokenFile = filepath.Join(f.dataDir, "admin.token")
	}
	secret, err := ensureSecret(tokenFile)
	if err != nil {
		return fmt.Errorf("--admin-token-file: %w", err)
	}
	cfg.StateDir = filepath.Join(f.dataDir, "states")
	st, err := store.Open(filepath.Join(f.dataDir, "cloud.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := f.removeReadyFile(); err != nil { // remove the ready file that a killed cloud may have left
		return err
	}
	defer func() { err = errors.Join(err, f.removeReadyFile()) }()
	counters := dataplane.NewCounters()
	if !f.noDataPlane {
		cfg.Meter = counters
		f.disks = diskfiles.Config{Dir: filepath.Join(f.dataDir, "disks")}
		f.disks.Files = diskfiles.NewFiles(f.disks.Dir)
		cfg.DiskFiles = f.disks.Files
	}
	ln, err := f.openListener(log, "--listen "+f.listen[0], f.listen[0])
	if err != nil {
		return err
	}
	if cfg.Registry, err = f.registry.openListener(ctx, filepath.Join(f.dataDir, "registry")); err != nil {
		return errors.Join(err, ln.Close())
	}
	cfg.Issuer = strings.TrimSuffix(cmp.Or(f.issuer, f.url(ln)), "/")
	eng := engine.New(log, st, cfg)
	if err := errors.Join(eng.Prepare(), eng.EnsureAdmin(secret)); err != nil { //nolint:contextcheck // the first transaction, before the first call
		return errors.Join(err, ln.Close())
	}
	return f.serve(ctx, log, ln, eng, cfg, counters, secret)
}

func (f *cloudsimFlags) url(ln net.Listener) string {
	if f.tls.Cert != "" {
		return "https://" + ln.Addr().String()
	}
	return "http://" + ln.Addr().String()
}

// serve runs the engine, its API and the data plane until ctx ends.
func (f *cloudsimFlags) serve(ctx context.Context, log *slog.Logger, ln net.Listener, eng *engine.Engine, cfg engine.Config, counters *dataplane.Counters, secret string) error {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	spans, stopTracing, err := cli.TraceTo(ctx, f.tracing, "allinone-cloudsim", cfg.Issuer)
	if err != nil {
		return errors.Join(fmt.Errorf("--tracing-endpoint: %w", err), ln.Close())
	}
	defer func() {
		if err := stopTracing(); err != nil { // the cloud does not fail if the collector does not answer
			log.Warn("the last spans were not sent", "collector", f.tracing, "err", err)
		}
	}()
	var socket net.Listener
	if f.listenSocket != "" {
		if socket, err = run.Socket(ctx, f.listenSocket); err != nil {
			return errors.Join(fmt.Errorf("--listen-socket: %w", err), ln.Close())
		}
		defer func() { _ = socket.Close() }() // this has an effect only if a later step fails, because Serve closes the socket
	}
	apiCfg := httpapi.Config{Version: cli.Version(), Profile: cfg.Profile.Name, Metrics: metrics, LogRequests: f.logRequests, Tracer: spans}
	if issuer, err := url.Parse(cfg.Issuer); err == nil {
		apiCfg.Hosts = []string{issuer.Hostname()}
	}
	if f.auditFile != "" {
		file, err := os.OpenFile(f.auditFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return errors.Join(fmt.Errorf("--audit-file: %w", err), ln.Close())
		}
		defer func() { _ = file.Close() }()
		apiCfg.Audit = file
	}
	if f.record != "" {
		t, file, err := record(log, eng, f.record)
		if err != nil {
			return errors.Join(err, ln.Close())
		}
		defer func() { _ = file.Close() }() // an error has no effect, because the file already contains the line of each call
		apiCfg.Transcript = t
	}
	api := httpapi.New(log, eng, apiCfg) //nolint:contextcheck // each request has its own context
	if f.applyFile != "" {
		if err := applyAtStart(ctx, log, api, f.applyFile, secret); err != nil {
			return errors.Join(fmt.Errorf("--apply: %w", err), ln.Close())
		}
	}
	pages, webConsole := f.withConsole(log.With("component", "console"), api, secret, apiCfg.Hosts)
	parts := []func(context.Context) error{
		eng.Run, webConsole.Run,
		func(ctx context.Context) error { return httpapi.Serve(ctx, ln, pages, run.Limits{}) },
	}
	if socket != nil {
		parts = append(parts, func(ctx context.Context) error { return httpapi.Serve(ctx, socket, pages, run.Limits{}) })
	}
	for _, addr := range f.listen[1:] {
		further, err := f.openListener(log, "--listen "+addr, addr)
		if err != nil {
			return errors.Join(err, ln.Close())
		}
		defer func() { _ = further.Close() }() // this has an effect only if a later step fails, because Serve closes the listener
		parts = append(parts, func(ctx context.Context) error { return httpapi.Serve(ctx, further, pages, run.Limits{}) })
	}
	served, err := f.serveDialects(log, api, metrics) //nolint:contextcheck // each request has its own context
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	parts = append(parts, served...)
	if f.pprofSocket != "" {
		profiles, err := run.Socket(ctx, f.pprofSocket)
		if err != nil {
			return errors.Join(fmt.Errorf("--pprof-socket: %w", err), ln.Close())
		}
		parts = append(parts, func(ctx context.Context) error { return httpapi.ServeProfiles(ctx, profiles) })
	}
	if !f.noDataPlane {
		plane := dataplane.Config{Registry: metrics, Counters: counters, PublishedBind: f.publishedBind}
		f.setDialTargets(&plane, cfg)
		if f.claimAddresses {
			plane.Claim = cfg.LoadBalancerRanges()
		}
		if plane.ShowClients = f.showClients; f.showClients {
			plane.HideClients = append(cfg.LoadBalancerRanges(), cfg.Instances)
			if p, err := netip.ParsePrefix(cfg.Pods.IPv4); err == nil {
				plane.HideClients = append(plane.HideClients, p)
			}
		}
		parts = append(parts, func(ctx context.Context) error {
			return dataplane.Run(engine.AsCloud(ctx), log.With("component", "dataplane"), plane, eng)
		}, func(ctx context.Context) error {
			return diskfiles.Run(engine.AsCloud(ctx), log.With("component", "disks"), f.disks, eng)
		})
	}
	if f.registry.cfg.Listener != nil {
		parts = append(parts, func(ctx context.Context) error {
			return registry.Run(ctx, log.With("component", "registry"), f.registry.cfg, eng)
		})
	}
	if f.metadataListen != "" {
		part, err := f.openMetadata(ctx, log.With("component", "metadata"), eng)
		if err != nil {
			return errors.Join(err, ln.Close())
		}
		parts = append(parts, part)
	}
	url := f.url(ln)
	log.Info("cloud is up", "url", url, "reference", url+"/docs", "console", url+"/console/", "data", f.dataDir, "profile", cfg.Profile.Name)
	if f.readyFile != "" {
		part := f.readyFile + ".part" // the rename makes the complete file visible in one step for programs that wait for it
		if err := errors.Join(os.WriteFile(part, []byte(url+"\n"), 0o600), os.Rename(part, f.readyFile)); err != nil {
			return errors.Join(fmt.Errorf("--ready-file: %w", err), ln.Close())
		}
	}
	return run.All(ctx, parts...)
}

// removeReadyFile removes the ready file, which contains the cloud's URL. The caller must hold
// the lock of the data directory. Otherwise the method could remove the ready file of another cloud
// that runs with this data directory.
func (f *cloudsimFlags) removeReadyFile() error {
	if f.readyFile == "" {
		return nil
	}
	if err := os.Remove(f.readyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--ready-file: %w", err)
	}
	return nil
}

// openMetadata opens the listener of a metadata service at a loopback or link-local address of this
// machine. It returns the function that serves the metadata.
func (f *cloudsimFlags) openMetadata(ctx context.Context, log *slog.Logger, eng *engine.Engine) (func(context.Context) error, error) {
	ln, err := listenMetadata(ctx, "metadata-listen", f.metadataListen)
	if err != nil {
		return nil, err
	}
	log.Info("metadata service is up", "url", "http://"+ln.Addr().String())
	return func(ctx context.Context) error {
		return metadata.Run(engine.AsCloud(ctx), log, metadata.Config{Listener: ln, Hosts: []string{"localhost"}, TrustLoopback: f.metadataTrust}, eng)
	}, nil
}

// openListener opens a listener at addr. If the flags contain a certificate, the listener uses TLS.
// The parameter flag is the flag with its value, for example "--listen :8181". An error about addr
// begins with this text.
func (f *cloudsimFlags) openListener(log *slog.Logger, flag, addr string) (net.Listener, error) {
	var conf *tls.Config
	if f.tls.Cert != "" {
		var err error
		if conf, err = certs.ServerConfig(log, f.tls, certs.Options{NextProtos: []string{"h2", "http/1.1"}}); err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if conf == nil {
		return ln, nil
	}
	return tls.NewListener(ln, conf), nil
}
