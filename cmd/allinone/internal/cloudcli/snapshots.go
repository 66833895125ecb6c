package cloudcli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var snapshots = kind[cloudsim.Snapshot, cloudsim.SnapshotID]{
	kind: cloudsim.KindSnapshot, noun: "snapshot", plural: "snapshots", command: "snapshots", prefix: "snap-",
	sample: "before-upgrade", sourced: true,
	id:    func(s cloudsim.Snapshot) string { return string(s.ID) },
	state: func(s cloudsim.Snapshot) string { return string(s.State) },
	columns: []cli.Column[cloudsim.Snapshot]{
		{Head: "ID", Cell: func(s cloudsim.Snapshot) string { return string(s.ID) }},
		{Head: "NAME", Cell: func(s cloudsim.Snapshot) string { return s.Name }},
		{Head: "STATE", Cell: func(s cloudsim.Snapshot) string { return string(s.State) }},
		{Head: "DISK", Cell: func(s cloudsim.Snapshot) string { return string(s.Disk) }},
		{Head: "SIZE", Cell: func(s cloudsim.Snapshot) string { return gibibytes(s.SizeGiB) }},
		{Head: "GROUP", Cell: func(s cloudsim.Snapshot) string { return string(s.Group) }},
		{Head: "REGION", Wide: true, Cell: func(s cloudsim.Snapshot) string { return s.Region }},
		{Head: "DATA", Wide: true, Cell: func(s cloudsim.Snapshot) string { return dataCell(s.Status) }},
	},
	get:  (*client.Client).GetSnapshot,
	list: (*client.Client).ListSnapshots,
}

// sourceID converts the value of --source to the id of a disk or a snapshot. If nameOrID is an id,
// sourceID returns this id, even if the disk or the snapshot is deleted. If nameOrID is a name,
// sourceID returns the id of the disk with this name.
func sourceID(ctx context.Context, cl *client.Client, nameOrID string) (string, error) {
	if nameOrID == "" || snapshots.mayBeID(nameOrID) {
		return nameOrID, nil
	}
	d, err := disks.findResource(ctx, cl, nameOrID)
	if errors.Is(err, cloudsim.NotFound) && disks.mayBeID(nameOrID) {
		return nameOrID, nil
	}
	return string(d.ID), err
}

func newSnapshotsCommand(c *cli.Connection) *cobra.Command {
	cmd := snapshots.groupCommand("Manage snapshots of disks", "snapshot")
	cmd.AddCommand(
		snapshots.listCommand(c),
		snapshots.getCommand(c),
		newCreateSnapshotCommand(c),
		snapshots.deleteCommand(c, true, (*client.Client).DeleteSnapshot),
	)
	return cmd
}

func newCreateSnapshotCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		w      waitFlags
		labels []string
		disk   string
	)
	cmd := &cobra.Command{
		Use: "create NAME --disk DISK", Short: "Take a snapshot of a disk, attached or not",
		Long: `Take a snapshot of a disk, attached or not. The snapshot has the data of one
instant, as after a power cut. The same command again returns the existing snapshot.`,
		Example: `  allinone cloud snapshots create before-upgrade --disk data-1 --wait
  allinone cloud disks create restored --zone sim-1a --from-snapshot before-upgrade`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req := cloudsim.CreateSnapshot{Name: args[0]}
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			d, err := disks.findResource(ctx, cl, disk)
			if err != nil {
				return err
			}
			req.Disk = d.ID
			made, err := cl.CreateSnapshot(ctx, req)
			return snapshots.show(ctx, c, cl, o, w, made, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&disk, "disk", "", "source `DISK`")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	_ = cmd.MarkFlagRequired("disk")
	_ = cmd.RegisterFlagCompletionFunc("disk", completeNames(c, disks))
	return cmd
}
