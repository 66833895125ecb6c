package cloudcli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var subnets = kind[cloudsim.Subnet, cloudsim.SubnetID]{
	kind: cloudsim.KindSubnet, noun: "subnet", plural: "subnets", command: "subnets", prefix: "subnet-",
	sample: "shop-a", zoned: true, networked: true,
	id:    func(s cloudsim.Subnet) string { return string(s.ID) },
	state: func(s cloudsim.Subnet) string { return string(s.State) },
	columns: []cli.Column[cloudsim.Subnet]{
		{Head: "ID", Cell: func(s cloudsim.Subnet) string { return string(s.ID) }},
		{Head: "NAME", Cell: func(s cloudsim.Subnet) string { return s.Name }},
		{Head: "STATE", Cell: func(s cloudsim.Subnet) string { return string(s.State) }},
		{Head: "NETWORK", Cell: func(s cloudsim.Subnet) string { return string(s.Network) }},
		{Head: "SERVES", Cell: servesCell},
		{Head: "IPV4", Cell: func(s cloudsim.Subnet) string { return s.IPv4 }},
		{Head: "IPV6", Cell: func(s cloudsim.Subnet) string { return s.IPv6 }},
		{Head: "GATEWAY", Wide: true, Cell: func(s cloudsim.Subnet) string { return s.Gateway }},
	},
	get:  (*client.Client).GetSubnet,
	list: (*client.Client).ListSubnets,
}

// servesCell returns the zone or the region that a subnet serves. The subnet accepts only instances
// in this zone or region. For a subnet without a zone and a region, servesCell returns "all".
func servesCell(s cloudsim.Subnet) string {
	switch {
	case s.Zone != "":
		return s.Zone
	case s.Region != "":
		return s.Region
	}
	return "all"
}

func newSubnetsCommand(c *cli.Connection) *cobra.Command {
	cmd := subnets.groupCommand("Manage subnets, the parts of networks in which instances have addresses", "subnet")
	cmd.AddCommand(
		subnets.listCommand(c),
		subnets.getCommand(c),
		newCreateSubnetCommand(c),
		subnets.deleteCommand(c, true, (*client.Client).DeleteSubnet),
	)
	return cmd
}

func newCreateSubnetCommand(c *cli.Connection) *cobra.Command {
	var (
		o       cli.Output
		w       waitFlags
		labels  []string
		network string
		req     cloudsim.CreateSubnet
	)
	cmd := &cobra.Command{
		Use: "create NAME --network NETWORK --ipv4 RANGE", Short: "Create a subnet",
		Long: `Create a subnet. The same command again returns the existing subnet.

With --zone the subnet serves one zone, with --region all zones of a region, and
without both flags all zones. An instance gets the lowest free address.`,
		Example: `  allinone cloud subnets create shop-a --network shop --zone sim-1a --ipv4 10.10.1.0/24
  allinone cloud subnets create shop-all --network shop --ipv4 10.10.64.0/18 --ipv6 fd10:0:0:1::/64 --wait`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			n, err := networks.findResource(ctx, cl, network)
			if err != nil {
				return err
			}
			req.Network = n.ID
			made, err := cl.CreateSubnet(ctx, req)
			return subnets.show(ctx, c, cl, o, w, made, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&network, "network", "", "`NETWORK` of the subnet")
	f.StringVar(&req.Region, "region", "", "region of a regional subnet (default all regions)")
	f.StringVar(&req.Zone, "zone", "", "zone of a zonal subnet")
	f.StringVar(&req.IPv4, "ipv4", "", "`RANGE` inside the range of the network")
	f.StringVar(&req.IPv6, "ipv6", "", "IPv6 `RANGE` inside the range of the network (default none)")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	_ = errors.Join(cmd.MarkFlagRequired("network"), cmd.MarkFlagRequired("ipv4")) // errors only for unknown flag names
	_ = cmd.RegisterFlagCompletionFunc("network", completeNames(c, networks))
	_ = cmd.RegisterFlagCompletionFunc("region", completeNames(c, regions))
	_ = cmd.RegisterFlagCompletionFunc("zone", completeNames(c, zones))
	return cmd
}
