package cloudcli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var networks = kind[cloudsim.Network, cloudsim.NetworkID]{
	kind: cloudsim.KindNetwork, noun: "network", plural: "networks", command: "networks", prefix: "net-",
	sample: "shop",
	id:     func(n cloudsim.Network) string { return string(n.ID) },
	state:  func(n cloudsim.Network) string { return string(n.State) },
	columns: []cli.Column[cloudsim.Network]{
		{Head: "ID", Cell: func(n cloudsim.Network) string { return string(n.ID) }},
		{Head: "NAME", Cell: func(n cloudsim.Network) string { return n.Name }},
		{Head: "STATE", Cell: func(n cloudsim.Network) string { return string(n.State) }},
		{Head: "IPV4", Cell: func(n cloudsim.Network) string { return n.IPv4 }},
		{Head: "IPV6", Cell: func(n cloudsim.Network) string { return n.IPv6 }},
		{Head: "POD-RANGES", Cell: podRangesCell},
		{Head: "MAX-ROUTES", Wide: true, Cell: func(n cloudsim.Network) string { return strconv.Itoa(n.MaxRoutes) }},
		{Head: "DEFAULT", Wide: true, Cell: func(n cloudsim.Network) string { return yesNo(n.Default) }},
	},
	get:  (*client.Client).GetNetwork,
	list: (*client.Client).ListNetworks,
}

// podRangesCell returns a text such as "/24 of 10.1.0.0/16" for each address family. In this
// example, each instance has a /24 for its pods. The ranges of all instances are in 10.1.0.0/16.
func podRangesCell(n cloudsim.Network) string {
	var words []string
	for _, r := range n.PodRanges.Families() {
		words = append(words, fmt.Sprintf("/%d of %s", r.Bits, r.In))
	}
	return strings.Join(words, ", ")
}

func newNetworksCommand(c *cli.Connection) *cobra.Command {
	cmd := networks.groupCommand("Manage private networks", "network", "net", "vpc")
	cmd.AddCommand(
		networks.listCommand(c),
		networks.getCommand(c),
		newCreateNetworkCommand(c),
		newUpdateNetworkCommand(c),
		networks.deleteCommand(c, true, (*client.Client).DeleteNetwork),
	)
	return cmd
}

func newCreateNetworkCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		w      waitFlags
		pods   cli.PodFlags
		labels []string
		req    cloudsim.CreateNetwork
	)
	cmd := &cobra.Command{
		Use: "create NAME --ipv4 RANGE", Short: "Create a network",
		Long: `Create a network. When the network is available, create a subnet in it. The same
command again returns the existing network.

The networks of a cloud are on one machine, so their ranges must not overlap.
With --pod-range each instance gets a part of that range for its pods.`,
		Example: `  allinone cloud networks create shop --ipv4 10.10.0.0/16 --wait
  allinone cloud networks create shop --ipv4 10.10.0.0/16 --ipv6 fd10::/48 --pod-range 10.11.0.0/16 --pod-range fd11::/56 --wait`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.RunE = c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
		req.Name = args[0]
		if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
			return err
		}
		if err := pods.Apply(&req.PodRanges); err != nil {
			return err
		}
		made, err := cl.CreateNetwork(ctx, req)
		return networks.show(ctx, c, cl, o, w, made, err)
	})
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&req.IPv4, "ipv4", "", "`RANGE` that contains all subnets")
	f.StringVar(&req.IPv6, "ipv6", "", "IPv6 `RANGE` that contains all subnets (default none)")
	f.IntVar(&req.MaxRoutes, "max-routes", 0, "maximum number of routes (default 1000)")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	pods.Flags(f)
	_ = cmd.MarkFlagRequired("ipv4")
	return cmd
}

func newUpdateNetworkCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		w      waitFlags
		pods   cli.PodFlags
		routes int
		labels []string
		remove []string
	)
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change the settings of a network",
		Long: `Change the settings of a network. Settings without a flag stay unchanged. --pod-range
replaces the pod ranges, and '--pod-range=' removes them. Pod ranges can change only
while no instance has a part of them. If 'allinone cloudsim' has the flag --pod-range,
the pod ranges of the default network cannot change.`,
		Example: `  allinone cloud networks update default --pod-range 10.244.0.0/16 --pod-mask 24
  allinone cloud networks update shop --max-routes 200 --label team=shop --remove-label old`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, networks)),
	}
	cmd.RunE = c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
		more, err := cli.ParseLabels("label", labels)
		if err != nil {
			return err
		}
		n, err := networks.findResource(ctx, cl, args[0])
		if err != nil {
			return err
		}
		given := cmd.Flags().Changed
		n, err = updateNetwork(ctx, cl, n, func(req *cloudsim.UpdateNetwork) error {
			maps.Copy(req.Labels, more)
			for _, key := range remove {
				delete(req.Labels, key)
			}
			if given("max-routes") {
				req.MaxRoutes = routes
			}
			return pods.Apply(&req.PodRanges)
		})
		return networks.show(ctx, c, cl, o, w, n, err)
	})
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&routes, "max-routes", 0, "maximum number of routes")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	f.StringArrayVar(&remove, "remove-label", nil, "`KEY` of a label to remove; may be repeated")
	pods.Flags(f)
	return cmd
}

// updateNetwork changes the network n with changeFn. If another caller has changed n in the
// cloud, updateNetwork reads n again and repeats the change.
func updateNetwork(ctx context.Context, cl *client.Client, n cloudsim.Network, changeFn func(*cloudsim.UpdateNetwork) error) (cloudsim.Network, error) {
	for range staleTries {
		req := cloudsim.UpdateNetwork{Labels: map[string]string{}, NetworkSpec: n.NetworkSpec}
		maps.Copy(req.Labels, n.Labels)
		if err := changeFn(&req); err != nil {
			return n, err
		}
		changed, err := cl.UpdateNetwork(ctx, n.ID, req, n.Revision)
		if !errors.Is(err, cloudsim.Stale) {
			return changed, err
		}
		if n, err = cl.GetNetwork(ctx, n.ID); err != nil {
			return n, err
		}
	}
	return n, cloudsim.Errorf(cloudsim.Stale, "cannot update network %s: the network changed during each of %d attempts; run the command again", n.ID, staleTries)
}
