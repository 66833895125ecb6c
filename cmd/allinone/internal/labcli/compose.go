package labcli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/servecli"
	"github.com/cloudsim-dev/allinone/internal/logging"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/compose"
	"github.com/cloudsim-dev/allinone/lab/process"
	"github.com/cloudsim-dev/allinone/lab/real"
)

// NewComposeCommand returns the command "allinone compose".
func NewComposeCommand(e cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compose",
		Short: "Run the helper services of docker-compose.yaml",
		Long: `Run the helper services of docker-compose.yaml. These services create the keys and the
first objects of the cloud and the cluster, run the nodes of the instances, and probe
components.

'docker compose up' runs these commands. You do not need to type them.`,
		Example: `  docker compose up --detach
  docker compose exec toolbox bash

  # A probe that the health checks of the services use
  allinone compose probe http://127.0.0.1:8180/readyz`,
	}
	cmd.AddCommand(newComposeInitCommand(e), newComposeSeedCommand(e), newComposeCloudCommand(e), newComposeHypervisorCommand(e),
		newComposeRouterCommand(e), newComposeMachinesCommand(e), newComposeEnterCommand(), newComposeImagesCommand(e), newComposeAddonsCommand(e), newComposeFurnishCommand(e), newComposeProbeCommand())
	return cmd
}

func nodesFlag(fl *pflag.FlagSet, nodes *lab.Nodes) {
	fl.StringVar((*string)(nodes), "nodes", string(lab.Hollow), "kind of nodes: hollow or real")
}

func composedFlag(fl *pflag.FlagSet, dir *string) {
	fl.StringVar(dir, "dir", "/lab", "folder that contains the folders of the services")
}

func newComposeInitCommand(e cli.Env) *cobra.Command {
	var dir, published string
	var nodes lab.Nodes
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create keys and the configuration of each service",
		Long: `Create the keys and certificates that are missing or expire soon, and write the
configuration of each service into the service's own folder.`,
		Example: `  allinone compose init --dir /lab`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			made, err := compose.Dir(dir).Init(published, nodes)
			if len(made) > 0 {
				fmt.Fprintf(e.Stdout, "created %d keys and certificates: %s\n", len(made), strings.Join(made, ", "))
			}
			return err
		},
	}
	composedFlag(cmd.Flags(), &dir)
	nodesFlag(cmd.Flags(), &nodes)
	cmd.Flags().StringVar(&published, "published-api", "https://127.0.0.1:8181", "`URL` of kube-apiserver in the kubeconfig of programs outside the containers")
	return cmd
}

func newComposeSeedCommand(e cli.Env) *cobra.Command {
	var dir string
	var nodes lab.Nodes
	instances := process.Default().Instances
	cmd := &cobra.Command{
		Use:   "seed",
		Short: "Create the first objects of the cloud and the cluster",
		Long: `Create the roles of the lab's components in the cluster. Create the service accounts of
the services in the cloud, and write a token for each of them. The first run also
creates instances.`,
		Example: `  allinone compose seed --instances 3`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := compose.Dir(dir).Seed(cmd.Context(), instances, nodes); err != nil {
				return err
			}
			_, err := fmt.Fprintln(e.Stdout, "the first objects of the cloud and the cluster exist")
			return err
		},
	}
	composedFlag(cmd.Flags(), &dir)
	nodesFlag(cmd.Flags(), &nodes)
	cmd.Flags().IntVar(&instances, "instances", instances, "number of instances that the first start creates")
	return cmd
}

func newComposeHypervisorCommand(e cli.Env) *cobra.Command {
	return composeWork(e, compose.Dir.Hypervise, cobra.Command{
		Use:   "hypervisor",
		Short: "Run a hollow node for each instance of the cloud",
		Long: `Run a hollow node, which kwok keeps alive, for each instance of the cloud. The
command must run in the network namespace of the cloud, because it listens at the
addresses of the nodes.`,
		Example: `  allinone compose hypervisor --dir /lab`,
	})
}

func newComposeRouterCommand(e cli.Env) *cobra.Command {
	var noInternet bool
	work := func(c compose.Dir, ctx context.Context, log *slog.Logger) error {
		return c.Route(ctx, log, noInternet)
	}
	cmd := composeWork(e, work, cobra.Command{
		Use:   "router",
		Short: "Create the network of the real nodes, and run its router",
		Long: `Create the network of the real nodes, and serve as its router: the router has the
routes of the cloud's route table, the metadata service, and a route to
kube-apiserver. The router must run in the network namespace of the cloud. Machines
keep running when the router stops. The next router takes over their links.

The router logs which running instances have no machine because no host serves
their zone.`,
		Example: `  allinone compose router --dir /lab`,
	})
	noInternetFlag(cmd.Flags(), &noInternet)
	return cmd
}

func noInternetFlag(fl *pflag.FlagSet, off *bool) {
	fl.BoolVar(off, "no-internet", false, "no internet access for real nodes, even if this host has a default route")
}

func mirrorFlag(fl *pflag.FlagSet, mirrors *[]string) {
	fl.StringSliceVar(mirrors, "registry-mirror", nil, "`HOST=URL` of a mirror from which real nodes pull the images of the registry HOST; may be repeated")
}

func newComposeMachinesCommand(e cli.Env) *cobra.Command {
	var zones, mirrors []string
	var pulls compose.Pulls
	work := func(c compose.Dir, ctx context.Context, log *slog.Logger) error {
		for _, s := range mirrors {
			m, err := real.ParseMirror(s)
			if err != nil {
				return cloudsim.Errorf(cloudsim.Invalid, "--registry-mirror: %w", err)
			}
			pulls.Mirrors = append(pulls.Mirrors, m)
		}
		return c.Machines(ctx, log, zones, pulls)
	}
	cmd := composeWork(e, work, cobra.Command{
		Use:   "machines",
		Short: "Run a real node for each instance in some zones",
		Long: `Run a machine with a kubelet for each instance in the zones of --zone. The command is
the host of these zones. It must be the only program in its container;
docker-compose.yaml contains the permissions of the container. The container must be
in the same network namespace as 'allinone compose router'. After SIGTERM, the command
shuts its machines down. If the command is killed (SIGKILL), its machines end at once. The
next start of the command boots the machines again.`,
		Example: `  allinone compose machines --zone sim-1a
  allinone compose machines --zone sim-1b --zone sim-1c`,
	})
	cmd.Flags().StringSliceVar(&zones, "zone", nil, "zone of the instances to run; may be repeated (default: all zones)")
	noInternetFlag(cmd.Flags(), &pulls.NoInternet)
	mirrorFlag(cmd.Flags(), &mirrors)
	cmd.Flags().StringVar(&pulls.Proxy.HTTP, "http-proxy", "", "`URL` of the proxy for image pulls over HTTP")
	cmd.Flags().StringVar(&pulls.Proxy.HTTPS, "https-proxy", "", "`URL` of the proxy for image pulls over HTTPS")
	cmd.Flags().StringVar(&pulls.Proxy.No, "no-proxy", "", "hosts of image pulls without a proxy, in the format of NO_PROXY")
	return cmd
}

// composeWork sets the function RunE of cmd and returns cmd. RunE calls the function work, which
// runs a service until a signal stops the service.
func composeWork(e cli.Env, work func(compose.Dir, context.Context, *slog.Logger) error, cmd cobra.Command) *cobra.Command {
	var dir string
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		log := logging.New(e.Stderr, slog.LevelInfo, logging.Text)
		logging.Klog(log)
		return work(compose.Dir(dir), cmd.Context(), log)
	}
	composedFlag(cmd.Flags(), &dir)
	return &cmd
}

// newComposeCloudCommand returns the cloudsim command for a lab in containers. This command sets
// the flags in compose.CloudFlags to the values that fit the kind of nodes in --nodes. It returns
// an error if the command line contains one of these flags with another value.
func newComposeCloudCommand(e cli.Env) *cobra.Command {
	var nodes lab.Nodes
	cmd := servecli.NewCloudsimCommand(e)
	cmd.Use, cmd.Short = "cloud", "Serve the cloud, with addresses that fit the kind of nodes in --nodes"
	cmd.Long = `Serve the simulated cloud as 'allinone cloudsim' does, with addresses that fit the kind of
nodes in --nodes: hollow nodes have addresses on loopback, real nodes in a network of the cloud.`
	cmd.Example = `  allinone compose cloud --nodes real --data-dir /data`
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		var errs []error
		flags := compose.CloudFlags(nodes)
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			value := flags[name]
			if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() != value {
				errs = append(errs, cloudsim.Errorf(cloudsim.Invalid, "--%s must be %q, because --nodes=%s sets it: remove --%s, or run 'allinone cloudsim'", name, value, nodes, name))
				continue
			}
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
		Short: "Run a shell or a command on a real node",
		Long: `Run a shell or a command on a real node, as 'allinone enter' does. Run 'allinone
compose enter' in the container of the host that has the node's machine.`,
		Example: `  docker compose exec node-sim-1a allinone compose enter node-1`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return enterMachine(compose.Dir(dir), args[0], args[1:])
		},
	}
	composedFlag(cmd.Flags(), &dir)
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func newComposeAddonsCommand(e cli.Env) *cobra.Command {
	var dir string
	var noInternet bool
	cmd := &cobra.Command{
		Use:   "addons",
		Short: "Install into the cluster the add-ons that real nodes need",
		Long: `Install the DNS server of the cluster, the permission of kubelets to pull images, the
CRDs of snapshots and the storage classes.`,
		Example: `  allinone compose addons --dir /lab`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := compose.Dir(dir).InstallAddons(cmd.Context(), noInternet); err != nil {
				return err
			}
			_, err := fmt.Fprintln(e.Stdout, "the cluster has a DNS server and storage classes")
			return err
		},
	}
	composedFlag(cmd.Flags(), &dir)
	noInternetFlag(cmd.Flags(), &noInternet)
	return cmd
}

// newComposeFurnishCommand returns the command addons with the name that it had before v0.1.0.
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
		Short: "Check whether a component is ready",
		Long: `Send one readiness probe to a component, for health checks in containers without a
shell. The command fails unless the answer is 200.`,
		Example: `  allinone compose probe http://127.0.0.1:8180/readyz
  allinone compose probe --ca /lab/ccm/ca.crt https://127.0.0.1:10258/healthz`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if client != "" && ca == "" {
				return errors.New("--client needs --ca, because client certificates need TLS")
			}
			return lab.ProbeURL(cmd.Context(), args[0], ca, client)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&ca, "ca", "", "certificate authority of the component (PEM)")
	fl.StringVar(&client, "client", "", "client certificate: path of NAME.crt and NAME.key, without the endings")
	return cmd
}
