package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func testEnv() (cli.Env, *bytes.Buffer, *bytes.Buffer) {
	var stdout, stderr bytes.Buffer
	return cli.Env{Getenv: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr}, &stdout, &stderr
}

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

// TestCommandsAreExplained proves that every command has a description and an example.
func TestCommandsAreExplained(t *testing.T) {
	e, _, _ := testEnv()
	walk(newRootCommand(e), func(cmd *cobra.Command) {
		topic := !cmd.Runnable() && !cmd.HasSubCommands()
		switch {
		case cmd.Short == "":
			t.Errorf("%s: no description", cmd.CommandPath())
		case strings.HasSuffix(cmd.Short, "."):
			t.Errorf("%s: the description %q ends with a period: remove it", cmd.CommandPath(), cmd.Short)
		case !topic && !strings.Contains(cmd.Example, cmd.CommandPath()):
			t.Errorf("%s: no example shows it:\n%s", cmd.CommandPath(), cmd.Example)
		case cmd.Parent() != nil && !cmd.Parent().HasParent() && cmd.GroupID == "":
			t.Errorf("%s: in no group of the help", cmd.CommandPath())
		}
	})
}

// TestNoLibraryFlags proves that no command except ccm has the flags that libraries added to
// pflag.CommandLine.
func TestNoLibraryFlags(t *testing.T) {
	e, _, _ := testEnv()
	root := newRootCommand(e)
	walk(root, func(cmd *cobra.Command) {
		_ = cmd.InheritedFlags() // in this call cobra adds the flags of pflag.CommandLine
		if cmd != root && cmd.Name() != "ccm" && cmd.Flags().Lookup(versionFlag) != nil {
			t.Errorf("%s has --%s", cmd.CommandPath(), versionFlag)
		}
	})
}

// wordRE matches a word of a shell command. A text in single quotes belongs to one word.
var wordRE = regexp.MustCompile(`('[^']*'|[^'\s])+`)

// TestExamplesParse proves that the examples in the help contain only existing commands and
// flags.
func TestExamplesParse(t *testing.T) {
	e, _, _ := testEnv()
	root := newRootCommand(e)
	walk(root, func(cmd *cobra.Command) {
		// Join continued lines. Remove comments, and remove the commands of other programs.
		for line := range strings.Lines(regexp.MustCompile(`\\\n\s*`).ReplaceAllString(cmd.Example, " ")) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			line, _, _ = strings.Cut(line, " | ")
			line, _, _ = strings.Cut(line, " && ")
			words := wordRE.FindAllString(strings.TrimSuffix(line, "&"), -1)
			if len(words) == 0 || words[0] != "allinone" {
				continue
			}
			shown, rest, err := root.Find(words[1:])
			if err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
				continue
			}
			if shown == root || shown.HasSubCommands() && !shown.Runnable() {
				if len(rest) > 0 {
					t.Errorf("%s: %q: no such command", cmd.CommandPath(), line)
				}
				continue
			}
			if err := shown.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			} else if err := shown.ValidateArgs(shown.Flags().Args()); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
		}
	})
}

// BenchmarkNewRootCommand measures the time that newRootCommand needs to create all commands.
// This time is a part of the start of every command, so it must stay short.
func BenchmarkNewRootCommand(b *testing.B) {
	e, _, _ := testEnv()
	for b.Loop() {
		newRootCommand(e)
	}
}
