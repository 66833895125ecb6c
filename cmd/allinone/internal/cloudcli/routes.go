package cloudcli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var routes = kind[cloudsim.Route, cloudsim.RouteID]{
	kind: cloudsim.KindRoute, noun: "route", plural: "routes", command: "routes", prefix: "route-",
	sample: "node-1-pods", networked: true,
	id:    func(r cloudsim.Route) string { return string(r.ID) },
	state: func(r cloudsim.Route) string { return string(r.State) },
	columns: []cli.Column[cloudsim.Route]{
		{Head: "ID", Cell: func(r cloudsim.Route) string { return string(r.ID) }},
		{Head: "NAME", Cell: func(r cloudsim.Route) string { return r.Name }},
		{Head: "STATE", Cell: func(r cloudsim.Route) string { return string(r.State) }},
		{Head: "NETWORK", Cell: func(r cloudsim.Route) string { return string(r.Network) }},
		{Head: "DESTINATION", Cell: func(r cloudsim.Route) string { return r.Destination }},
		{Head: "NEXT-HOP", Cell: func(r cloudsim.Route) string { return string(r.NextHop) }},
	},
	get:  (*client.Client).GetRoute,
	list: (*client.Client).ListRoutes,
}

func newRoutesCommand(c *cli.Connection) *cobra.Command {
	cmd := routes.groupCommand("Manage the routes of networks", "route")
	cmd.AddCommand(
		routes.listCommand(c),
		routes.getCommand(c),
		newCreateRouteCommand(c),
		routes.deleteCommand(c, true, (*client.Client).DeleteRoute),
	)
	return cmd
}

func newCreateRouteCommand(c *cli.Connection) *cobra.Command {
	var (
		o                cli.Output
		w                waitFlags
		labels           []string
		network, nextHop string
		req              cloudsim.CreateRoute
	)
	cmd := &cobra.Command{
		Use: "create NAME --destination RANGE --next-hop INSTANCE", Short: "Create a route",
		Long: `Create a route: packets of the network's instances to RANGE go to INSTANCE. The same
command again returns the existing route.

While the instance does not run in the network, the route is a blackhole. If several
routes match an address, the most specific route applies. Two routes of a network
cannot have the same range.

RANGE must be inside one of the cloud's pod ranges, or inside one of the ranges of
'allinone cloudsim --network-ranges'. It must not overlap another network, or the
addresses of load balancers.`,
		Example: `  allinone cloud routes create node-1-pods --destination 10.244.1.0/24 --next-hop node-1
  allinone cloud routes create office --destination 192.168.0.0/16 --next-hop vpn-1 --network shop --wait`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			hop, err := instances.findResource(ctx, cl, nextHop)
			if err != nil {
				return err
			}
			req.NextHop = hop.ID
			if network != "" {
				n, err := networks.findResource(ctx, cl, network)
				if err != nil {
					return err
				}
				req.Network = n.ID
			}
			made, err := cl.CreateRoute(ctx, req)
			return routes.show(ctx, c, cl, o, w, made, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&req.Destination, "destination", "", "`RANGE` of addresses outside the network")
	f.StringVar(&nextHop, "next-hop", "", "`INSTANCE` that receives the packets")
	f.StringVar(&network, "network", "", "`NETWORK` of the route (default the first network of the instance)")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	_ = errors.Join(cmd.MarkFlagRequired("destination"), cmd.MarkFlagRequired("next-hop")) // errors only for unknown flag names
	_ = cmd.RegisterFlagCompletionFunc("next-hop", completeNames(c, instances))
	_ = cmd.RegisterFlagCompletionFunc("network", completeNames(c, networks))
	return cmd
}
