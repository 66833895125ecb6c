package cloudcli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var snapshotGroups = kind[cloudsim.SnapshotGroup, cloudsim.SnapshotGroupID]{
	kind: cloudsim.KindSnapshotGroup, noun: "snapshot group", plural: "snapshot groups", command: "snapshot-groups", prefix: "sgrp-",
	sample: "nightly",
	id:     func(g cloudsim.SnapshotGroup) string { return string(g.ID) },
	state:  func(g cloudsim.SnapshotGroup) string { return string(g.State) },
	columns: []cli.Column[cloudsim.SnapshotGroup]{
		{Head: "ID", Cell: func(g cloudsim.SnapshotGroup) string { return string(g.ID) }},
		{Head: "NAME", Cell: func(g cloudsim.SnapshotGroup) string { return g.Name }},
		{Head: "STATE", Cell: func(g cloudsim.SnapshotGroup) string { return string(g.State) }},
		{Head: "DISKS", Cell: func(g cloudsim.SnapshotGroup) string { return commas(g.Disks) }},
		{Head: "SNAPSHOTS", Cell: func(g cloudsim.SnapshotGroup) string { return commas(g.Snapshots) }},
	},
	get:  (*client.Client).GetSnapshotGroup,
	list: (*client.Client).ListSnapshotGroups,
}

func commas[S ~string](all []S) string { return strings.ReplaceAll(cli.Join(all), ", ", ",") }

func newSnapshotGroupsCommand(c *cli.Connection) *cobra.Command {
	cmd := snapshotGroups.groupCommand("Manage snapshots of several disks from one instant", "snapshot-group")
	cmd.AddCommand(
		snapshotGroups.listCommand(c),
		snapshotGroups.getCommand(c),
		newCreateSnapshotGroupCommand(c),
		snapshotGroups.deleteCommand(c, true, (*client.Client).DeleteSnapshotGroup),
	)
	return cmd
}

func newCreateSnapshotGroupCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		w      waitFlags
		labels []string
		of     []string
	)
	cmd := &cobra.Command{
		Use: "create NAME --disk DISK...", Short: "Take snapshots of several disks at one instant",
		Long: `Take snapshots of several disks at one instant: of all disks or of none. The snapshots
become ready together and are deleted together. The same command again returns the
existing group.`,
		Example: "  allinone cloud snapshot-groups create nightly --disk data-1 --disk log-1 --wait",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req := cloudsim.CreateSnapshotGroup{Name: args[0]}
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			found, err := disks.resolveAll(ctx, cl, of)
			if err != nil {
				return err
			}
			for _, d := range found {
				req.Disks = append(req.Disks, d.ID)
			}
			made, err := cl.CreateSnapshotGroup(ctx, req)
			return snapshotGroups.show(ctx, c, cl, o, w, made, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&of, "disk", nil, "source `DISK`; may be repeated")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE` of the group and its snapshots; may be repeated")
	_ = cmd.MarkFlagRequired("disk")
	_ = cmd.RegisterFlagCompletionFunc("disk", completeNames(c, disks))
	return cmd
}
