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
	_ "k8s.io/component-base/logs/json/register"          // or upstream refuses --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client_*, workqueue_* and leader_election_* metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/controller-manager/pkg/features"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/internal/providerid"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// Environment variables that stand below the flags and above the file of
// --cloud-config.
const (
	EnvURL       = "CLOUDSIM_URL"
	EnvCAFile    = "CLOUDSIM_CA_FILE"
	EnvTokenFile = "CLOUDSIM_TOKEN_FILE" //nolint:gosec // the name of a variable, not a secret
	EnvProject   = "CLOUDSIM_PROJECT"
	EnvRegion    = "CLOUDSIM_REGION"
)

// NewCommand returns upstream's cloud-controller-manager with this provider:
// its flags, leader election, health and metrics, and four flags of ours. It
// runs until its context ends. What is wrong with the cloud's configuration it
// returns before upstream starts anything; as upstream does, it exits when it
// loses its lease, and when the API server does not answer within 10 s.
func NewCommand(getenv func(string) string, stderr io.Writer) *cobra.Command {
	return newCommand(getenv, stderr, silence)
}

func newCommand(getenv func(string) string, stderr io.Writer, silence time.Duration) *cobra.Command {
	opts, err := defaults()
	if err != nil { // upstream's defaults do not fit upstream's scheme
		return &cobra.Command{Use: "ccm", RunE: func(*cobra.Command, []string) error { return err }}
	}
	r := &runner{getenv: getenv, stderr: stderr, silence: silence, opts: opts, stop: make(chan struct{})}
	cmd := app.NewCloudControllerManagerCommand(opts, r.provider, controllers(), names.CCMControllerAliases(), r.flags(), r.stop)
	cmd.Use = "ccm"
	cmd.Short = "Run the cloud controller manager: nodes, node life cycle and load balancers"
	cmd.Long = `The cloud controller manager of Kubernetes for a simulated cloud. It gives nodes
their addresses, zone and type, deletes those whose instance is gone, and makes
load balancers for Services.`
	cmd.Example = "  allinone ccm --kubeconfig ccm.kubeconfig --cloud-url http://127.0.0.1:8180 --cloud-token-file ccm.token"
	cmd.SilenceUsage = true
	cmd.Flags().Lookup("help").Usage = "help for ccm" // upstream named it before we did
	cmd.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	f := cmd.Flags().Lookup("configure-cloud-routes") // for its default upstream has no option
	r.failed, f.DefValue = f.Value.Set("false"), "false"
	r.upstream, cmd.RunE = cmd.RunE, r.run
	return cmd
}

// defaults are upstream's options, where ours differ: a cloud that is near can
// take more calls at a time, so that a thousand nodes that join together are
// initialised within the minute that KEP-2395 promises; and there is no
// certificate to make for webhooks, because there are none.
func defaults() (*options.CloudControllerManagerOptions, error) {
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

// silence is how long a client of upstream's health and metrics server may send
// nothing. Upstream waits for a request's body without end. A CPU profile that
// takes longer is cut off.
const silence = 25 * time.Second

// runner carries what the command was given to the places where upstream asks.
type runner struct {
	getenv   func(string) string
	stderr   io.Writer
	silence  time.Duration // see the constant
	opts     *options.CloudControllerManagerOptions
	flagged  Config // from our flags
	ours     *pflag.FlagSet
	stop     chan struct{}
	upstream func(*cobra.Command, []string) error
	failed   error // while the command was made

	log *slog.Logger // set by run, before provider is called
	cfg Config       // likewise

	// Made by provider; nil before.
	made   *Provider
	gate   *gate
	leases *leases // nil without an election
}

func (r *runner) flags() cliflag.NamedFlagSets {
	var fss cliflag.NamedFlagSets
	fs := fss.FlagSet("cloud")
	r.ours = fs
	fs.StringVar(&r.flagged.URL, "cloud-url", "", "URL of the cloud's API. Also "+EnvURL+", or url in the file of --cloud-config.")
	fs.StringVar(&r.flagged.TokenFile, "cloud-token-file", "", "File that holds the token to call the cloud with; read again for every call. Also "+EnvTokenFile+", or tokenFile in the file of --cloud-config.")
	fs.StringVar(&r.flagged.CAFile, "cloud-ca-file", "", "File with the certificate authority of an https --cloud-url (PEM); the system's authorities if empty. Also "+EnvCAFile+", or caFile in the file of --cloud-config.")
	fs.StringVar(&r.flagged.Project, "cloud-project", "", "Project to work in, for an admin's token. Also "+EnvProject+", or project in the file of --cloud-config.")
	fs.StringVar(&r.flagged.Region, "cloud-region", "", "Region to make load balancers in; the cloud's only one if empty. Also "+EnvRegion+", or region in the file of --cloud-config.")
	fs.DurationVar(&r.flagged.NodeDeletionGrace.Duration, "node-deletion-grace", 0, "How long an instance must be gone until its Node is deleted. Also nodeDeletionGrace in the file of --cloud-config.")
	fs.StringVar(&r.flagged.LoadBalancerClass, "load-balancer-class", "", "The spec.loadBalancerClass to serve beside Services that name none (default "+DefaultLoadBalancerClass+"). Also loadBalancerClass in the file of --cloud-config.")
	fs.BoolVar(&r.flagged.OnlyLoadBalancerClass, "only-load-balancer-class", false, "Leave Services that name no class to somebody else. Also onlyLoadBalancerClass in the file of --cloud-config.")
	fs.StringVar((*string)(&r.flagged.LoadBalancerIPMode), "load-balancer-ip-mode", "", "What Services publish that do not choose by annotation: Proxy or VIP (default Proxy). Also loadBalancerIPMode in the file of --cloud-config.")
	fs.BoolVar(&r.flagged.DeleteOrphans, "delete-orphans", false, "Delete load balancers of this cluster whose Service is gone, instead of only reporting them. Clusters of one project must have a --cluster-name each. Also deleteOrphans in the file of --cloud-config.")
	fs.DurationVar(&r.flagged.OrphanGrace.Duration, "orphan-grace", 0, "How long a load balancer must have been an orphan before it is deleted (default 10m). Also orphanGrace in the file of --cloud-config.")
	return fss
}

func (r *runner) run(cmd *cobra.Command, args []string) error {
	cfg, err := r.config()
	if err := errors.Join(r.failed, cloudsim.Misuse(err), cloudsim.Misuse(r.checkUpstream())); err != nil {
		return err
	}
	v, err := strconv.Atoi(cmd.Flags().Lookup("v").Value.String())
	if err != nil {
		return fmt.Errorf("--v: %w", err)
	}
	r.cfg = cfg
	r.resync(cmd.Flags().Changed("min-resync-period"))
	r.log = logging.New(r.stderr, slog.Level(-v), logging.Format(cmd.Flags().Lookup("logging-format").Value.String()))
	ctx, cancel := context.WithCancel(cmd.Context())
	defer context.AfterFunc(ctx, func() { close(r.stop) })()
	err = r.upstream(cmd, args)
	cancel() // the controllers also stop when upstream's command returned by itself
	if r.made == nil {
		return err
	}
	r.made.Stop()
	r.made.Wait()
	r.handOver(context.WithoutCancel(cmd.Context()))
	return err
}

// handOver lets another process lead at once. As long as a call to the cloud is
// not answered it waits for it; after callTimeout the Leases run out instead.
func (r *runner) handOver(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.gate.shut(waiting); err != nil {
		r.log.Warn("the Leases are not given up: a call to the cloud is not answered", "err", err)
		return
	}
	if r.leases == nil {
		return
	}
	if err := r.leases.release(ctx); err != nil {
		r.log.Warn("another process leads when the Leases have run out", "err", err)
	}
}

// elected are the Leases that upstream elects by; nil if it does not.
func (r *runner) elected(c *appconfig.CompletedConfig) *leases {
	generic := c.ComponentConfig.Generic
	if !generic.LeaderElection.LeaderElect {
		return nil
	}
	l := &leases{
		log: r.log, api: c.Client.CoordinationV1().Leases(generic.LeaderElection.ResourceNamespace),
		main: generic.LeaderElection.ResourceName, all: []string{generic.LeaderElection.ResourceName},
	}
	if generic.LeaderMigration.LeaderName != "" && generic.LeaderMigrationEnabled {
		l.all = append(l.all, generic.LeaderMigration.LeaderName)
	}
	return l
}

// routeResync is how often routes are compared with the nodes behind the gate of
// KEP-5237, where a route that could not be made, or that somebody deleted, waits
// for the next change of a node or for the informers to repeat themselves, which
// by upstream's default is in 12 to 24 hours. It costs the cloud one list of
// routes, and the other controllers a look at their caches.
const routeResync = time.Minute

// resync has informers repeat themselves often enough for routes, unless somebody
// chose how often.
func (r *runner) resync(chosen bool) {
	if !chosen && utilfeature.DefaultFeatureGate.Enabled(features.CloudControllerManagerWatchBasedRoutesReconciliation) {
		r.opts.Generic.MinResyncPeriod.Duration = routeResync
	}
}

// checkUpstream finds what upstream would find wrong with its own flags, and
// would print by itself as well as return.
func (r *runner) checkUpstream() error {
	all := app.ControllerNames(controllers())
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

// config is flag over environment over file.
func (r *runner) config() (Config, error) {
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
	r.insist(&cfg)
	return cfg, cfg.Validate()
}

// insist has the flags that were given decide where Over cannot tell: what is
// empty, false or 0 is what is left out, too.
func (r *runner) insist(cfg *Config) {
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
		if r.ours.Changed(flag) {
			set()
		}
	}
}

// provider is upstream's first question after it read its flags and set up its
// own logging, which is why ours comes here.
func (r *runner) provider(c *appconfig.CompletedConfig) cloudprovider.Interface {
	if s := c.SecureServing; s != nil {
		s.Listener = run.LimitSilence(s.Listener, r.silence)
	}
	logging.Klog(r.log)
	if r.opts.Generic.LeaderMigration.Enabled && r.opts.Generic.LeaderMigration.ControllerMigrationConfig == "" {
		migrating(&c.ComponentConfig.Generic.LeaderMigration)
	}
	settings := NewSettings(r.cfg)
	api := settings.client()
	r.gate = &gate{next: api.HTTP.Transport}
	api.HTTP.Transport = r.gate
	r.made = New(r.log, api, settings, c.EventRecorder)
	if r.leases = r.elected(c); r.leases != nil {
		r.made.leads = r.leases.lead
	}
	if r.opts.KubeCloudShared.CloudProvider.CloudConfigFile != "" {
		r.made.reread = r.config
	}
	return r.made
}
