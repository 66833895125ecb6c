package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

func newStateCommand(c *cloudCLI) *cobra.Command {
	cmd := &cobra.Command{
		Use: "state", Aliases: []string{"states"}, Short: "Save the whole cloud, and go back to it",
		Long: `Save the whole cloud, and go back to it: its resources with their ids, addresses,
provider ids and open operations, its journal, clock, faults and holds, and the
data of its disks. The snapshot of one disk is 'allinone cloud snapshots'.

After a load or a reset every watch ends with gone, and who watches lists again.
Who could call before still can, with the same token.`,
		Example: `  allinone cloud state save before-upgrade
  allinone cloud state diff before-upgrade
  allinone cloud state load before-upgrade

  # Take it elsewhere
  allinone cloud state export before-upgrade --file lab.state
  allinone cloud state import lab --file lab.state`,
	}
	cmd.AddCommand(newSaveStateCommand(c), newListStatesCommand(c), newLoadStateCommand(c), newDeleteStateCommand(c),
		newDiffStatesCommand(c), newExportStateCommand(c), newImportStateCommand(c), newResetStateCommand(c))
	return cmd
}

func statePrinter(c *cloudCLI, o output) printer[cloudsim.State] {
	return printer[cloudsim.State]{
		output: o, w: c.stdout, id: func(s cloudsim.State) string { return s.Name },
		columns: []column[cloudsim.State]{
			{head: "NAME", cell: func(s cloudsim.State) string { return s.Name }},
			{head: "SAVED", cell: func(s cloudsim.State) string { return s.SavedAt.Format(time.RFC3339) }},
			{head: "REVISION", cell: func(s cloudsim.State) string { return strconv.FormatUint(s.Revision, 10) }},
			{head: "KIB", cell: func(s cloudsim.State) string { return strconv.FormatInt(s.Bytes>>10, 10) }},
			{head: "DISKS", cell: func(s cloudsim.State) string {
				if s.DiskData {
					return "with data"
				}
				return "records"
			}},
			{head: "DAMAGE", cell: func(s cloudsim.State) string { return s.Damage }},
		},
	}
}

func newSaveStateCommand(c *cloudCLI) *cobra.Command {
	var o output
	var req cloudsim.SaveState
	cmd := &cobra.Command{
		Use: "save NAME", Short: "Save the cloud as it is now",
		Long: `Save the cloud as it is now, with the data of its disks and snapshots, all as they
are at one instant: what a power cut would leave. Holes take no room, and nothing
does on a file system that clones (XFS, Btrfs). A state holds up to 4 GiB of data.

With --records-only the data is left out: after a load a disk has the data that its
file has then, or has lost it.`,
		Example: "  allinone cloud state save before-upgrade\n  allinone cloud state save before-upgrade --records-only",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			req.Name = args[0]
			s, err := cl.SaveState(ctx, req)
			if err != nil {
				return err
			}
			return statePrinter(c, o).one(s)
		}),
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&req.RecordsOnly, "records-only", false, "leave out the data of disks and snapshots")
	return cmd
}

func newListStatesCommand(c *cloudCLI) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "list", Short: "List the states that were saved",
		Example: "  allinone cloud state list", Args: cobra.NoArgs,
		RunE: c.run(func(ctx context.Context, cl *client.Client, _ []string) error {
			l, err := cl.ListStates(ctx)
			if err != nil {
				return err
			}
			return statePrinter(c, o).list(l.Items)
		}),
	}
	o.flags(cmd)
	return cmd
}

func newLoadStateCommand(c *cloudCLI) *cobra.Command {
	var req cloudsim.LoadState
	cmd := &cobra.Command{
		Use: "load NAME", Short: "Make the cloud what it was when the state was saved",
		Long: `Make the cloud what it was when the state was saved, all at once: what came after
is gone. Work that is due by now settles, as after a restart.

The disks' data of then takes the place of what they have now, if the state has it.
That waits for nobody: it is refused while a disk is attached, because who has it
mounted would go on with the data of before. Detach first, or leave the data as it
is with --records-only.`,
		Example: "  allinone cloud state load before-upgrade\n  allinone cloud state load before-upgrade --records-only",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: stateNames(c),
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			if err := cl.LoadState(ctx, args[0], req); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.stdout, "state %s: loaded\n", args[0])
			return err
		}),
	}
	cmd.Flags().BoolVar(&req.RecordsOnly, "records-only", false, "leave the data of disks as it is")
	return cmd
}

func newDeleteStateCommand(c *cloudCLI) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME...", Short: "Forget states",
		Example: "  allinone cloud state delete before-upgrade",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: stateNames(c),
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			var failed []error
			for _, name := range args {
				if err := cl.DeleteState(ctx, name); err != nil {
					failed = append(failed, err)
					continue
				}
				fmt.Fprintf(c.stdout, "state %s: deleted\n", name)
			}
			return oneOrMany(failed)
		}),
	}
}

func newDiffStatesCommand(c *cloudCLI) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "diff FROM [TO]", Short: "Compare two states, or one with the cloud as it is now",
		Example: "  allinone cloud state diff before-upgrade\n  allinone cloud state diff monday tuesday -o json",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: stateNames(c),
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			to := ""
			if len(args) == 2 {
				to = args[1]
			}
			d, err := cl.DiffStates(ctx, args[0], to)
			if err != nil {
				return err
			}
			return printer[cloudsim.StateChange]{
				output: o, w: c.stdout, id: func(s cloudsim.StateChange) string { return s.ID },
				columns: []column[cloudsim.StateChange]{
					{head: "CHANGE", cell: func(s cloudsim.StateChange) string { return s.Change }},
					{head: "KIND", cell: func(s cloudsim.StateChange) string { return string(s.Kind) }},
					{head: "ID", cell: func(s cloudsim.StateChange) string { return s.ID }},
					{head: "NAME", cell: func(s cloudsim.StateChange) string { return s.Name }},
					{head: "FIELDS", cell: func(s cloudsim.StateChange) string { return strings.Join(s.Fields, ", ") }},
				},
			}.list(d.Items)
		}),
	}
	o.flags(cmd)
	return cmd
}

func newExportStateCommand(c *cloudCLI) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "export NAME --file FILE", Short: "Write a state to one file that any cloud can import",
		Long:    "Write a state to one file that any cloud can import. It holds no secrets, only the\nhashes of tokens, but all that is on the disks; nobody else may read it.",
		Example: "  allinone cloud state export before-upgrade --file lab.state",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: stateNames(c),
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			if file == "" {
				return badFlag("file", file, "a file to write")
			}
			if file == "-" {
				return cl.ExportState(ctx, args[0], c.stdout)
			}
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			if err := errors.Join(cl.ExportState(ctx, args[0], f), f.Close()); err != nil {
				return errors.Join(err, os.Remove(file)) // no half of it stays
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "`FILE` to write; it must not be there; - for standard output")
	return cmd
}

func newImportStateCommand(c *cloudCLI) *cobra.Command {
	var o output
	var file string
	cmd := &cobra.Command{
		Use: "import NAME --file FILE", Short: "Keep a state that was exported; load it afterwards",
		Example: "  allinone cloud state import lab --file lab.state\n  allinone cloud state load lab",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			from := c.stdin
			if file != "-" {
				f, err := os.Open(file)
				if err != nil {
					return cloudsim.Errorf(cloudsim.Invalid, "--file: %w", err)
				}
				defer func() { _ = f.Close() }() // it was read
				from = f
			}
			s, err := cl.ImportState(ctx, args[0], from)
			if err != nil {
				return err
			}
			return statePrinter(c, o).one(s)
		}),
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&file, "file", "", "`FILE` that was exported; - for standard input")
	return cmd
}

func newResetStateCommand(c *cloudCLI) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "reset", Short: "Make the cloud empty",
		Long:    "Make the cloud empty, all at once. Projects stay, and so do tokens, service accounts\nand roles; so do the clock, and states that were saved.",
		Example: "  allinone cloud state reset --yes", Args: cobra.NoArgs,
		RunE: c.run(func(ctx context.Context, cl *client.Client, _ []string) error {
			if !yes {
				return cloudsim.Errorf(cloudsim.Invalid, "this deletes every resource of the cloud: say --yes, or save a state first")
			}
			return cl.ResetState(ctx)
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "really")
	return cmd
}

// stateNames completes the names of saved states.
func stateNames(c *cloudCLI) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		cl, err := c.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		l, err := cl.ListStates(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var words []cobra.Completion
		for _, s := range l.Items {
			words = append(words, s.Name)
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
