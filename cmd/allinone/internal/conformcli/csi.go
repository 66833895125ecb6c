package conformcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/csi"
)

type csiFlags struct {
	reportFlags
	upstream, endpoint string
	driver, sanity     string
	modes              []string
	timeout, limit     time.Duration
}

func newCSICommand(e cli.Env) *cobra.Command {
	var f csiFlags
	cmd := &cobra.Command{
		Use:   "csi",
		Short: "Run csi-sanity against a CSI driver with lost replies and crashes",
		Long: `Run upstream's csi-sanity against the CSI driver of any cloud with an HTTP API. The command
starts the driver, and a recording proxy between the driver and the API of its cloud. It runs
csi-sanity once for each mode:

  sanity     no disturbance; the run counts the calls to the cloud
  lostreply  in each RPC, for each kind of change: the cloud executes the change, but the
             driver does not get the first reply
  crash      in attempt 1 of each RPC, the driver is killed at its first call to the cloud; in
             attempt 2, at its second call, and so on

After a disturbance, the command repeats the RPC until it succeeds, as Kubernetes' sidecars do. So
csi-sanity still passes if the driver is idempotent. After each mode, the command compares the
volumes and snapshots of the driver with those before the mode.

The environment variables of --driver-command are CONFORM_API_URL, the URL of the proxy, and
CSI_ENDPOINT, the socket on which the driver must serve. The environment variable of
--sanity-command is CSI_ENDPOINT, the socket that csi-sanity must test. --sanity-command
runs the program csi-sanity, or a Go test with the package
github.com/kubernetes-csi/csi-test/v5/pkg/sanity.

The exit code is 1 if a check fails, or if an action makes too many calls (--baseline).
It is 10 if the run is not complete, for example because the driver does not start.`,
		Example: `  # Hetzner's CSI driver with the real cloud
  go install github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.6.0
  allinone conform csi --upstream https://api.hetzner.cloud/v1 --report ./report \
    --driver-command 'HCLOUD_ENDPOINT=$CONFORM_API_URL exec hcloud-csi-driver -controller -node' \
    --sanity-command 'exec csi-sanity -csi.endpoint $CSI_ENDPOINT -ginkgo.focus "Controller Server"'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), e.Stdout) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.upstream, "upstream", "", "URL of the cloud's API")
	fl.StringVar(&f.driver, "driver-command", "", "shell command that starts the driver; begin the last program with exec")
	fl.StringVar(&f.endpoint, "endpoint", "", "socket of the driver, unix:///PATH (default a temporary socket)")
	fl.StringVar(&f.sanity, "sanity-command", "", "shell command that runs csi-sanity; begin the last program with exec")
	fl.StringSliceVar(&f.modes, "mode", nil, "modes to run, in this order (default sanity,lostreply,crash)")
	fl.DurationVar(&f.timeout, "timeout", csi.DefaultTimeout, "longest time for one RPC with its retries, and for a start of the driver")
	fl.DurationVar(&f.limit, "limit", csi.DefaultLimit, "longest time for one mode")
	f.addTo(fl)
	_ = cmd.RegisterFlagCompletionFunc("mode", cli.Fixed(csi.Modes()...)) // error only for an unknown flag name
	return cmd
}

func (f *csiFlags) run(ctx context.Context, out io.Writer) (err error) {
	switch {
	case f.driver == "":
		return cloudsim.Misuse(errors.New("--driver-command is required"))
	case f.sanity == "":
		return cloudsim.Misuse(errors.New("--sanity-command is required"))
	}
	baseline, err := f.readBaseline()
	if err != nil {
		return err
	}
	p, variable, stop, err := startProxy(ctx, f.upstream)
	if err != nil {
		return err
	}
	defer stop()
	c := csi.Config{
		Proxy: p, Endpoint: f.endpoint, Timeout: f.timeout, Limit: f.limit,
		Driver:   conform.Command{Line: f.driver, Env: []string{variable}},
		Sanity:   conform.Command{Line: f.sanity},
		Progress: func(r conform.Result) { printResult(out, r) },
	}
	for _, m := range f.modes {
		c.Modes = append(c.Modes, csi.Mode(m))
	}
	if err := c.Validate(); err != nil {
		return cloudsim.Misuse(err)
	}
	logs := f.report
	if logs == "" {
		if logs, err = os.MkdirTemp("", "conform-"); err != nil {
			return err
		}
		defer func() {
			if err == nil { // after a failure, the user needs the logs
				err = os.RemoveAll(logs)
			}
		}()
	}
	c.Driver.Log, c.Sanity.Log = filepath.Join(logs, "driver.log"), filepath.Join(logs, "sanity.log")
	r, err := csi.Run(ctx, c)
	if err != nil {
		return cloudsim.Errorf(cloudsim.Unavailable, "%w", err)
	}
	fmt.Fprintln(out, summary(r))
	if err := f.writeReports(r); err != nil {
		return err
	}
	return f.verdict(ctx, r, baseline)
}
