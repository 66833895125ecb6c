package cloudcli

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
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func newStateCommand(c *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: "state", Aliases: []string{"states"}, Short: "Save and load the whole cloud",
		Long: `Save and load the whole cloud. A state has the resources with their ids, addresses,
provider ids and open operations, the journal, the clock, faults and holds, and the
data of disks. For a snapshot of one disk use 'allinone cloud snapshots'.

After a load or a reset each watch ends with an error of the kind gone, and clients must
list again. A token of the running cloud stays valid after a load if its project and its
service account also exist in the loaded state.`,
		Example: `  allinone cloud state save before-upgrade
  allinone cloud state diff before-upgrade
  allinone cloud state load before-upgrade

  # Move a state to another cloud
  allinone cloud state export before-upgrade --file lab.state
  allinone cloud state import lab --file lab.state`,
	}
	cmd.AddCommand(newSaveStateCommand(c), newListStatesCommand(c), newLoadStateCommand(c), newDeleteStateCommand(c),
		newDiffStatesCommand(c), newExportStateCommand(c), newImportStateCommand(c), newResetStateCommand(c))
	return cmd
}

func statePrinter(c *cli.Connection, o cli.Output) cli.Printer[cloudsim.State] {
	return cli.Printer[cloudsim.State]{
		Output: o, Writer: c.Stdout, ID: func(s cloudsim.State) string { return s.Name },
		Columns: []cli.Column[cloudsim.State]{
			{Head: "NAME", Cell: func(s cloudsim.State) string { return s.Name }},
			{Head: "SAVED", Cell: func(s cloudsim.State) string { return s.SavedAt.Format(time.RFC3339) }},
			{Head: "REVISION", Cell: func(s cloudsim.State) string { return strconv.FormatUint(s.Revision, 10) }},
			{Head: "KIB", Cell: func(s cloudsim.State) string { return strconv.FormatInt(s.Bytes>>10, 10) }},
			{Head: "DISKS", Cell: func(s cloudsim.State) string {
				if s.DiskData {
					return "with data"
				}
				return "records"
			}},
			{Head: "DAMAGE", Cell: func(s cloudsim.State) string { return s.Damage }},
		},
	}
}

func newSaveStateCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var req cloudsim.SaveState
	cmd := &cobra.Command{
		Use: "save NAME", Short: "Save the whole cloud",
		Long: `Save the whole cloud with the data of its disks and snapshots. The records are of one
instant. The data of all disks and snapshots is of one later instant, as after a power
cut. A state holds up to 4 GiB of data; parts of disks that were never written do not
count.

With --records-only the state has no disk data. When you load such a state, each disk
keeps the data that it has in the running cloud. A disk that the running cloud does not
have is empty.`,
		Example: "  allinone cloud state save before-upgrade\n  allinone cloud state save before-upgrade --records-only",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			req.Name = args[0]
			s, err := cl.SaveState(ctx, req)
			if err != nil {
				return err
			}
			return statePrinter(c, o).One(s)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().BoolVar(&req.RecordsOnly, "records-only", false, "save no data of disks and snapshots")
	return cmd
}

func newListStatesCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "list", Short: "List saved states",
		Example: "  allinone cloud state list", Args: cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			l, err := cl.ListStates(ctx)
			if err != nil {
				return err
			}
			return statePrinter(c, o).List(l.Items)
		}),
	}
	o.Flags(cmd)
	return cmd
}

func newLoadStateCommand(c *cli.Connection) *cobra.Command {
	var req cloudsim.LoadState
	cmd := &cobra.Command{
		Use: "load NAME", Short: "Replace the cloud by a saved state",
		Long: `Replace the cloud by a saved state in one step. Changes after the save are lost.
Operations that were due to end between the save and the load end at once, as after a
restart of the cloud.

If the state has disk data, it replaces the present data of all disks. Such a load is
refused while a disk is attached, because an instance that has it mounted would
continue with the old data. Detach the disk first, or leave the data of disks as it
is with --records-only.`,
		Example: "  allinone cloud state load before-upgrade\n  allinone cloud state load before-upgrade --records-only",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: stateNames(c),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			if err := cl.LoadState(ctx, args[0], req); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.Stdout, "state %s: loaded\n", args[0])
			return err
		}),
	}
	cmd.Flags().BoolVar(&req.RecordsOnly, "records-only", false, "do not change the data of disks")
	return cmd
}

func newDeleteStateCommand(c *cli.Connection) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME...", Short: "Delete states",
		Example: "  allinone cloud state delete before-upgrade",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: stateNames(c),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			var failed []error
			for _, name := range args {
				if err := cl.DeleteState(ctx, name); err != nil {
					failed = append(failed, err)
					continue
				}
				fmt.Fprintf(c.Stdout, "state %s: deleted\n", name)
			}
			return cloudsim.OneOrMany(failed)
		}),
	}
}

func newDiffStatesCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "diff FROM [TO]", Short: "Compare two states, or a state with the running cloud",
		Example: "  allinone cloud state diff before-upgrade\n  allinone cloud state diff monday tuesday -o json",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: stateNames(c),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			to := ""
			if len(args) == 2 {
				to = args[1]
			}
			d, err := cl.DiffStates(ctx, args[0], to)
			if err != nil {
				return err
			}
			return cli.Printer[cloudsim.StateChange]{
				Output: o, Writer: c.Stdout, ID: func(s cloudsim.StateChange) string { return s.ID },
				Columns: []cli.Column[cloudsim.StateChange]{
					{Head: "CHANGE", Cell: func(s cloudsim.StateChange) string { return s.Change }},
					{Head: "KIND", Cell: func(s cloudsim.StateChange) string { return string(s.Kind) }},
					{Head: "ID", Cell: func(s cloudsim.StateChange) string { return s.ID }},
					{Head: "NAME", Cell: func(s cloudsim.StateChange) string { return s.Name }},
					{Head: "FIELDS", Cell: func(s cloudsim.StateChange) string { return strings.Join(s.Fields, ", ") }},
				},
			}.List(d.Items)
		}),
	}
	o.Flags(cmd)
	return cmd
}

func newExportStateCommand(c *cli.Connection) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "export NAME --file FILE", Short: "Write a state to a file that any cloud can import",
		Long: `Write a state to a file that any cloud can import. The file contains secrets: the private
signing keys and the secrets of access keys. It also contains the hashes of tokens, and
the saved data of disks. The command creates a file that only you can read. Do not give
the file to a person who must not have these secrets.`,
		Example: "  allinone cloud state export before-upgrade --file lab.state",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: stateNames(c),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			if file == "" {
				return cli.BadFlag("file", file, "the path of a new file, or - for standard output")
			}
			if file == "-" {
				return cl.ExportState(ctx, args[0], c.Stdout)
			}
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			if err := errors.Join(cl.ExportState(ctx, args[0], f), f.Close()); err != nil {
				return errors.Join(err, os.Remove(file)) // remove the incomplete file
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "new `FILE` for the state; - for standard output")
	return cmd
}

func newImportStateCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var file string
	cmd := &cobra.Command{
		Use: "import NAME --file FILE", Short: "Import an exported state",
		Long:    "Import an exported state. To use the state, load it afterward. The cloud checks the\nfile, and refuses a damaged file. Load only the states of authors that you trust: a\nloaded state contains the tokens, the access keys and the role bindings of its author.",
		Example: "  allinone cloud state import lab --file lab.state\n  allinone cloud state load lab",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			from := c.Stdin
			if file != "-" {
				f, err := os.Open(file)
				if err != nil {
					return cloudsim.Errorf(cloudsim.Invalid, "--file: %w", err)
				}
				defer func() { _ = f.Close() }() // an error has no effect, because the command only reads the file
				from = f
			}
			s, err := cl.ImportState(ctx, args[0], from)
			if err != nil {
				return err
			}
			return statePrinter(c, o).One(s)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringVar(&file, "file", "", "exported `FILE` to read; - for standard input")
	return cmd
}

func newResetStateCommand(c *cli.Connection) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "reset", Short: "Delete the resources of the cloud, except projects and access rights",
		Long: `Make the cloud empty in one step. Projects, tokens, access keys, service accounts, roles,
role bindings, workload trusts, the clock and saved states stay. Quotas, rate limits and
durations get their default values. The cloud gets new signing keys, so identity
documents and registry passwords become invalid.`,
		Example: "  allinone cloud state reset --yes", Args: cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			if !yes {
				return cloudsim.Errorf(cloudsim.Invalid, "a reset deletes the resources of the cloud, except projects and access rights: save a state first if you need these resources, then add --yes")
			}
			return cl.ResetState(ctx)
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm the reset")
	return cmd
}

func stateNames(c *cli.Connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), cli.CompletionTimeout)
		defer cancel()
		cl, err := c.Client()
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
