package cloudcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var instances = kind[cloudsim.Instance, cloudsim.InstanceID]{
	kind: cloudsim.KindInstance, noun: "instance", plural: "instances", command: "instances", prefix: "i-",
	sample: "node-1", zoned: true, networked: true,
	id:    func(i cloudsim.Instance) string { return string(i.ID) },
	state: func(i cloudsim.Instance) string { return string(i.State) },
	columns: []cli.Column[cloudsim.Instance]{
		{Head: "ID", Cell: func(i cloudsim.Instance) string { return string(i.ID) }},
		{Head: "NAME", Cell: func(i cloudsim.Instance) string { return i.Name }},
		{Head: "STATE", Cell: func(i cloudsim.Instance) string { return string(i.State) }},
		{Head: "ZONE", Cell: func(i cloudsim.Instance) string { return i.Zone }},
		{Head: "TYPE", Cell: func(i cloudsim.Instance) string { return i.Type }},
		{Head: "INTERNAL-IP", Cell: cloudsim.Instance.InternalIP},
		{Head: "EXTERNAL-IP", Wide: true, Cell: externalIP},
		{Head: "SUBNET", Wide: true, Cell: func(i cloudsim.Instance) string { return string(i.Subnet) }},
		{Head: "POD-RANGES", Wide: true, Cell: func(i cloudsim.Instance) string { return strings.Join(i.PodRanges, ",") }},
		{Head: "OTHER-NETWORKS", Wide: true, Cell: otherNetworks},
		{Head: "PROVIDER-ID", Wide: true, Cell: func(i cloudsim.Instance) string { return i.ProviderID }},
	},
	get:  (*client.Client).GetInstance,
	list: (*client.Client).ListInstances,
}

func externalIP(i cloudsim.Instance) string {
	n := slices.IndexFunc(i.Addresses, func(a cloudsim.InstanceAddress) bool { return a.Type == cloudsim.AddressExternal })
	if n < 0 {
		return ""
	}
	return i.Addresses[n].Address
}

func newInstancesCommand(c *cli.Connection) *cobra.Command {
	cmd := instances.groupCommand("Manage virtual machines", "instance", "i")
	cmd.AddCommand(
		instances.listCommand(c),
		instances.getCommand(c),
		newCreateInstanceCommand(c),
		newLabelInstanceCommand(c),
		instances.actionCommand(c, "start", "Start stopped instances", (*client.Client).StartInstance),
		instances.actionCommand(c, "stop", "Stop running instances; they keep their addresses", (*client.Client).StopInstance),
		instances.actionCommand(c, "crash", "Cut the power of running instances; the cloud reports the state running until the next operation, such as a reboot", (*client.Client).CrashInstance),
		instances.actionCommand(c, "reboot", "Reboot running instances", (*client.Client).RebootInstance),
		newAttachNetworkCommand(c),
		newDetachNetworkCommand(c),
		newReportDevicesCommand(c),
		instances.actionCommand(c, "forget-devices", "Let the cloud stop waiting for device reports of instances after the end of their hypervisor", (*client.Client).ForgetDevices),
		instances.deleteCommand(c, true, (*client.Client).DeleteInstance),
	)
	return cmd
}

func newCreateInstanceCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		w      waitFlags
		labels []string
		at     placeFlags
		data   string
		req    cloudsim.CreateInstance
	)
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an instance",
		Long: `Create an instance. The same command again returns the existing instance.

If the cloud has several zones, --zone is required. The default of --type is small.
Without --network and --subnet the instance is in the default network. With --network
the instance is in a subnet of this network that serves the zone: a subnet of only this
zone if there is one, else a subnet of the region, else a subnet of all regions.`,
		Example: `  allinone cloud instances create node-4 --zone sim-1a
  allinone cloud instances create node-5 --zone sim-1b --type large --label pool=gpu --wait
  allinone cloud instances create shop-1 --zone sim-1a --subnet shop-a --address 10.10.1.7`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			if req.Zone, err = zones.theOnly(ctx, cl, "zone", req.Zone); err != nil {
				return err
			}
			if req.Type, err = defaultType(ctx, cl, req.Type); err != nil {
				return err
			}
			if req.Network, req.Subnet, err = at.resolve(ctx, cl); err != nil {
				return err
			}
			if req.UserData, err = readUserData(c, data); err != nil {
				return err
			}
			made, err := cl.CreateInstance(ctx, req)
			return instances.show(ctx, c, cl, o, w, made, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&req.Zone, "zone", "", "zone of the instance")
	f.StringVar(&req.ServiceAccount, "service-account", "", "service account (name or id) that the instance authenticates as")
	f.StringVar(&req.Address, "address", "", "internal `ADDRESS` in the subnet (default the lowest free address)")
	f.StringVar(&req.Type, "type", "", "instance type (default small)")
	f.StringVar(&data, "user-data-file", "", "`FILE` with the user data; - for standard input")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("zone", completeNames(c, zones))
	_ = cmd.RegisterFlagCompletionFunc("type", completeNames(c, instanceTypes))
	at.flags(c, cmd)
	return cmd
}

func newLabelInstanceCommand(c *cli.Connection) *cobra.Command {
	cmd := instances.labelCommand(c, func(ctx context.Context, cl *client.Client, i cloudsim.Instance, labels map[string]string) (cloudsim.Instance, error) {
		return cl.UpdateInstance(ctx, i.ID, cloudsim.UpdateInstance{Labels: labels}, i.Revision)
	})
	cmd.Long += " The cloud controller manager copies the labels to the Node."
	return cmd
}

type placeFlags struct{ network, subnet string }

func (p *placeFlags) flags(c *cli.Connection, cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.network, "network", "", "`NETWORK` (default the project's default network)")
	_ = cmd.RegisterFlagCompletionFunc("network", completeNames(c, networks))
	p.subnetFlag(c, cmd)
}

func (p *placeFlags) subnetFlag(c *cli.Connection, cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.subnet, "subnet", "", "`SUBNET` (default a subnet of the network that serves the zone)")
	_ = cmd.RegisterFlagCompletionFunc("subnet", completeNames(c, subnets))
}

// resolve returns the ids of the network and the subnet. An id is "" if its flag is "".
func (p placeFlags) resolve(ctx context.Context, cl *client.Client) (n cloudsim.NetworkID, s cloudsim.SubnetID, err error) {
	if p.network != "" {
		found, err := networks.findResource(ctx, cl, p.network)
		if err != nil {
			return n, s, err
		}
		n = found.ID
	}
	if p.subnet != "" {
		found, err := subnets.findResource(ctx, cl, p.subnet)
		if err != nil {
			return n, s, err
		}
		s = found.ID
	}
	return n, s, nil
}

// smallType is the name of the default instance type. If the cloud does not have this type, the
// default is the only type of the cloud. If a cloud without this type has several types, --type is
// required.
const smallType = "small"

func defaultType(ctx context.Context, cl *client.Client, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	switch _, err := cl.GetInstanceType(ctx, smallType); {
	case err == nil:
		return smallType, nil
	case !errors.Is(err, cloudsim.NotFound):
		return "", err
	}
	return instanceTypes.theOnly(ctx, cl, "type", "")
}

// readUserData returns the content of a file with user data. It reads at most one byte more than
// the cloud's limit. If the file is longer than the limit, the cloud gets the additional byte and
// refuses the user data.
func readUserData(c *cli.Connection, path string) (string, error) {
	from := c.Stdin
	switch path {
	case "":
		return "", nil
	case "-":
	default:
		f, err := os.Open(path)
		if err != nil {
			return "", cloudsim.Errorf(cloudsim.Invalid, "--user-data-file: %w", err)
		}
		defer f.Close()
		from = f
	}
	raw, err := io.ReadAll(io.LimitReader(from, cloudsim.MaxUserData+1))
	if err != nil {
		return "", fmt.Errorf("--user-data-file: %w", err)
	}
	if !utf8.Valid(raw) { // the cloud cannot find invalid bytes, because the JSON encoder of this command replaces them
		return "", cloudsim.Errorf(cloudsim.Invalid, "--user-data-file %s is not UTF-8 text: encode binary data, such as gzip, in base64", path)
	}
	return string(raw), nil
}
