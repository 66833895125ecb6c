package conformcli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/cloudsimdriver"
	"github.com/cloudsim-dev/allinone/conform/fake"
	"github.com/cloudsim-dev/allinone/conform/httpdriver"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// These are the drivers.
const (
	driverCloudsim = "cloudsim"
	driverFake     = "fake"
)

// runFlags contains the flags of "allinone conform run".
type runFlags struct {
	cli.Connection
	driver, account, bug      string
	kubeconfig, programs      string
	ccm, capabilities, report string
	level, focus, skip        string
	timeout, observe          time.Duration
	parallel                  int
	existing                  bool
	clusterCIDR               string
}

func newRunCommand(e cli.Env) *cobra.Command {
	f := runFlags{Connection: cli.Connection{Env: e}}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the checks",
		Long: `Run the checks, print one line for each check, and write the reports report.json,
report.md and junit.xml.

Without --kubeconfig, the command starts etcd and kube-apiserver from the folder of
--kube-bin-dir. With --ccm-command, it starts the CCM with the environment variable
KUBECONFIG, and kills and restarts the CCM in some checks. Without --ccm-command, the CCM
must already run.

Set a short --node-monitor-period for the CCM, such as 1s. --observe must be longer than this
period. The exit code is 1 if a check of the level MUST fails.`,
		Example: `  # Upstream's controllers with a cloud in memory, with the bug of a leaked load balancer
  allinone conform run --driver fake --bug Leak --focus 'lb\..*'

  # The CCM of this project with a running cloud; start-ccm.sh contains 'exec allinone ccm …'
  allinone conform run --report ./report --routes-cidr 10.244.0.0/16 --ccm-command ./start-ccm.sh`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), e.Stdout) },
	}
	f.ConnectionFlags(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.driver, "driver", driverCloudsim, "cloud of the CCM: cloudsim for the cloud at --cloud-url, fake for a cloud and a CCM in this process, or the URL of a driver")
	fl.StringVar(&f.bug, "bug", "", "bug of the CCM of the driver fake, such as Leak")
	fl.StringVar(&f.account, "ccm-account", "ccm", "service account or token (name) that the CCM uses, for faults and for counted calls")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster; absent for an API server that the command starts")
	fl.StringVar(&f.programs, "kube-bin-dir", "", "folder with kube, or with etcd and kube-apiserver (default $KUBEBUILDER_ASSETS, or the folder of allinone)")
	fl.StringVar(&f.ccm, "ccm-command", "", "shell command that starts the CCM; begin it with exec")
	fl.StringVar(&f.capabilities, "capabilities", "", "YAML file with the capabilities of the CCM, which replace the capabilities from the driver")
	fl.StringVar(&f.clusterCIDR, "routes-cidr", "", "IPv4 range for pods (--cluster-cidr of the CCM); absent if the CCM creates no routes")
	fl.StringVar(&f.report, "report", "", "folder for the reports; absent for no reports")
	fl.StringVar(&f.level, "level", string(conform.Should), "lowest level of the checks: MUST or SHOULD")
	fl.StringVar(&f.focus, "focus", "", "regular expression that selects checks by their names")
	fl.StringVar(&f.skip, "skip", "", "regular expression of checks to skip")
	fl.DurationVar(&f.timeout, "timeout", conform.DefaultTimeout, "longest time for one reaction of the CCM")
	fl.DurationVar(&f.observe, "observe", conform.DefaultObserve, "time for which a check waits for a forbidden reaction")
	fl.IntVar(&f.parallel, "parallel", conform.DefaultParallel, "number of checks that run at the same time")
	fl.BoolVar(&f.existing, "allow-existing", false, "permit a cluster that already has Nodes")
	return cmd
}

// errMust is the error if a check of the level MUST fails.
var errMust = errors.New("checks of the level MUST failed")

func (f *runFlags) run(ctx context.Context, out io.Writer) (err error) {
	logging.Klog(slog.New(slog.DiscardHandler)) // the driver fake runs upstream's controllers in this process
	c := conform.Config{
		Level: conform.Level(strings.ToUpper(f.level)), Timeout: f.timeout, Observe: f.observe, Parallel: f.parallel, AllowExisting: f.existing,
		Progress: func(r conform.Result) { printResult(out, r) },
	}
	if c.Focus, err = expression("focus", f.focus); err != nil {
		return err
	}
	if c.Skip, err = expression("skip", f.skip); err != nil {
		return err
	}
	if f.capabilities != "" {
		if c.Capabilities, err = readCapabilities(f.capabilities); err != nil {
			return err
		}
	}
	if err := f.checkDriver(); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "conform-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	kubeconfig := f.kubeconfig
	if kubeconfig == "" {
		server, err := conform.StartAPIServer(ctx, f.programDir())
		if err != nil {
			return err
		}
		defer func() { _ = server.Stop() }()
		c.Kube, kubeconfig = server.Admin, filepath.Join(work, "kubeconfig")
		if err := os.WriteFile(kubeconfig, server.Kubeconfig, 0o600); err != nil {
			return err
		}
	} else if c.Kube, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	if err := f.setDriver(&c, c.Kube, kubeconfig, work); err != nil {
		return err
	}
	r, err := conform.Run(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, summary(r))
	if err := f.write(r); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if must, _ := r.Failed(); must > 0 {
		return fmt.Errorf("%d %w", must, errMust)
	}
	return nil
}

func expression(flag, s string) (*regexp.Regexp, error) {
	if s == "" {
		return nil, nil
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return nil, cloudsim.Misuse(fmt.Errorf("--%s: %w", flag, err))
	}
	return re, nil
}

func readCapabilities(path string) (*conform.Capabilities, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--capabilities: %w", err)
	}
	var c conform.Capabilities
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return nil, cloudsim.Misuse(fmt.Errorf("--capabilities: %s: %w", path, err))
	}
	return &c, nil
}

// programDir returns the folder with the programs of the API server.
func (f *runFlags) programDir() string {
	own, err := os.Executable()
	if err != nil {
		own = "."
	}
	return cmp.Or(f.programs, f.Getenv("KUBEBUILDER_ASSETS"), filepath.Dir(own))
}

// checkDriver returns an error if the flags of the driver are wrong.
func (f *runFlags) checkDriver() error {
	switch {
	case f.bug != "" && f.driver != driverFake:
		return cloudsim.Misuse(errors.New("--bug needs --driver fake"))
	case f.driver == driverFake && f.ccm != "":
		return cloudsim.Misuse(errors.New("--ccm-command: the driver fake has its own CCM"))
	case f.bug != "" && !slices.Contains(fake.Bugs(), fake.Bug(f.bug)):
		return cloudsim.Misuse(fmt.Errorf("--bug: there is no bug %q: want one of %v", f.bug, fake.Bugs()))
	case f.driver == driverFake || f.driver == driverCloudsim:
		return nil
	}
	if _, err := httpdriver.New(f.driver); err != nil {
		return cloudsim.Misuse(fmt.Errorf("--driver: want %s, %s or the URL of a driver: %w", driverCloudsim, driverFake, err))
	}
	return nil
}

// setDriver sets the driver and the CCM of c.
func (f *runFlags) setDriver(c *conform.Config, kube *rest.Config, kubeconfig, work string) error {
	switch f.driver {
	case driverFake:
		cloud := fake.NewCloud()
		c.Driver, c.Subject = cloud, &fake.Manager{Kube: kube, Cloud: cloud, Bug: fake.Bug(f.bug)}
		return nil
	case driverCloudsim:
		cl, err := f.Client()
		if err != nil {
			return err
		}
		c.Driver = &cloudsimdriver.Driver{Cloud: cl, Caller: f.account, Claims: conform.Capabilities{
			Provider: providerid.Scheme, ProviderIDPrefix: providerid.Scheme + "://", Zones: true, Shutdown: true, LoadBalancers: true, SourceRanges: true, UDP: true,
			Routes: f.clusterCIDR != "", ClusterCIDR: f.clusterCIDR,
		}}
	default:
		d, err := httpdriver.New(f.driver)
		if err != nil {
			return err
		}
		c.Driver = d
	}
	if f.ccm != "" {
		c.Subject = &conform.Command{Line: f.ccm, Env: []string{"KUBECONFIG=" + kubeconfig}, Log: filepath.Join(cmp.Or(f.report, work), "ccm.log")}
	}
	return nil
}

// printResult prints one line, and the reason on a second line if the check did not pass.
func printResult(out io.Writer, r conform.Result) {
	fmt.Fprintf(out, "%-11s  %-6s  %-16s  %5.1f s\n", r.Verdict, r.Level, r.ID, r.Took.Seconds())
	if r.Reason != "" {
		fmt.Fprintln(out, "    "+strings.ReplaceAll(r.Reason, "\n", "\n    "))
	}
}

// write writes the reports.
func (f *runFlags) write(r conform.Report) error {
	if f.report == "" {
		return nil
	}
	if err := os.MkdirAll(f.report, 0o700); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	for name, write := range map[string]func(io.Writer) error{"report.json": r.WriteJSON, "report.md": r.WriteMarkdown, "junit.xml": r.WriteJUnit} {
		file, err := os.Create(filepath.Join(f.report, name))
		if err != nil {
			return fmt.Errorf("--report: %w", err)
		}
		if err := errors.Join(write(file), file.Close()); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
	}
	return nil
}
