package conformcli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/conform"
)

func newCleanupCommand(e cli.Env) *cobra.Command {
	f := driverFlags{Connection: cli.Connection{Env: e}}
	var kubeconfig, run string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Delete the objects of interrupted runs",
		Long: `Delete the machines, routes and load balancers that interrupted runs have left in the cloud,
and with --kubeconfig also the Services, Nodes and Namespaces of these runs. A run that ends
normally, or after Ctrl-C, needs no cleanup.

The command finds machines by the name of the run that the driver stores in the cloud, for
example in the label conform.cloudsim.dev/run. It finds load balancers and routes by their
machines. If a CCM runs in the cluster, the CCM deletes the load balancers of the Services.
The command does not find a load balancer without targets.

Without --run, the command deletes the objects of all runs, also of runs that still work.`,
		Example: `  allinone conform cleanup --driver hcloud --kubeconfig ./kubeconfig`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.driver == driverFake {
				return cloudsim.Misuse(errors.New("--driver fake: this driver needs no cleanup, because its cloud ends with its process"))
			}
			if err := f.check(); err != nil {
				return err
			}
			return f.cleanup(cmd.Context(), conform.CleanupConfig{Run: run, Timeout: timeout, Deleted: func(kind, name string) {
				fmt.Fprintf(e.Stdout, "%s %s deleted\n", kind, name)
			}}, kubeconfig)
		},
	}
	f.addTo(cmd)
	fl := cmd.Flags()
	fl.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster (default none: the command deletes objects only in the cloud)")
	fl.StringVar(&run, "run", "", "name of a run, from the field run of its report (default all runs)")
	fl.DurationVar(&timeout, "timeout", conform.DefaultTimeout, "longest time to wait until the CCM has deleted the load balancers of the Services")
	return cmd
}

// cleanup sets the fields Driver and Kube of c. If kubeconfig is empty, it does not set Kube. Then
// it deletes the objects that earlier runs of the checks have left.
func (f *driverFlags) cleanup(ctx context.Context, c conform.CleanupConfig, kubeconfig string) (err error) {
	if c.Driver, err = f.openDriver(); err != nil {
		return err
	}
	if kubeconfig != "" {
		if c.Kube, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return cloudsim.Misuse(fmt.Errorf("--kubeconfig: %w", err))
		}
	}
	return conform.Cleanup(ctx, c)
}
