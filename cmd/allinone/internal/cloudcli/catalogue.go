package cloudcli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// These are the kinds of the cloud's catalogue: regions, zones and types. The id of a resource of
// these kinds is its name.

var regions = kind[cloudsim.Region, string]{
	kind: cloudsim.KindRegion, noun: "region", plural: "regions", command: "regions", sample: "sim-1",
	id: func(r cloudsim.Region) string { return r.Name },
	columns: []cli.Column[cloudsim.Region]{
		{Head: "NAME", Cell: func(r cloudsim.Region) string { return r.Name }},
	},
	get:  (*client.Client).GetRegion,
	list: (*client.Client).ListRegions,
}

var zones = kind[cloudsim.Zone, string]{
	kind: cloudsim.KindZone, noun: "zone", plural: "zones", command: "zones", sample: "sim-1a",
	id: func(z cloudsim.Zone) string { return z.Name },
	columns: []cli.Column[cloudsim.Zone]{
		{Head: "NAME", Cell: func(z cloudsim.Zone) string { return z.Name }},
		{Head: "REGION", Cell: func(z cloudsim.Zone) string { return z.Region }},
	},
	get:  (*client.Client).GetZone,
	list: (*client.Client).ListZones,
}

var instanceTypes = kind[cloudsim.InstanceType, string]{
	kind: cloudsim.KindInstanceType, noun: "instance type", plural: "instance types", command: "instance-types", sample: "small",
	id: func(t cloudsim.InstanceType) string { return t.Name },
	columns: []cli.Column[cloudsim.InstanceType]{
		{Head: "NAME", Cell: func(t cloudsim.InstanceType) string { return t.Name }},
		{Head: "CPUS", Cell: func(t cloudsim.InstanceType) string { return strconv.Itoa(t.CPUs) }},
		{Head: "MEMORY", Cell: func(t cloudsim.InstanceType) string { return mebibytes(t.MemoryMiB) }},
	},
	get:  (*client.Client).GetInstanceType,
	list: (*client.Client).ListInstanceTypes,
}

func mebibytes(n int64) string {
	if n%1024 == 0 {
		return strconv.FormatInt(n/1024, 10) + "GiB"
	}
	return strconv.FormatInt(n, 10) + "MiB"
}

func newRegionsCommand(c *cli.Connection) *cobra.Command {
	cmd := regions.groupCommand("List regions, which are groups of zones", "region")
	cmd.AddCommand(regions.listCommand(c), regions.getCommand(c))
	return cmd
}

func newZonesCommand(c *cli.Connection) *cobra.Command {
	cmd := zones.groupCommand("List zones, which are the failure domains of a region", "zone")
	cmd.AddCommand(zones.listCommand(c), zones.getCommand(c))
	return cmd
}

func newInstanceTypesCommand(c *cli.Connection) *cobra.Command {
	cmd := instanceTypes.groupCommand("List the sizes of instances", "instance-type")
	cmd.AddCommand(instanceTypes.listCommand(c), instanceTypes.getCommand(c))
	return cmd
}

// theOnly returns the given value of the flag. If this value is empty, theOnly returns the name of
// the only resource of this kind. If the cloud has no resource or several resources of this kind,
// theOnly returns an error.
func (k kind[T, ID]) theOnly(ctx context.Context, cl *client.Client, flag, value string) (string, error) {
	if value != "" {
		return value, nil
	}
	resources, err := k.list(cl, ctx, cloudsim.ListOptions{Limit: maxHints + 1})
	switch {
	case err != nil:
		return "", err
	case len(resources.Items) == 0:
		return "", cloudsim.Errorf(cloudsim.Invalid, "the cloud has no %s", k.plural)
	case len(resources.Items) > 1:
		return "", cloudsim.Errorf(cloudsim.Invalid, "--%s is required: the cloud has %s", flag,
			k.hints(resources.Items, func(t T) string { return t.Head().Name }))
	}
	return resources.Items[0].Head().Name, nil
}
