package cloudcli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// otherNetworks returns the additional networks of an instance. After each network, it adds the
// instance's addresses in this network, for example net-000002:10.10.1.2.
func otherNetworks(i cloudsim.Instance) string {
	var all []string
	for _, f := range i.NetworkInterfaces {
		all = append(all, string(f.Network)+":"+strings.Join(f.Addresses, "/"))
	}
	return strings.Join(all, ",")
}

func newAttachNetworkCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var req cloudsim.AttachNetwork
	var at placeFlags
	cmd := &cobra.Command{
		Use: "attach-network INSTANCE NETWORK", Short: "Give an instance addresses in an additional network",
		Long: `Give an instance addresses in an additional network. This takes no time. The instance
keeps its present networks and addresses. Simulated machines, load balancers and the
metadata service use only the first network of an instance.`,
		Example: `  allinone cloud instances attach-network node-1 shop
  allinone cloud instances attach-network node-1 shop --subnet shop-a --address 10.10.1.7`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: inOrder(completeNames(c, instances), completeNames(c, networks)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			at.network = args[1]
			i, notInstance := instances.findResource(ctx, cl, args[0])
			req.Network, req.Subnet, err = at.resolve(ctx, cl)
			if err = errors.Join(notInstance, err); err != nil {
				return err
			}
			i, err = cl.AttachNetwork(ctx, i.ID, req)
			return instances.show(ctx, c, cl, o, waitFlags{}, i, err)
		}),
	}
	o.Flags(cmd)
	at.subnetFlag(c, cmd)
	cmd.Flags().StringVar(&req.Address, "address", "", "`ADDRESS` in the subnet (default the lowest free address)")
	return cmd
}

func newDetachNetworkCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "detach-network INSTANCE NETWORK", Short: "Release the addresses of an instance in an additional network",
		Long: `Release the addresses of an instance in an additional network. This takes no time.
Routes of this network with the instance as their next hop get the state blackhole. An
instance cannot leave its first network.`,
		Example: `  allinone cloud instances detach-network node-1 shop`,
		Args:    cobra.ExactArgs(2), ValidArgsFunction: inOrder(completeNames(c, instances), completeNames(c, networks)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			i, notInstance := instances.findResource(ctx, cl, args[0])
			n, notNetwork := networks.findResource(ctx, cl, args[1])
			if err := errors.Join(notInstance, notNetwork); err != nil {
				return err
			}
			i, err := cl.DetachNetwork(ctx, i.ID, cloudsim.DetachNetwork{Network: n.ID})
			return instances.show(ctx, c, cl, o, waitFlags{}, i, err)
		}),
	}
	o.Flags(cmd)
	return cmd
}
