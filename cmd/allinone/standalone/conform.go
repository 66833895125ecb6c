// Package standalone runs a command of allinone as a separate program. Such a program contains less
// code than allinone.
package standalone

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/conformcli"
)

// Conform runs the program cloudconform with the given environment variables, streams and
// arguments, and returns its exit code. The first signal interrupts the command, and the second
// signal ends the process.
func Conform(getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	pflag.CommandLine = pflag.NewFlagSet("cloudconform", pflag.ContinueOnError) // without the flags of libraries
	e := cli.Env{Getenv: getenv, Stdin: stdin, Stdout: stdout, Stderr: stderr}
	root := conformcli.NewConformCommand(e)
	root.Use, root.SilenceErrors, root.SilenceUsage = "cloudconform", true, true
	root.AddCommand(cli.NewVersionCommand(e), cli.NewExitCodesTopic())
	began := false
	cli.NoteStart(root, &began)
	rename(root)
	root.SetArgs(append([]string{}, args...)) // not nil, because cobra would then read os.Args
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil {
		if !began { // the command line is wrong
			err = cloudsim.Misuse(err)
		}
		cli.Explain(e.Stderr, cmd.CommandPath(), err)
		return cli.ExitCode(err)
	}
	return cli.ExitOK
}

// rename replaces the name of the program in the help of all commands.
func rename(cmd *cobra.Command) {
	for _, text := range []*string{&cmd.Long, &cmd.Example} {
		*text = strings.ReplaceAll(*text, "allinone conform", "cloudconform")
	}
	for _, sub := range cmd.Commands() {
		rename(sub)
	}
}
