package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func help(cmd *cobra.Command, _ []string) {
	w := cmd.OutOrStdout()
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	fmt.Fprintln(w, strings.TrimSpace(text))
	if !cmd.Runnable() && !cmd.HasSubCommands() {
		return // cmd is a help topic, which has no usage
	}
	fmt.Fprintln(w)
	_ = usage(cmd) // fails only if writing to w fails, and then help cannot write an error message
}

func usage(cmd *cobra.Command) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "Usage:\n  %s\n", useLine(cmd))
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(w, "\nAliases:\n  %s\n", cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, g := range cmd.Groups() {
		listCommands(w, g.Title, cmd, g.ID)
	}
	listCommands(w, "Commands:", cmd, "")
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", cmd.LocalFlags().FlagUsages())
	}
	if cmd.HasAvailableInheritedFlags() {
		fmt.Fprintf(w, "\nGlobal flags:\n%s", cmd.InheritedFlags().FlagUsages())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nRun '%s COMMAND --help' for more about a command.\n", cmd.CommandPath())
	}
	return nil
}

func useLine(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND"
	}
	return cmd.UseLine()
}

func listCommands(w io.Writer, title string, cmd *cobra.Command, group string) {
	for _, sub := range cmd.Commands() {
		if sub.GroupID != group || sub.Hidden || sub.Deprecated != "" {
			continue
		}
		if title != "" {
			fmt.Fprintf(w, "\n%s\n", title)
			title = ""
		}
		fmt.Fprintf(w, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
	}
}
