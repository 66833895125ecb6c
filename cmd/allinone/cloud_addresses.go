package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

var addresses = kind[cloudsim.Address, cloudsim.AddressID]{
	kind: cloudsim.KindAddress, noun: "address", plural: "addresses", command: "addresses", prefix: "addr-",
	sample: "shop",
	id:     func(a cloudsim.Address) string { return string(a.ID) },
	columns: []column[cloudsim.Address]{
		{head: "ID", cell: func(a cloudsim.Address) string { return string(a.ID) }},
		{head: "NAME", cell: func(a cloudsim.Address) string { return a.Name }},
		{head: "IP", cell: func(a cloudsim.Address) string { return a.IP }},
		{head: "FAMILY", wide: true, cell: func(a cloudsim.Address) string { return string(a.Family) }},
		{head: "SCHEME", wide: true, cell: func(a cloudsim.Address) string { return string(a.Scheme) }},
		{head: "RESERVED", cell: func(a cloudsim.Address) string { return yesNo(a.Static) }},
		{head: "USED-BY", cell: func(a cloudsim.Address) string { return string(a.UsedBy) }},
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

func newAddressesCommand(c *cloudCLI) *cobra.Command {
	cmd := addresses.group("IP addresses that load balancers stand on", "address", "addr")
	var family, scheme string
	create := addresses.createCommand(c, "Reserve an address; it is kept until it is deleted",
		func(ctx context.Context, cl *client.Client, name string, labels map[string]string) (cloudsim.Address, error) {
			req := cloudsim.CreateAddress{Name: name, Labels: labels, Family: cloudsim.IPFamily(family), Scheme: cloudsim.Scheme(scheme)}
			return cl.CreateAddress(ctx, req)
		})
	create.Example += "\n  allinone cloud addresses create inside --family ipv6 --scheme internal"
	create.Flags().StringVar(&family, "family", "", "ipv4 or ipv6 (default ipv4)")
	create.Flags().StringVar(&scheme, "scheme", "", "which load balancers can stand on it: external or internal (default external)")
	_ = create.RegisterFlagCompletionFunc("family", fixed(cloudsim.IPv4, cloudsim.IPv6))
	_ = create.RegisterFlagCompletionFunc("scheme", fixed(cloudsim.SchemeExternal, cloudsim.SchemeInternal))
	cmd.AddCommand(
		addresses.listCommand(c),
		addresses.getCommand(c),
		create,
		addresses.deleteCommand(c, false, whole(addresses, (*client.Client).DeleteAddress)),
	)
	return cmd
}

// whole makes an action from a call that returns no resource. The action returns the
// resource as it was before the call.
func whole[T cloudsim.Resource, ID ~string](k kind[T, ID], call func(*client.Client, context.Context, ID) error) action[T, ID] {
	return func(cl *client.Client, ctx context.Context, id ID) (T, error) {
		t, err := k.get(cl, ctx, id)
		if err != nil {
			return t, err
		}
		return t, call(cl, ctx, id)
	}
}

// createCommand returns a command that creates a resource with only a name and labels.
func (k kind[T, ID]) createCommand(c *cloudCLI, short string, create func(context.Context, *client.Client, string, map[string]string) (T, error)) *cobra.Command {
	var o output
	var labels []string
	cmd := &cobra.Command{
		Use: "create NAME", Short: short,
		Example: "  allinone cloud " + k.command + " create " + k.sample + "\n" +
			"  allinone cloud " + k.command + " create " + k.sample + " --label team=shop -o json",
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			m, err := parseLabels("label", labels)
			if err != nil {
				return err
			}
			made, err := create(ctx, cl, args[0], m)
			if err != nil {
				return err
			}
			return k.printer(c, o).one(made)
		}),
	}
	o.flags(cmd)
	cmd.Flags().StringArrayVar(&labels, "label", nil, "`KEY=VALUE` to label it with; may be repeated")
	return cmd
}
