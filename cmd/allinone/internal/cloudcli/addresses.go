package cloudcli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var addresses = kind[cloudsim.Address, cloudsim.AddressID]{
	kind: cloudsim.KindAddress, noun: "address", plural: "addresses", command: "addresses", prefix: "addr-",
	sample: "shop",
	id:     func(a cloudsim.Address) string { return string(a.ID) },
	columns: []cli.Column[cloudsim.Address]{
		{Head: "ID", Cell: func(a cloudsim.Address) string { return string(a.ID) }},
		{Head: "NAME", Cell: func(a cloudsim.Address) string { return a.Name }},
		{Head: "IP", Cell: func(a cloudsim.Address) string { return a.IP }},
		{Head: "FAMILY", Wide: true, Cell: func(a cloudsim.Address) string { return string(a.Family) }},
		{Head: "SCHEME", Wide: true, Cell: func(a cloudsim.Address) string { return string(a.Scheme) }},
		{Head: "RESERVED", Cell: func(a cloudsim.Address) string { return yesNo(a.Static) }},
		{Head: "USED-BY", Cell: func(a cloudsim.Address) string { return string(a.UsedBy) }},
	},
	get:  (*client.Client).GetAddress,
	list: (*client.Client).ListAddresses,
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func newAddressesCommand(c *cli.Connection) *cobra.Command {
	cmd := addresses.groupCommand("Manage reserved IP addresses of load balancers", "address", "addr")
	var family, scheme string
	create := addresses.createCommand(c, "Reserve an address until you delete it",
		func(ctx context.Context, cl *client.Client, name string, labels map[string]string) (cloudsim.Address, error) {
			req := cloudsim.CreateAddress{Name: name, Labels: labels, Family: cloudsim.IPFamily(family), Scheme: cloudsim.Scheme(scheme)}
			return cl.CreateAddress(ctx, req)
		})
	create.Example += "\n  allinone cloud addresses create inside --family ipv6 --scheme internal"
	create.Flags().StringVar(&family, "family", "", "address family: ipv4 or ipv6 (default ipv4)")
	create.Flags().StringVar(&scheme, "scheme", "", "scheme of the load balancers that can use the address: external or internal (default external)")
	_ = create.RegisterFlagCompletionFunc("family", cli.Fixed(cloudsim.IPv4, cloudsim.IPv6))
	_ = create.RegisterFlagCompletionFunc("scheme", cli.Fixed(cloudsim.SchemeExternal, cloudsim.SchemeInternal))
	cmd.AddCommand(
		addresses.listCommand(c),
		addresses.getCommand(c),
		create,
		addresses.deleteCommand(c, false, readFirst(addresses, (*client.Client).DeleteAddress)),
	)
	return cmd
}

// readFirst returns an action that calls callFn and returns the resource. The action reads the
// resource before this call, because callFn deletes the resource and does not return it.
func readFirst[T cloudsim.Resource, ID ~string](k kind[T, ID], callFn func(*client.Client, context.Context, ID) error) action[T, ID] {
	return func(cl *client.Client, ctx context.Context, id ID) (T, error) {
		t, err := k.get(cl, ctx, id)
		if err != nil {
			return t, err
		}
		return t, callFn(cl, ctx, id)
	}
}

// createCommand returns a command that creates a resource. It is for resources that have only a
// name and labels.
func (k kind[T, ID]) createCommand(c *cli.Connection, short string, create func(context.Context, *client.Client, string, map[string]string) (T, error)) *cobra.Command {
	var o cli.Output
	var labels []string
	cmd := &cobra.Command{
		Use: "create NAME", Short: short,
		Example: "  allinone cloud " + k.command + " create " + k.sample + "\n" +
			"  allinone cloud " + k.command + " create " + k.sample + " --label team=shop -o json",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			m, err := cli.ParseLabels("label", labels)
			if err != nil {
				return err
			}
			made, err := create(ctx, cl, args[0], m)
			if err != nil {
				return err
			}
			return k.printer(c, o).One(made)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	return cmd
}
