// Package cloudcli contains the command "allinone cloud" and its subcommands, which read and
// change a cloud over its API.
package cloudcli

import (
	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// NewCloudCommand returns the command "allinone cloud".
func NewCloudCommand(e cli.Env) *cobra.Command {
	c := &cli.Connection{Env: e}
	cmd := &cobra.Command{
		Use:   "cloud",
		Short: "Look at a cloud and change it",
		Long: `Look at a cloud and change it, over the same API that the subsystems use.

Which cloud: --cloud-url, else CLOUDSIM_URL, else the lab that runs in the data
dir, else ` + cli.DefaultCloudURL + `. Either may be a socket of this machine,
unix:///run/cloudsim.sock; see cloudsim --listen-socket. A flag beats its
environment variable. A token is read from a file and never taken from the
command line.

A resource is called by its name or by its id.`,
		Example: `  # What is there
  allinone cloud instances list
  allinone cloud load-balancers list -o wide

  # A new machine, and what happens to it
  allinone cloud instances create node-4 --zone sim-1a --wait
  allinone cloud events --watch --kind instance`,
	}
	c.ConnectionFlags(cmd)
	cmd.AddCommand(
		newInstancesCommand(c), newLoadBalancersCommand(c), newAddressesCommand(c),
		newDisksCommand(c), newSnapshotsCommand(c), newSnapshotGroupsCommand(c), newDiskPoolsCommand(c),
		newNetworksCommand(c), newSubnetsCommand(c), newRoutesCommand(c),
		newCloudMetadataCommand(c), newSigningKeysCommand(c),
		newRegistryCommand(c), newRepositoriesCommand(c), newWorkloadTrustsCommand(c),
		newRegionsCommand(c), newZonesCommand(c), newInstanceTypesCommand(c), newDiskTypesCommand(c),
		newOperationsCommand(c), newEventsCommand(c),
		newProjectsCommand(c), newTokensCommand(c), newServiceAccountsCommand(c), newRolesCommand(c), newRoleBindingsCommand(c), newWhoAmICommand(c), newQuotasCommand(c),
		newRateLimitsCommand(c), newBillCommand(c), newAuditCommand(c),
		newFaultsCommand(c),
		newClockCommand(c), newHoldsCommand(c), newDurationsCommand(c), newWhyCommand(c), newStateCommand(c), newApplyCommand(c), newReplayCommand(c),
	)
	return cmd
}
