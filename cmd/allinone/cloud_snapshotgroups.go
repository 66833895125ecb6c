package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

var snapshotGroups = kind[cloudsim.SnapshotGroup, cloudsim.SnapshotGroupID]{
	kind: cloudsim.KindSnapshotGroup, noun: "snapshot group", plural: "snapshot groups", command: "snapshot-groups", prefix: "sgrp-",
	sample: "nightly",
	id:     func(g cloudsim.SnapshotGroup) string { return string(g.ID) },
	state:  func(g cloudsim.SnapshotGroup) string { return string(g.State) },
	columns: []column[cloudsim.SnapshotGroup]{
		{head: "ID", cell: func(g cloudsim.SnapshotGroup) string { return string(g.ID) }},
		{head: "NAME", cell: func(g cloudsim.SnapshotGroup) string { return g.Name }},
		{head: "STATE", cell: func(g cloudsim.SnapshotGroup) string { return string(g.State) }},
		{head: "DISKS", cell: func(g cloudsim.SnapshotGroup) string { return commas(g.Disks) }},
		{head: "SNAPSHOTS", cell: func(g cloudsim.SnapshotGroup) string { return commas(g.Snapshots) }},
	},
	get:  (*client.Client).GetSnapshotGroup,
	list: (*client.Client).ListSnapshotGroups,
}

func commas[S ~string](all []S) string { return strings.ReplaceAll(join(all), ", ", ",") }

func newSnapshotGroupsCommand(c *cloudCLI) *cobra.Command {
	cmd := snapshotGroups.group("Snapshots of several disks at one instant", "snapshot-group")
	cmd.AddCommand(
		snapshotGroups.listCommand(c),
		snapshotGroups.getCommand(c),
		newCreateSnapshotGroupCommand(c),
		snapshotGroups.deleteCommand(c, true, (*client.Client).DeleteSnapshotGroup),
	)
	return cmd
}

func newCreateSnapshotGroupCommand(c *cloudCLI) *cobra.Command {
	var (
		o      output
		w      waiting
		labels []string
		of     []string
	)
	cmd := &cobra.Command{
		Use: "create NAME --disk DISK...", Short: "Take snapshots of several disks at one instant",
		Long: `Take snapshots of several disks at one instant: of all, or of none. They become
ready together and are deleted together. Asking again with the same words
returns the first ones.`,
		Example: "  allinone cloud snapshot-groups create nightly --disk data-1 --disk log-1 --wait",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req := cloudsim.CreateSnapshotGroup{Name: args[0]}
			if req.Labels, err = parseLabels("label", labels); err != nil {
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
	o.flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&of, "disk", nil, "`DISK` to take one of; may be repeated")
	f.StringArrayVar(&labels, "label", nil, "`KEY=VALUE` to label them with; may be repeated")
	_ = cmd.MarkFlagRequired("disk")
	_ = cmd.RegisterFlagCompletionFunc("disk", names(c, disks))
	return cmd
}
