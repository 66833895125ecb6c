package conformcli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/fake"
	"github.com/cloudsim-dev/allinone/conform/httpdriver"
	"github.com/cloudsim-dev/allinone/conform/proxy"
	"github.com/cloudsim-dev/allinone/internal/logging"
)

type runFlags struct {
	driverFlags
	reportFlags
	bug                  string
	kubeconfig, programs string
	ccm, capabilities    string
	upstream, proxy      string
	level, focus, skip   string
	timeout, observe     time.Duration
	parallel             int
	existing, envtest    bool
	claims               []string
	rbac                 string
	limit                time.Duration
}

func newRunCommand(e cli.Env) *cobra.Command {
	f := runFlags{driverFlags: driverFlags{Connection: cli.Connection{Env: e}}}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the checks",
		Long: `Run the checks, and print one line for each check. With --report, write the reports
report.html, report.json, report.md and junit.xml.

Without --kubeconfig, the command starts etcd and kube-apiserver from the folder of
--kube-bin-dir. With --ccm-command, it starts the CCM with the environment variable
KUBECONFIG, and kills and restarts the CCM in some checks. Without --ccm-command, the CCM
must already run in the cluster of --kubeconfig. The driver fake has its own CCM.

Set a short --node-monitor-period for the CCM, such as 1s. --observe must be longer than this
period.

The exit code is 1 if a check of the level MUST fails, or if a number of calls exceeds its
budget (--baseline). It is 10 if the run cannot start or is not complete, for example because
the API server, the driver or the CCM does not answer. It is 130 after Ctrl-C. If a check has
begun, the command deletes the objects of the checks before it exits, and with --report it
writes the reports.`,
		Example: `  # Upstream's controllers with a cloud in memory, with the bug of a leaked load balancer
  allinone conform run --driver fake --bug Leak --focus 'lb\..*'

  # The CCM of this project with a running cloud; start-ccm.sh contains 'exec allinone ccm …'
  allinone conform run --report ./report --routes-cidr 10.244.0.0/16 --ccm-command ./start-ccm.sh`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), e.Stdout) },
	}
	f.driverFlags.addTo(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.bug, "bug", "", "bug that the CCM of the driver fake simulates, such as Leak")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster (default an API server that the command starts)")
	fl.BoolVar(&f.envtest, "envtest", false, "start etcd and kube-apiserver; this is also the default without --kubeconfig")
	fl.StringVar(&f.programs, "kube-bin-dir", "", "folder that contains the program kube, or the programs etcd and kube-apiserver (default $KUBEBUILDER_ASSETS, or the folder of this program)")
	fl.StringVar(&f.ccm, "ccm-command", "", "shell command that starts the CCM; begin the last program with exec")
	fl.StringVar(&f.capabilities, "capabilities", "", "YAML file with the capabilities of the CCM, which replace the capabilities from the driver")
	fl.StringVar(&f.upstream, "upstream", "", "URL of the cloud's API; the command starts a recording proxy for this API, and --ccm-command gets the URL of the proxy in the environment variable CONFORM_API_URL")
	fl.StringVar(&f.proxy, "proxy", "", "control URL of a recording proxy that already runs between the CCM and the cloud's API")
	fl.StringVar(&f.rbac, "ccm-rbac", "", "manifest with the service account and the roles of the CCM; KUBECONFIG of --ccm-command then authenticates as this account")
	fl.StringArrayVar(&f.claims, "claim", nil, "capability of the CCM as YAML, such as 'leaderElection: true', in addition to the capabilities from the driver; may be repeated")
	f.reportFlags.addTo(fl)
	fl.StringVar(&f.level, "level", string(conform.Should), "lowest level of the checks: MUST or SHOULD")
	fl.StringVar(&f.focus, "focus", "", "regular expression that selects checks by their names")
	fl.StringVar(&f.skip, "skip", "", "regular expression of checks to skip")
	fl.DurationVar(&f.timeout, "timeout", conform.DefaultTimeout, "longest time for one reaction of the CCM")
	fl.DurationVar(&f.observe, "observe", conform.DefaultObserve, "time for which a check verifies that the CCM does nothing")
	fl.DurationVar(&f.limit, "limit", conform.DefaultLimit, "longest time for one check; checks that restart the CCM may take several times as long")
	fl.IntVar(&f.parallel, "parallel", conform.DefaultParallel, "maximum number of checks that run at the same time")
	fl.BoolVar(&f.existing, "allow-existing", false, "permit a cluster that already has Nodes")
	return cmd
}

func (f *runFlags) run(ctx context.Context, out io.Writer) (err error) {
	logging.Klog(slog.New(slog.DiscardHandler)) // the driver fake runs upstream's controllers in this process
	c := conform.Config{
		Level: conform.Level(strings.ToUpper(f.level)), Timeout: f.timeout, Observe: f.observe, Limit: f.limit, Parallel: f.parallel, AllowExisting: f.existing,
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
	baseline, err := f.readBaseline()
	if err != nil {
		return err
	}
	c.Budgets = f.baseline != "" || f.writeBaseline != ""
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
		server, err := f.startAPIServer(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = server.Stop() }()
		c.Kube, kubeconfig = server.Admin, filepath.Join(work, "kubeconfig")
		if err := os.WriteFile(kubeconfig, server.Kubeconfig, 0o600); err != nil {
			return err
		}
	} else if c.Kube, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return cloudsim.Misuse(fmt.Errorf("--kubeconfig: %w", err))
	}
	user := ""
	if f.rbac != "" {
		if user, err = f.applyAccount(ctx, c.Kube, &kubeconfig, work); err != nil {
			return fmt.Errorf("--ccm-rbac: %w", err)
		}
	}
	stop, err := f.setDriver(ctx, &c, kubeconfig, work)
	if err != nil {
		return err
	}
	defer stop()
	if c.Capabilities == nil && (len(f.claims) > 0 || user != "") {
		if c.Capabilities, err = f.claimedCapabilities(ctx, c.Driver, user); err != nil {
			return err
		}
	} else if user != "" {
		c.Capabilities.User = user // --ccm-rbac also applies to the file of --capabilities
	}
	if err := c.Validate(); err != nil {
		return cloudsim.Misuse(err)
	}
	r, err := conform.Run(ctx, c)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Unavailable, "%w", err)
	}
	fmt.Fprintln(out, summary(r))
	if err := f.writeReports(r); err != nil {
		return err
	}
	return f.verdict(ctx, r, baseline)
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
		return nil, cloudsim.Misuse(fmt.Errorf("--capabilities: %w", err))
	}
	var c conform.Capabilities
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return nil, cloudsim.Misuse(fmt.Errorf("--capabilities: %s: %w", path, err))
	}
	return &c, nil
}

// applyAccount creates the service account and the roles in the manifest of --ccm-rbac. It returns
// the user name of the account. It writes a kubeconfig file for the account into the folder work,
// and sets *kubeconfig to the path of this file.
func (f *runFlags) applyAccount(ctx context.Context, kube *rest.Config, kubeconfig *string, work string) (user string, err error) {
	file, err := os.Open(f.rbac)
	if err != nil {
		return "", cloudsim.Misuse(err)
	}
	defer file.Close()
	a, err := conform.ApplyAccount(ctx, kube, file)
	_, unreachable := errors.AsType[*url.Error](err)
	_, refused := errors.AsType[*apierrors.StatusError](err)
	if unreachable || refused && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return "", cloudsim.Errorf(cloudsim.Unavailable, "API server: %w", err)
	}
	if err != nil {
		return "", cloudsim.Misuse(fmt.Errorf("%s: %w", f.rbac, err))
	}
	*kubeconfig = filepath.Join(work, "ccm.kubeconfig")
	return a.User, os.WriteFile(*kubeconfig, a.Kubeconfig, 0o600)
}

// claimedCapabilities returns the capabilities of the driver and of --claim. The values of --claim
// take precedence.
func (f *runFlags) claimedCapabilities(ctx context.Context, d conform.Driver, user string) (*conform.Capabilities, error) {
	caps, err := d.Capabilities(ctx)
	if err != nil {
		return nil, cloudsim.Errorf(cloudsim.Unavailable, "driver: capabilities: %w", err)
	}
	caps.User = cmp.Or(user, caps.User)
	for _, text := range f.claims {
		if err := yaml.UnmarshalStrict([]byte(text), &caps); err != nil {
			return nil, cloudsim.Misuse(fmt.Errorf("--claim: %q: %w", text, err))
		}
	}
	return &caps, nil
}

// startAPIServer starts the API server of a run without --kubeconfig.
func (f *runFlags) startAPIServer(ctx context.Context) (*conform.APIServer, error) {
	server, err := conform.StartAPIServer(ctx, f.programDir())
	switch {
	case f.programs != "" && errors.Is(err, conform.ErrNoProgram):
		return nil, cloudsim.Misuse(fmt.Errorf("--kube-bin-dir: %w", err))
	case err != nil:
		return nil, cloudsim.Errorf(cloudsim.Unavailable, "%w", err)
	}
	return server, nil
}

// programDir returns the folder with the programs of the API server. The folder must contain the
// program kube, or the two programs etcd and kube-apiserver.
func (f *runFlags) programDir() string {
	own, err := os.Executable()
	if err != nil {
		own = "."
	}
	return cmp.Or(f.programs, f.Getenv("KUBEBUILDER_ASSETS"), filepath.Dir(own))
}

// checkDriver returns an error if the flags of the driver, the CCM and the API server are invalid
// or conflict.
func (f *runFlags) checkDriver() error {
	switch {
	case f.capabilities != "" && len(f.claims) > 0:
		return cloudsim.Misuse(errors.New("--claim and --capabilities exclude each other: add the claim to the file"))
	case f.envtest && f.kubeconfig != "":
		return cloudsim.Misuse(errors.New("--envtest and --kubeconfig exclude each other"))
	case f.rbac != "" && f.ccm == "":
		return cloudsim.Misuse(errors.New("--ccm-rbac needs --ccm-command"))
	case f.bug != "" && f.driver != driverFake:
		return cloudsim.Misuse(errors.New("--bug needs --driver fake"))
	case f.driver == driverFake && f.ccm != "":
		return cloudsim.Misuse(errors.New("--ccm-command: the driver fake has its own CCM"))
	case f.driver == driverFake && (f.upstream != "" || f.proxy != ""):
		return cloudsim.Misuse(errors.New("--upstream and --proxy cannot be used with the driver fake, because this driver has no API"))
	case f.upstream != "" && f.proxy != "":
		return cloudsim.Misuse(errors.New("--upstream and --proxy exclude each other"))
	case f.upstream != "" && f.ccm == "":
		return cloudsim.Misuse(errors.New("--upstream needs --ccm-command, because the CCM must call the proxy: use --proxy for a CCM that already runs"))
	case f.bug != "" && !slices.Contains(fake.Bugs(), fake.Bug(f.bug)):
		return cloudsim.Misuse(fmt.Errorf("--bug: unknown bug %q: want one of %v", f.bug, fake.Bugs()))
	case f.driver == driverFake && f.dialect != "":
		return cloudsim.Misuse(errors.New("--dialect: the driver fake has no API"))
	case f.driver == driverFake:
		return nil
	}
	return f.check()
}

// setDriver sets the driver and the CCM of c. The returned function stops the recording proxy.
func (f *runFlags) setDriver(ctx context.Context, c *conform.Config, kubeconfig, work string) (stop func(), err error) {
	stop = func() {}
	if f.driver == driverFake {
		cloud := fake.NewCloud()
		c.Driver, c.Subject = cloud, &fake.Manager{Kube: c.Kube, Cloud: cloud, Bug: fake.Bug(f.bug)}
		return stop, nil
	}
	if c.Driver, err = f.openDriver(); err != nil {
		return stop, err
	}
	env := []string{"KUBECONFIG=" + kubeconfig}
	switch {
	case f.proxy != "":
		control, err := httpdriver.New(f.proxy)
		if err != nil {
			return stop, cloudsim.Misuse(fmt.Errorf("--proxy: %w", err))
		}
		c.Driver = conform.WithFaults(c.Driver, control, proxy.Kinds()...)
	case f.upstream != "":
		p, variable, stopProxy, err := startProxy(ctx, f.upstream)
		if err != nil {
			return stop, err
		}
		stop = stopProxy
		c.Driver = conform.WithFaults(c.Driver, p, proxy.Kinds()...)
		env = append(env, variable)
	}
	if f.ccm != "" {
		c.Subject = &conform.Command{Line: f.ccm, Env: env, Log: filepath.Join(cmp.Or(f.report, work), "ccm.log")}
	}
	return stop, nil
}
