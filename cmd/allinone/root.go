package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// These are the ids of the command groups in the help of the root command.
const (
	groupLab        = "lab"
	groupCloud      = "cloud"
	groupSubsystems = "subsystems"
	groupOther      = "other"
)

// versionFlag is the name of a flag that only the root command has.
const versionFlag = "version"

func newRootCommand(e cli.Env) *cobra.Command {
	// Libraries add flags to pflag.CommandLine, for example --version, which has no effect in
	// allinone. Cobra adds the flags of pflag.CommandLine to every command. So allinone replaces
	// pflag.CommandLine with an empty flag set.
	pflag.CommandLine = pflag.NewFlagSet("allinone", pflag.ContinueOnError)
	cobra.EnableCommandSorting = false // the help lists the commands in the order of labCommands and commands
	root := &cobra.Command{
		Use:   "allinone",
		Short: "A simulated cloud for one machine, and the Kubernetes components that talk to it",
		Long: `allinone is a simulated cloud for one machine, with the Kubernetes components that
talk to it: cloud controller manager, CSI driver, credential provider and network
proxy. Its lab starts the cloud and a cluster together.`,
		Example: `  # Start a cluster on a simulated cloud, and list its machines
  allinone up
  allinone cloud instances list`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.AddGroup(
		&cobra.Group{ID: groupLab, Title: "The lab:"},
		&cobra.Group{ID: groupCloud, Title: "The cloud:"},
		&cobra.Group{ID: groupSubsystems, Title: "The Kubernetes components:"},
		&cobra.Group{ID: groupOther, Title: "More:"},
	)
	for _, c := range append(slices.Clip(labCommands), commands...) {
		cmd := c.make(e)
		cmd.GroupID = c.group
		root.AddCommand(cmd)
	}
	for _, cmd := range []*cobra.Command{cli.NewVersionCommand(e), cli.NewExitCodesTopic()} {
		cmd.GroupID = groupOther
		root.AddCommand(cmd)
	}
	root.SetCompletionCommandGroupID(groupOther)
	root.SetHelpCommandGroupID(groupOther)
	root.SetUsageFunc(usage)
	root.SetHelpFunc(help)
	root.SetFlagErrorFunc(flagError)
	root.Flags().Bool(versionFlag, false, "print the version")
	root.SetIn(e.Stdin)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	return root
}

// start runs the command in args and returns the exit code of the process.
func start(ctx context.Context, e cli.Env, args []string) int {
	root := newRootCommand(e)
	root.SetArgs(append([]string{}, args...)) // the slice must not be nil, because cobra would then read os.Args
	refuseUnknownTopics(root)
	root.InitDefaultCompletionCmd(args...) // this call comes first, so that the next calls also change the completion command
	began := false
	cli.NoteStart(root, &began)
	prepare(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	path := cmd.CommandPath()
	if !began {
		fmt.Fprintf(e.Stderr, "%s: %v\nRun '%s --help' for usage.\n", path, err, path)
		return cli.ExitUsage
	}
	cli.Explain(e.Stderr, path, err)
	return cli.ExitCode(err)
}

// prepare changes a command and its subcommands. If a command only groups subcommands, prepare
// gives the command a function RunE, which returns an error for an unknown subcommand. To report
// this error as a usage error, the caller must call cli.NoteStart before prepare. NoteStart then
// does not change this RunE.
func prepare(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	if !cmd.Runnable() && cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if showVersion, err := cmd.Flags().GetBool(versionFlag); err == nil && showVersion {
				fmt.Fprintln(cmd.OutOrStdout(), cli.VersionLine())
				return nil
			}
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		}
	}
	for _, sub := range cmd.Commands() {
		prepare(sub)
	}
}

// refuseUnknownTopics changes the command "allinone help", so that this command returns an error
// for an unknown name. By default cobra would print the help of the parent command.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "help" {
			continue
		}
		cmd.Args = func(_ *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err == nil && found.HasSubCommands() && len(rest) > 0 {
				return unknownCommand(found, rest[0])
			}
			return err
		}
	}
}

func unknownCommand(cmd *cobra.Command, name string) error {
	msg := fmt.Sprintf("unknown command %q", name)
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		msg += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(msg)
}

// flagError returns the error for an invalid flag. If the command before the flag is unknown,
// flagError returns an error about this command instead.
func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return err
}
