package labcli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/servecli"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/lab"
)

// NewComposeCommand returns the command "allinone compose".
func NewComposeCommand(e cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compose",
		Short: "What docker-compose.yaml runs beside the components",
		Long: `What docker-compose.yaml runs beside the components: a service that makes keys, one
that puts into cloud and cluster what they begin with, one that makes instances
nodes, and the question whether a component is ready.

Nobody types these; 'docker compose up' does.`,
		Example: `  docker compose up --detach
  docker compose exec toolbox bash

  # What its health checks ask
  allinone compose probe http://127.0.0.1:8180/readyz`,
	}
	cmd.AddCommand(newComposeInitCommand(e), newComposeSeedCommand(e), newComposeCloudCommand(e), newComposeHypervisorCommand(e),
		newComposeRouterCommand(e), newComposeMachinesCommand(e), newComposeEnterCommand(), newComposeAddonsCommand(e), newComposeFurnishCommand(e), newComposeProbeCommand())
	return cmd
}

// nodesFlag adds the flag for the type of the cluster's nodes: hollow or real.
func nodesFlag(fl *pflag.FlagSet, nodes *lab.Nodes) {
	fl.StringVar((*string)(nodes), "nodes", string(lab.Hollow), "what an instance is: hollow, or real")
}

// composedFlag adds the flag for the folder that contains the services' folders.
func composedFlag(fl *pflag.FlagSet, dir *string) {
	fl.StringVar(dir, "dir", "/lab", "folder with a folder for each service")
}

func newComposeInitCommand(e cli.Env) *cobra.Command {
	var dir, published string
	var nodes lab.Nodes
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make keys, and write what each service reads",
		Long: `Make keys and certificates, those that are missing or about to expire, and write
what each service reads into a folder of its own.`,
		Example: `  allinone compose init --dir /lab`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			made, err := lab.Composed(dir).Init(published, nodes)
			if len(made) > 0 {
				fmt.Fprintf(e.Stdout, "made %d keys and certificates: %s\n", len(made), strings.Join(made, ", "))
			}
			return err
		},
	}
	composedFlag(cmd.Flags(), &dir)
	nodesFlag(cmd.Flags(), &nodes)
	cmd.Flags().StringVar(&published, "published-api", "https://127.0.0.1:8181", "`URL` of kube-apiserver for the kubeconfig that is used outside of the containers")
	return cmd
}

func newComposeSeedCommand(e cli.Env) *cobra.Command {
	var dir string
	var nodes lab.Nodes
	instances := lab.Default().Instances
	cmd := &cobra.Command{
		Use:   "seed",
		Short: "Put into cloud and cluster what services begin with",
		Long: `Put into the cluster the roles of the lab's own users, and into the cloud the
service accounts of the services, whose tokens are written for them; the first
time also instances.`,
		Example: `  allinone compose seed --instances 3`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := lab.Composed(dir).Seed(cmd.Context(), instances, nodes); err != nil {
				return err
			}
			_, err := fmt.Fprintln(e.Stdout, "the cloud and the cluster have their first objects")
			return err
		},
	}
	composedFlag(cmd.Flags(), &dir)
	nodesFlag(cmd.Flags(), &nodes)
	cmd.Flags().IntVar(&instances, "instances", instances, "how many instances the first start creates")
	return cmd
}

func newComposeHypervisorCommand(e cli.Env) *cobra.Command {
	return composeWork(e, lab.Composed.Hypervise, cobra.Command{
		Use:   "hypervisor",
		Short: "Make the cloud's instances hollow nodes",
		Long: `Make the cloud's instances hollow nodes, which kwok keeps alive. It must be in the
network of the cloud's load balancers: what answers for nodes listens there.`,
		Example: `  allinone compose hypervisor --dir /lab`,
	})
}

func newComposeRouterCommand(e cli.Env) *cobra.Command {
	return composeWork(e, lab.Composed.Route, cobra.Command{
		Use:   "router",
		Short: "Make the network of real machines, and route in it",
		Long: `Make the network that real machines are in, and be its router: it has the routes of
the cloud's table, the metadata service, and the way to kube-apiserver. It must be
in the network of the cloud's load balancers. When it ends machines go on, and
the next router has their cables.

It says which instances have been running for some time, as the cloud has it, and
have no machine, because no host serves their zone.`,
		Example: `  allinone compose router --dir /lab`,
	})
}

func newComposeMachinesCommand(e cli.Env) *cobra.Command {
	var zones []string
	work := func(c lab.Composed, ctx context.Context, log *slog.Logger) error { return c.Machines(ctx, log, zones) }
	cmd := composeWork(e, work, cobra.Command{
		Use:   "machines",
		Short: "Make the cloud's instances in some zones real machines",
		Long: `Make the cloud's instances in some zones machines with a kubelet, in the container
that it is alone in, as a host of a cloud does that stands in a zone: see
docs/howto/compose.md for the rights that this takes. It must be in the network of
'allinone compose router'. When it is killed its machines are dead, and it boots
them when it is back; when it is stopped it shuts them down.`,
		Example: `  allinone compose machines --zone sim-1a
  allinone compose machines --zone sim-1b --zone sim-1c`,
	})
	cmd.Flags().StringSliceVar(&zones, "zone", nil, "zone whose instances it makes machines; repeated for more (default: all)")
	return cmd
}

// composeWork completes the command of a service that runs until it is stopped.
func composeWork(e cli.Env, work func(lab.Composed, context.Context, *slog.Logger) error, cmd cobra.Command) *cobra.Command {
	var dir string
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		log := logging.New(e.Stderr, slog.LevelInfo, logging.Text)
		logging.Klog(log)
		return work(lab.Composed(dir), cmd.Context(), log)
	}
	composedFlag(cmd.Flags(), &dir)
	return &cmd
}

// newComposeCloudCommand returns the cloudsim command with address ranges that suit the
// nodes of --nodes.
func newComposeCloudCommand(e cli.Env) *cobra.Command {
	var nodes lab.Nodes
	cmd := servecli.NewCloudsimCommand(e)
	cmd.Use, cmd.Short = "cloud", "Serve the cloud, with addresses for such nodes"
	cmd.Long = `Serve the simulated cloud as 'allinone cloudsim' does, with addresses that suit the
nodes: hollow ones have theirs on loopback, real ones in a network of the cloud's.`
	cmd.Example = `  allinone compose cloud --nodes real --data-dir /data`
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		var errs []error
		for name, value := range lab.ComposedCloudFlags(nodes) {
			errs = append(errs, cmd.Flags().Set(name, value))
		}
		return errors.Join(errs...)
	}
	nodesFlag(cmd.Flags(), &nodes)
	return cmd
}

func newComposeEnterCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "enter NODE [COMMAND [ARGUMENT...]]",
		Short: "A shell on a real node, or a command there",
		Long: `Run a shell, or a command, on a real node, as 'allinone enter' does. It must run in the container of the host
that the node's machine is on.`,
		Example: `  docker compose exec node-sim-1a allinone compose enter node-1`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return enter(lab.Composed(dir), args[0], args[1:])
		},
	}
	composedFlag(cmd.Flags(), &dir)
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func newComposeAddonsCommand(e cli.Env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "addons",
		Short: "Install the add-ons that real machines need into the cluster",
		Long: `Install the cluster's name server, the permission to pull images, the snapshot
definitions and the storage classes.`,
		Example: `  allinone compose addons --dir /lab`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := lab.Composed(dir).InstallAddons(cmd.Context()); err != nil {
				return err
			}
			_, err := fmt.Fprintln(e.Stdout, "the cluster has a name server and storage classes")
			return err
		},
	}
	composedFlag(cmd.Flags(), &dir)
	return cmd
}

// newComposeFurnishCommand returns the addons command under the name that it had before
// v0.1.0.
func newComposeFurnishCommand(e cli.Env) *cobra.Command {
	cmd := newComposeAddonsCommand(e)
	cmd.Use, cmd.Hidden, cmd.Deprecated = "furnish", true, "use 'allinone compose addons'"
	cmd.Example = "  allinone compose furnish --dir /lab"
	return cmd
}

func newComposeProbeCommand() *cobra.Command {
	var ca, client string
	cmd := &cobra.Command{
		Use:   "probe URL",
		Short: "Fail unless a component is ready",
		Long: `Ask a component once whether it is ready, for health checks in containers that
have no shell: it fails unless the answer is 200.`,
		Example: `  allinone compose probe http://127.0.0.1:8180/readyz
  allinone compose probe --ca /lab/ccm/ca.crt https://127.0.0.1:10258/healthz`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if client != "" && ca == "" {
				return errors.New("--client needs --ca: a certificate is shown over TLS")
			}
			return lab.Probe(cmd.Context(), args[0], ca, client)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&ca, "ca", "", "authority of the component (PEM)")
	fl.StringVar(&client, "client", "", "certificate to show: NAME.crt, with its key NAME.key, without the ends")
	return cmd
}
