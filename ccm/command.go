package ccm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register"          // without this import, upstream refuses --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_*, workqueue_* and leader_election_* metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric kubernetes_build_info
	"k8s.io/controller-manager/pkg/features"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/internal/providerid"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// These environment variables take precedence over the file of --cloud-config.
// Flags take precedence over these variables.
const (
	EnvURL       = "CLOUDSIM_URL"
	EnvCAFile    = "CLOUDSIM_CA_FILE"
	EnvTokenFile = "CLOUDSIM_TOKEN_FILE" //nolint:gosec // the name of a variable, not a secret
	EnvProject   = "CLOUDSIM_PROJECT"
	EnvRegion    = "CLOUDSIM_REGION"
)

// NewCommand returns upstream's cloud-controller-manager command with this provider. The command
// has upstream's flags, leader election, health checks and metrics. This package adds more flags.
// The command runs until its context ends. If the cloud configuration or a flag is invalid, the
// command returns an error before upstream starts anything. As in upstream's command, the process
// exits when it loses its Lease. It also exits if the API server does not answer within 10 s when
// upstream starts the controllers.
func NewCommand(getenv func(string) string, stderr io.Writer) *cobra.Command {
	return newCommand(getenv, stderr, clientTimeout)
}

func newCommand(getenv func(string) string, stderr io.Writer, silence time.Duration) *cobra.Command {
	opts, err := defaultOptions()
	if err != nil { // upstream's defaults do not match upstream's own scheme
		return &cobra.Command{Use: "ccm", RunE: func(*cobra.Command, []string) error { return err }}
	}
	r := &runner{getenv: getenv, stderr: stderr, clientTimeout: silence, opts: opts, stop: make(chan struct{})}
	cmd := app.NewCloudControllerManagerCommand(opts, r.newProvider, controllerMap(), names.CCMControllerAliases(), r.flags(), r.stop)
	cmd.Use = "ccm"
	cmd.Short = "Run the cloud controller manager: nodes, node life cycle and load balancers"
	cmd.Long = `Run the cloud controller manager of Kubernetes for a simulated cloud. The CCM writes
addresses, zone and type to the Nodes. It deletes the Nodes of deleted instances. It
creates load balancers for Services.`
	cmd.Example = "  allinone ccm --kubeconfig ccm.kubeconfig --cloud-url http://127.0.0.1:8180 --cloud-token-file ccm.token"
	cmd.SilenceUsage = true
	cmd.Flags().Lookup("help").Usage = "help for ccm" // upstream wrote this text with its own command name
	cmd.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	f := cmd.Flags().Lookup("configure-cloud-routes") // upstream's options have no field for this default
	r.failed, f.DefValue = f.Value.Set("false"), "false"
	r.upstream, cmd.RunE = cmd.RunE, r.run
	return cmd
}

// defaultOptions returns upstream's options with changed default values. The
// limits for calls and for concurrent work are higher than upstream's defaults,
// because a cloud on the same machine can answer more calls than a remote
// cloud. If a thousand Nodes join at the same time, the CCM can then initialize
// all of them within one minute, as KEP-2395 requires. The result has no
// webhook options, because this package has no webhooks.
func defaultOptions() (*options.CloudControllerManagerOptions, error) {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	opts.KubeCloudShared.CloudProvider.Name = providerid.Scheme
	opts.Generic.ClientConnection.QPS = 100
	opts.Generic.ClientConnection.Burst = 200
	opts.NodeController.ConcurrentNodeSyncs = 10
	opts.ServiceController.ConcurrentServiceSyncs = 5
	opts.Webhook, opts.WebhookServing = nil, nil
	return opts, nil
}

// clientTimeout is the longest time for which a client of upstream's health and metrics server may
// send nothing. After this time, the server closes the connection. This limit is necessary because
// upstream's code has no timeout for the body of a request. While the server records a CPU profile,
// the client sends nothing. So a CPU profile must take less time than clientTimeout.
const clientTimeout = 25 * time.Second

// runner contains the inputs of the command. The functions that upstream calls
// read these inputs.
type runner struct {
	getenv        func(string) string
	stderr        io.Writer
	clientTimeout time.Duration // the constant clientTimeout, except in tests
	opts          *options.CloudControllerManagerOptions
	flagged       Config // settings from the flags of this package
	cloudFlags    *pflag.FlagSet
	stop          chan struct{}
	upstream      func(*cobra.Command, []string) error
	failed        error // error from newCommand; the method run returns it

	log *slog.Logger // the method run sets this field before upstream calls newProvider
	cfg Config       // the method run sets this field before upstream calls newProvider

	// The method newProvider sets these fields. Before upstream calls
	// newProvider, the fields are nil.
	created *Provider
	gate    *gate
	leases  *leaseReleaser // nil without leader election
}

func (r *runner) flags() cliflag.NamedFlagSets {
	var fss cliflag.NamedFlagSets
	fs := fss.FlagSet("cloud")
	r.cloudFlags = fs
	fs.StringVar(&r.flagged.URL, "cloud-url", "", "URL of the cloud's API. Alternatives: "+EnvURL+", or url in the file of --cloud-config.")
	fs.StringVar(&r.flagged.TokenFile, "cloud-token-file", "", "File with the token for the cloud; read again for each call. Alternatives: "+EnvTokenFile+", or tokenFile in the file of --cloud-config.")
	fs.StringVar(&r.flagged.CAFile, "cloud-ca-file", "", "File with the certificate authority of an https --cloud-url (PEM); the system's authorities if empty. Alternatives: "+EnvCAFile+", or caFile in the file of --cloud-config.")
	fs.StringVar(&r.flagged.Project, "cloud-project", "", "Project of the cluster's resources, for a token with a role in several projects. Alternatives: "+EnvProject+", or project in the file of --cloud-config.")
	fs.StringVar(&r.flagged.Region, "cloud-region", "", "Region of the load balancers; the cloud's only region if empty. Alternatives: "+EnvRegion+", or region in the file of --cloud-config.")
	fs.DurationVar(&r.flagged.NodeDeletionGrace.Duration, "node-deletion-grace", 0, "Time for which an instance must be missing before the CCM deletes its Node (default 0s). Alternative: nodeDeletionGrace in the file of --cloud-config.")
	fs.StringVar(&r.flagged.LoadBalancerClass, "load-balancer-class", "", "The spec.loadBalancerClass of the Services to serve, in addition to Services without a class (default "+DefaultLoadBalancerClass+"). Alternative: loadBalancerClass in the file of --cloud-config.")
	fs.BoolVar(&r.flagged.OnlyLoadBalancerClass, "only-load-balancer-class", false, "Ignore Services without a load balancer class. Alternative: onlyLoadBalancerClass in the file of --cloud-config.")
	fs.StringVar((*string)(&r.flagged.LoadBalancerIPMode), "load-balancer-ip-mode", "", "ipMode in the status of Services without the annotation "+AnnotationLoadBalancerIPMode+": Proxy or VIP (default Proxy). Alternative: loadBalancerIPMode in the file of --cloud-config.")
	fs.BoolVar(&r.flagged.DeleteOrphans, "delete-orphans", false, "Delete the load balancers of this cluster that have no Service. By default the CCM only reports these load balancers. Clusters of one project must have different --cluster-name values. Alternative: deleteOrphans in the file of --cloud-config.")
	fs.DurationVar(&r.flagged.OrphanGrace.Duration, "orphan-grace", 0, "With --delete-orphans: time for which a load balancer must be without a Service before the CCM deletes it (default 10m). Alternative: orphanGrace in the file of --cloud-config.")
	return fss
}

func (r *runner) run(cmd *cobra.Command, args []string) error {
	cfg, err := r.mergeConfig()
	if err := errors.Join(r.failed, cloudsim.Misuse(err), cloudsim.Misuse(r.checkUpstream())); err != nil {
		return err
	}
	v, err := strconv.Atoi(cmd.Flags().Lookup("v").Value.String())
	if err != nil {
		return fmt.Errorf("--v: %w", err)
	}
	r.cfg = cfg
	r.setResync(cmd.Flags().Changed("min-resync-period"))
	r.log = logging.New(r.stderr, slog.Level(-v), logging.Format(cmd.Flags().Lookup("logging-format").Value.String()))
	ctx, cancel := context.WithCancel(cmd.Context())
	defer context.AfterFunc(ctx, func() { close(r.stop) })()
	err = r.upstream(cmd, args)
	cancel() // stops the controllers if upstream's command returned before its context ended
	if r.created == nil {
		return err
	}
	r.created.Stop()
	r.created.Wait()
	r.handOver(context.WithoutCancel(cmd.Context()))
	return err
}

// handOver releases the Leases, so that another process can lead at once.
// Before handOver releases the Leases, it waits until the cloud has answered
// all running calls. If the cloud has not answered all calls after callTimeout,
// handOver does not release the Leases. Another process can then lead only
// after the Leases have expired.
func (r *runner) handOver(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.gate.shut(waiting); err != nil {
		r.log.Warn("Leases not released, because a call to the cloud has not returned yet; another process becomes leader only when the Leases expire", "err", err)
		return
	}
	if r.leases == nil {
		return
	}
	if err := r.leases.releaseAll(ctx); err != nil {
		r.log.Warn("Leases not released; another process becomes leader only when the Leases expire", "err", err)
	}
}

// electionLeases returns a leaseReleaser for the Leases that upstream uses for leader election. It
// returns nil if leader election is disabled.
func (r *runner) electionLeases(c *appconfig.CompletedConfig) *leaseReleaser {
	generic := c.ComponentConfig.Generic
	if !generic.LeaderElection.LeaderElect {
		return nil
	}
	l := &leaseReleaser{
		log: r.log, api: c.Client.CoordinationV1().Leases(generic.LeaderElection.ResourceNamespace),
		main: generic.LeaderElection.ResourceName, all: []string{generic.LeaderElection.ResourceName},
	}
	if generic.LeaderMigration.LeaderName != "" && generic.LeaderMigrationEnabled {
		l.all = append(l.all, generic.LeaderMigration.LeaderName)
	}
	return l
}

// routeResync is the default of --min-resync-period if the feature gate of KEP-5237 (watch-based
// reconciliation of routes) is enabled. The resync period of the informers is one to two times this
// value. With the feature gate, upstream compares the routes with the Nodes only after a change of
// a Node and at each resync. Upstream creates a missing route only after this comparison, and its
// default resync period of 12 to 24 hours would be too long. A resync needs little work: the route
// controller lists the routes of the cloud, and the other controllers compare only cached objects.
const routeResync = time.Minute

func (r *runner) setResync(isChosen bool) {
	if !isChosen && utilfeature.DefaultFeatureGate.Enabled(features.CloudControllerManagerWatchBasedRoutesReconciliation) {
		r.opts.Generic.MinResyncPeriod.Duration = routeResync
	}
}

// checkUpstream returns the errors in upstream's own flags. Without this check,
// upstream would print each error and also return it, so the user would see the
// error twice.
func (r *runner) checkUpstream() error {
	all := app.ControllerNames(controllerMap())
	err := r.opts.Validate(all, app.ControllersDisabledByDefault.List(), names.CCMControllerAliases(), app.AllWebhooks, app.DisabledByDefaultWebhooks)
	if master, path := r.opts.Master, r.opts.Generic.ClientConnection.Kubeconfig; master != "" || path != "" {
		if _, bad := clientcmd.BuildConfigFromFlags(master, path); bad != nil {
			err = errors.Join(err, fmt.Errorf("--kubeconfig: %w", bad))
		}
	} else if _, bad := rest.InClusterConfig(); bad != nil {
		err = errors.Join(err, fmt.Errorf("--kubeconfig is required outside of a cluster (%w)", bad))
	}
	return err
}

// mergeConfig merges the settings of flags, environment and file. Flags take precedence over the
// environment. The environment takes precedence over the file. mergeConfig returns an error if the
// result is invalid, or if --cloud-provider names another provider.
func (r *runner) mergeConfig() (Config, error) {
	if n := r.opts.KubeCloudShared.CloudProvider.Name; n != providerid.Scheme {
		return Config{}, fmt.Errorf("--cloud-provider must be %s, got %q", providerid.Scheme, n)
	}
	cfg := r.flagged.Over(Config{
		URL:       r.getenv(EnvURL),
		TokenFile: r.getenv(EnvTokenFile),
		CAFile:    r.getenv(EnvCAFile),
		Project:   r.getenv(EnvProject),
		Region:    r.getenv(EnvRegion),
	})
	if path := r.opts.KubeCloudShared.CloudProvider.CloudConfigFile; path != "" {
		file, err := ReadConfig(path)
		if err != nil {
			return Config{}, err
		}
		cfg = cfg.Over(file)
	}
	r.applyFlags(&cfg)
	return cfg, cfg.Validate()
}

// applyFlags writes into cfg the value of each flag that the user set explicitly, even if the value
// is an empty string, false or 0. Config.Over treats these values as missing values. applyFlags
// omits the URL, the token file and the CA file, because an empty value of these flags always means
// a missing value.
func (r *runner) applyFlags(cfg *Config) {
	for flag, set := range map[string]func(){
		"cloud-project":            func() { cfg.Project = r.flagged.Project },
		"cloud-region":             func() { cfg.Region = r.flagged.Region },
		"node-deletion-grace":      func() { cfg.NodeDeletionGrace = r.flagged.NodeDeletionGrace },
		"load-balancer-class":      func() { cfg.LoadBalancerClass = r.flagged.LoadBalancerClass },
		"only-load-balancer-class": func() { cfg.OnlyLoadBalancerClass = r.flagged.OnlyLoadBalancerClass },
		"load-balancer-ip-mode":    func() { cfg.LoadBalancerIPMode = r.flagged.LoadBalancerIPMode },
		"delete-orphans":           func() { cfg.DeleteOrphans = r.flagged.DeleteOrphans },
		"orphan-grace":             func() { cfg.OrphanGrace = r.flagged.OrphanGrace },
	} {
		if r.cloudFlags.Changed(flag) {
			set()
		}
	}
}

// newProvider creates the Provider. It also directs the output of klog, the log
// package of Kubernetes, to the log of the command. The method run cannot set
// this output, because upstream sets up klog later and overwrites the output.
func (r *runner) newProvider(c *appconfig.CompletedConfig) cloudprovider.Interface {
	if s := c.SecureServing; s != nil {
		s.Listener = run.LimitSilence(s.Listener, r.clientTimeout)
	}
	logging.Klog(r.log)
	if r.opts.Generic.LeaderMigration.Enabled && r.opts.Generic.LeaderMigration.ControllerMigrationConfig == "" {
		completeMigration(&c.ComponentConfig.Generic.LeaderMigration)
	}
	settings := NewSettings(r.cfg)
	api := settings.client()
	r.gate = &gate{next: api.HTTP.Transport}
	api.HTTP.Transport = r.gate
	r.created = New(r.log, api, settings, c.EventRecorder)
	r.created.instances.setMonitorPeriod(c.ComponentConfig.KubeCloudShared.NodeMonitorPeriod.Duration)
	if r.leases = r.electionLeases(c); r.leases != nil {
		r.created.onLeading = r.leases.setIdentity
	}
	if r.opts.KubeCloudShared.CloudProvider.CloudConfigFile != "" {
		r.created.reread = r.mergeConfig
	}
	return r.created
}
