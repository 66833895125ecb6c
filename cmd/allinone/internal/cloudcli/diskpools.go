package cloudcli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var diskPools = kind[cloudsim.DiskPool, string]{
	kind: cloudsim.KindDiskPool, noun: "disk pool", plural: "disk pools", command: "disk-pools", sample: "sim-1a.fast", zoned: true,
	id: func(p cloudsim.DiskPool) string { return p.Name },
	columns: []cli.Column[cloudsim.DiskPool]{
		{Head: "NAME", Cell: func(p cloudsim.DiskPool) string { return p.Name }},
		{Head: "ZONE", Cell: func(p cloudsim.DiskPool) string { return p.Zone }},
		{Head: "TYPE", Cell: func(p cloudsim.DiskPool) string { return p.Type }},
		{Head: "SIZE", Cell: func(p cloudsim.DiskPool) string { return gibibytes(p.SizeGiB) }},
		{Head: "USED", Cell: func(p cloudsim.DiskPool) string { return gibibytes(p.UsedGiB) }},
		{Head: "FREE", Cell: func(p cloudsim.DiskPool) string { return gibibytes(p.FreeGiB) }},
	},
	get:  (*client.Client).GetDiskPool,
	list: (*client.Client).ListDiskPools,
}

func newDiskPoolsCommand(c *cli.Connection) *cobra.Command {
	cmd := diskPools.groupCommand("Show or change the capacity of each zone for each type of disk", "disk-pool")
	cmd.AddCommand(diskPools.listCommand(c), diskPools.getCommand(c), newSetDiskPoolCommand(c))
	return cmd
}

func newSetDiskPoolCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var size string
	cmd := &cobra.Command{
		Use: "set POOL --size GIB", Short: "Change the capacity of a zone for a disk type",
		Long: `Change the capacity of a zone for a disk type. Existing disks stay, even if they use
more than the new capacity. Creation and growth beyond the capacity fail with
the error exhausted. The command needs an admin token.`,
		Example: `  # The cloud refuses all new fast disks in sim-1a
  allinone cloud disk-pools set sim-1a.fast --size 0`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, diskPools)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			n, err := parseSize(size)
			if err != nil {
				return err
			}
			p, err := diskPools.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			if p, err = cl.SetDiskPool(ctx, p.Name, cloudsim.SetDiskPool{SizeGiB: n}); err != nil {
				return err
			}
			return printResult(diskPools.printer(c, o), true, []cloudsim.DiskPool{p})
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringVar(&size, "size", "", "new size in `GIB`, e.g. 100 or 100GiB")
	_ = cmd.MarkFlagRequired("size")
	return cmd
}
