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
		Short: "Read and change a cloud",
		Long: `Read and change a cloud, over the same API that the Kubernetes components use.

The URL of the cloud is --cloud-url, else the URL of the lab in --data-dir, else
CLOUDSIM_URL, else the URL of the lab that runs in CLOUDSIM_DATA_DIR or in the default
data dir, else ` + cli.DefaultCloudURL + `. With --data-dir, the command ignores
CLOUDSIM_URL, CLOUDSIM_TOKEN_FILE and CLOUDSIM_CA_FILE. The URL can name a Unix socket,
such as unix:///run/cloudsim.sock; see 'allinone cloudsim --listen-socket'. A flag
overrides its environment variable. The command reads the token from a file, never
from the command line.

Commands accept the name or the id of a resource.`,
		Example: `  # List instances and load balancers
  allinone cloud instances list
  allinone cloud load-balancers list -o wide

  # Create an instance, and watch its events
  allinone cloud instances create node-4 --zone sim-1a --wait
  allinone cloud events --watch --kind instance`,
	}
	c.ConnectionFlags(cmd)
	cmd.AddCommand(
		newInstancesCommand(c), newLoadBalancersCommand(c), newAddressesCommand(c),
		newDisksCommand(c), newSnapshotsCommand(c), newSnapshotGroupsCommand(c), newDiskPoolsCommand(c),
		newNetworksCommand(c), newSubnetsCommand(c), newRoutesCommand(c),
		newCloudMetadataCommand(c), newSigningKeysCommand(c),
		newRegistryCommand(c), newRepositoriesCommand(c), newWorkloadTrustsCommand(c), newRecordsCommand(c), newMetadataTreesCommand(c),
		newRegionsCommand(c), newZonesCommand(c), newInstanceTypesCommand(c), newDiskTypesCommand(c),
		newOperationsCommand(c), newEventsCommand(c),
		newProjectsCommand(c), newTokensCommand(c), newAccessKeysCommand(c), newServiceAccountsCommand(c), newRolesCommand(c), newRoleBindingsCommand(c), newWhoAmICommand(c), newQuotasCommand(c),
		newRateLimitsCommand(c), newBillCommand(c), newAuditCommand(c),
		newFaultsCommand(c),
		newClockCommand(c), newHoldsCommand(c), newDurationsCommand(c), newWhyCommand(c), newStateCommand(c), newApplyCommand(c), newReplayCommand(c),
	)
	return cmd
}
