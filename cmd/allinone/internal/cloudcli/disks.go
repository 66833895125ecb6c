package cloudcli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var disks = kind[cloudsim.Disk, cloudsim.DiskID]{
	kind: cloudsim.KindDisk, noun: "disk", plural: "disks", command: "disks", prefix: "disk-",
	sample: "data-1", zoned: true, sourced: true, attached: true,
	id:    func(d cloudsim.Disk) string { return string(d.ID) },
	state: func(d cloudsim.Disk) string { return string(d.State) },
	columns: []cli.Column[cloudsim.Disk]{
		{Head: "ID", Cell: func(d cloudsim.Disk) string { return string(d.ID) }},
		{Head: "NAME", Cell: func(d cloudsim.Disk) string { return d.Name }},
		{Head: "STATE", Cell: func(d cloudsim.Disk) string { return string(d.State) }},
		{Head: "ZONE", Cell: func(d cloudsim.Disk) string { return strings.Join(d.Zones(), ",") }},
		{Head: "TYPE", Cell: func(d cloudsim.Disk) string { return d.Type }},
		{Head: "SIZE", Cell: func(d cloudsim.Disk) string { return gibibytes(d.SizeGiB) }},
		{Head: "INSTANCES", Cell: attachmentCell},
		{Head: "IOPS", Wide: true, Cell: func(d cloudsim.Disk) string { return strconv.Itoa(d.IOPS) }},
		{Head: "MIB/S", Wide: true, Cell: func(d cloudsim.Disk) string { return strconv.Itoa(d.ThroughputMiBps) }},
		{Head: "MULTI-ATTACH", Wide: true, Cell: func(d cloudsim.Disk) string { return yesNo(d.MultiAttach) }},
		{Head: "SOURCE", Wide: true, Cell: cloudsim.Disk.Source},
		{Head: "DATA", Wide: true, Cell: func(d cloudsim.Disk) string { return dataCell(d.Status) }},
	},
	get:  (*client.Client).GetDisk,
	list: (*client.Client).ListDisks,
}

var diskTypes = kind[cloudsim.DiskType, string]{
	kind: cloudsim.KindDiskType, noun: "disk type", plural: "disk types", command: "disk-types", sample: "balanced",
	id: func(t cloudsim.DiskType) string { return t.Name },
	columns: []cli.Column[cloudsim.DiskType]{
		{Head: "NAME", Cell: func(t cloudsim.DiskType) string { return t.Name }},
		{Head: "MIN", Cell: func(t cloudsim.DiskType) string { return gibibytes(t.MinGiB) }},
		{Head: "MAX", Cell: func(t cloudsim.DiskType) string { return gibibytes(t.MaxGiB) }},
		{Head: "IOPS", Cell: func(t cloudsim.DiskType) string { return strconv.Itoa(t.DefaultIOPS) }},
		{Head: "MAX-IOPS", Cell: func(t cloudsim.DiskType) string { return strconv.Itoa(t.MaxIOPS) }},
		{Head: "MIB/S", Cell: func(t cloudsim.DiskType) string { return strconv.Itoa(t.DefaultThroughputMiBps) }},
		{Head: "MAX-MIB/S", Cell: func(t cloudsim.DiskType) string { return strconv.Itoa(t.MaxThroughputMiBps) }},
		{Head: "MULTI-ATTACH", Cell: func(t cloudsim.DiskType) string { return yesNo(t.MultiAttach) }},
		{Head: "REGIONAL", Cell: func(t cloudsim.DiskType) string { return yesNo(t.Regional) }},
		{Head: "MIN-IOPS", Wide: true, Cell: func(t cloudsim.DiskType) string { return strconv.Itoa(t.MinIOPS) }},
		{Head: "MIN-MIB/S", Wide: true, Cell: func(t cloudsim.DiskType) string { return strconv.Itoa(t.MinThroughputMiBps) }},
	},
	get:  (*client.Client).GetDiskType,
	list: (*client.Client).ListDiskTypes,
}

// dataCell returns the size or the error that the data plane reports for a disk or a snapshot.
func dataCell(s cloudsim.DiskStatus) string {
	switch {
	case s.Error != "":
		return s.Error
	case s.SizeGiB == 0:
		return ""
	}
	return gibibytes(s.SizeGiB)
}

func gibibytes(n int) string { return strconv.Itoa(n) + "GiB" }

// attachmentCell returns the instances that a disk is attached to. It adds the state of each
// attachment that is not in the state "attached". It also says whether an attachment is
// read-only.
func attachmentCell(d cloudsim.Disk) string {
	var words []string
	for _, a := range d.Attachments {
		word := string(a.Instance)
		if a.ReadOnly {
			word += "(read-only)"
		}
		if a.State != cloudsim.AttachmentAttached {
			word += "(" + string(a.State) + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

func newDisksCommand(c *cli.Connection) *cobra.Command {
	cmd := disks.groupCommand("Manage disks, which stay when their instances are deleted", "disk")
	cmd.AddCommand(
		disks.listCommand(c),
		disks.getCommand(c),
		newCreateDiskCommand(c),
		newAttachDiskCommand(c),
		newDetachDiskCommand(c),
		newResizeDiskCommand(c),
		newModifyDiskCommand(c),
		disks.labelCommand(c, func(ctx context.Context, cl *client.Client, d cloudsim.Disk, labels map[string]string) (cloudsim.Disk, error) {
			return cl.UpdateDisk(ctx, d.ID, cloudsim.UpdateDisk{Labels: labels}, d.Revision)
		}),
		disks.deleteCommand(c, true, (*client.Client).DeleteDisk),
	)
	return cmd
}

func newDiskTypesCommand(c *cli.Connection) *cobra.Command {
	cmd := diskTypes.groupCommand("List the types of disks, with their limits", "disk-type")
	cmd.AddCommand(diskTypes.listCommand(c), diskTypes.getCommand(c))
	return cmd
}

func newCreateDiskCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		w      waitFlags
		labels []string
		size   string
		from   diskSource
		req    cloudsim.CreateDisk
	)
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an empty disk, or a copy of a disk or snapshot",
		Long: `Create a disk. The same command again returns the existing disk.

If the cloud has several zones, --zone or --replica-zone is required. With two
--replica-zone flags (and without --zone) the disk is regional: you can attach it to
instances of both zones. The default of --type is balanced.

The disk is empty, or a copy of a snapshot of its region or of a disk of its type and
zone. For a copy you may omit --size.`,
		Example: `  allinone cloud disks create data-1 --zone sim-1a --size 10
  allinone cloud disks create shared --zone sim-1a --size 100GiB --type fast --multi-attach --wait
  allinone cloud disks create safe --replica-zone sim-1a --replica-zone sim-1b --size 10
  allinone cloud disks create restored --zone sim-1b --from-snapshot before-upgrade`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if size != "" {
				if req.SizeGiB, err = parseSize(size); err != nil {
					return err
				}
			}
			if err := from.resolve(ctx, cl, &req); err != nil {
				return err
			}
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			if len(req.ReplicaZones) == 0 {
				if req.Zone, err = zones.theOnly(ctx, cl, "zone", req.Zone); err != nil {
					return err
				}
			}
			made, err := cl.CreateDisk(ctx, req)
			return disks.show(ctx, c, cl, o, w, made, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&req.Zone, "zone", "", "zone of the disk")
	f.StringVar(&req.Type, "type", "balanced", "disk type")
	f.StringVar(&size, "size", "", "size in `GIB`, e.g. 10 or 10GiB (default the size of the source)")
	f.StringArrayVar(&req.ReplicaZones, "replica-zone", nil, "one of the two zones of a regional disk; repeat the flag for the second zone")
	f.IntVar(&req.IOPS, "iops", 0, "I/O operations per second (default the value of the disk type)")
	f.IntVar(&req.ThroughputMiBps, "throughput", 0, "throughput in `MIB` per second (default the value of the disk type)")
	from.flags(c, cmd)
	f.BoolVar(&req.MultiAttach, "multi-attach", false, "allow the attachment to several instances at once")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	cmd.MarkFlagsOneRequired("size", "from-snapshot", "from-disk")
	cmd.MarkFlagsMutuallyExclusive("zone", "replica-zone")
	_ = cmd.RegisterFlagCompletionFunc("zone", completeNames(c, zones))
	_ = cmd.RegisterFlagCompletionFunc("replica-zone", completeNames(c, zones))
	_ = cmd.RegisterFlagCompletionFunc("type", completeNames(c, diskTypes))
	return cmd
}

// parseSize parses a size in whole GiB. The unit, GiB or Gi, is optional.
func parseSize(s string) (int, error) {
	plain, hasUnit := strings.CutSuffix(s, "GiB")
	if !hasUnit {
		plain = strings.TrimSuffix(s, "Gi")
	}
	n, err := strconv.Atoi(plain)
	if err != nil {
		return 0, cli.BadFlag("size", s, "whole GiB, e.g. 10 or 10GiB")
	}
	return n, nil
}

// instanceID returns the id of an instance. It accepts the id of a deleted instance, because a disk
// may still be attached to this instance.
func instanceID(ctx context.Context, cl *client.Client, nameOrID string) (cloudsim.InstanceID, error) {
	i, err := instances.findResource(ctx, cl, nameOrID)
	if errors.Is(err, cloudsim.NotFound) && instances.mayBeID(nameOrID) {
		return cloudsim.InstanceID(nameOrID), nil
	}
	return i.ID, err
}

func diskAndInstance(ctx context.Context, cl *client.Client, args []string) (cloudsim.DiskID, cloudsim.InstanceID, error) {
	d, notDisk := disks.findResource(ctx, cl, args[0])
	i, notInstance := instanceID(ctx, cl, args[1])
	return d.ID, i, errors.Join(notDisk, notInstance)
}

func newAttachDiskCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var w waitFlags
	var req cloudsim.AttachDisk
	cmd := &cobra.Command{
		Use: "attach DISK INSTANCE", Short: "Attach a disk to an instance of its zone",
		Example: `  allinone cloud disks attach data-1 node-1 --wait
  allinone cloud disks attach data-1 node-1 --read-only`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: inOrder(completeNames(c, disks), completeNames(c, instances)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			disk, instance, err := diskAndInstance(ctx, cl, args)
			if err != nil {
				return err
			}
			req.Instance = instance
			d, err := cl.AttachDisk(ctx, disk, req)
			return disks.show(ctx, c, cl, o, w, d, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	cmd.Flags().BoolVar(&req.ReadOnly, "read-only", false, "attach the disk read-only")
	return cmd
}

func newDetachDiskCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var w waitFlags
	var req cloudsim.DetachDisk
	cmd := &cobra.Command{
		Use: "detach DISK INSTANCE", Short: "Detach a disk from an instance",
		Long: `Detach a disk from an instance. With --force the cloud detaches the disk at once,
without waiting for the instance. --force works only if the instance is stopped or
terminating.`,
		Example: `  allinone cloud disks detach data-1 node-1 --wait
  allinone cloud disks detach data-1 node-1 --force`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: inOrder(completeNames(c, disks), completeNames(c, instances)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			disk, instance, err := diskAndInstance(ctx, cl, args)
			if err != nil {
				return err
			}
			req.Instance = instance
			d, err := cl.DetachDisk(ctx, disk, req)
			return disks.show(ctx, c, cl, o, w, d, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	cmd.Flags().BoolVar(&req.Force, "force", false, "detach the disk at once from an instance that does not run")
	return cmd
}

func newResizeDiskCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var w waitFlags
	var size string
	cmd := &cobra.Command{
		Use: "resize DISK --size GIB", Short: "Grow a disk, attached or not",
		Example: `  allinone cloud disks resize data-1 --size 20
  allinone cloud disks resize data-1 --size 20GiB --wait`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, disks)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			n, err := parseSize(size)
			if err != nil {
				return err
			}
			d, err := disks.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			d, err = cl.ResizeDisk(ctx, d.ID, cloudsim.ResizeDisk{SizeGiB: n})
			return disks.show(ctx, c, cl, o, w, d, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	cmd.Flags().StringVar(&size, "size", "", "new size in `GIB`, e.g. 20 or 20GiB")
	_ = cmd.MarkFlagRequired("size")
	return cmd
}

func newModifyDiskCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var w waitFlags
	var req cloudsim.ModifyDisk
	cmd := &cobra.Command{
		Use: "modify DISK", Short: "Change the type, IOPS or throughput of a disk, attached or not",
		Long: `Change the type, IOPS or throughput of a disk, attached or not. A new type
sets its default IOPS and throughput, unless you give these values too.`,
		Example: `  allinone cloud disks modify data-1 --type fast --wait
  allinone cloud disks modify data-1 --iops 6000 --throughput 250`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, disks)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			d, err := disks.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			d, err = cl.ModifyDisk(ctx, d.ID, req)
			return disks.show(ctx, c, cl, o, w, d, err)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&req.Type, "type", "", "new disk type")
	f.IntVar(&req.IOPS, "iops", 0, "new number of I/O operations per second")
	f.IntVar(&req.ThroughputMiBps, "throughput", 0, "new throughput in `MIB` per second")
	cmd.MarkFlagsOneRequired("type", "iops", "throughput")
	_ = cmd.RegisterFlagCompletionFunc("type", completeNames(c, diskTypes))
	return cmd
}

// diskSource contains the flags for the source of a new disk. The new disk is a copy of a
// snapshot or of another disk. Each flag is a name or an id.
type diskSource struct{ snapshot, disk string }

func (s *diskSource) flags(c *cli.Connection, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.snapshot, "from-snapshot", "", "`SNAPSHOT` that provides the initial data of the disk")
	f.StringVar(&s.disk, "from-disk", "", "`DISK` to copy")
	cmd.MarkFlagsMutuallyExclusive("from-snapshot", "from-disk")
	_ = cmd.RegisterFlagCompletionFunc("from-snapshot", completeNames(c, snapshots))
	_ = cmd.RegisterFlagCompletionFunc("from-disk", completeNames(c, disks))
}

// resolve writes the id of the source into req. It accepts the id of a deleted source, because a
// user may repeat a request. The cloud then returns the disk that the first request created, even
// if the source is deleted.
func (s *diskSource) resolve(ctx context.Context, cl *client.Client, req *cloudsim.CreateDisk) error {
	if s.snapshot != "" {
		found, err := snapshots.findResource(ctx, cl, s.snapshot)
		switch {
		case err == nil:
			req.SourceSnapshot = found.ID
		case errors.Is(err, cloudsim.NotFound) && snapshots.mayBeID(s.snapshot):
			req.SourceSnapshot = cloudsim.SnapshotID(s.snapshot)
		default:
			return err
		}
	}
	if s.disk != "" {
		found, err := disks.findResource(ctx, cl, s.disk)
		switch {
		case err == nil:
			req.SourceDisk = found.ID
		case errors.Is(err, cloudsim.NotFound) && disks.mayBeID(s.disk):
			req.SourceDisk = cloudsim.DiskID(s.disk)
		default:
			return err
		}
	}
	return nil
}
