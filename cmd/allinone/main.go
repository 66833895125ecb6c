// Command allinone is a simulated cloud, the Kubernetes components that call the cloud, and
// a lab that runs them together, in one binary.
//
// The commands convert flags and environment variables to the Config of a package and call the
// function Run of that package. In cmd/allinone, only package main calls os.Getenv and os.Exit.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cloudcli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/componentcli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/conformcli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/consolecli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/dialectcli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/proxycli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/servecli"
)

// constructor contains a function that creates a command, and the command's group in the help.
type constructor struct {
	group string
	make  func(cli.Env) *cobra.Command
}

// commands contains the constructors of the commands that do not belong to the lab. In the help,
// these commands follow labCommands, in the order of the list. To add a command, write its
// constructor and add a line here.
var commands = []constructor{
	{groupCloud, servecli.NewCloudsimCommand},
	{groupCloud, servecli.NewCertificatesCommand},
	{groupCloud, cloudcli.NewCloudCommand},
	{groupCloud, consolecli.NewConsoleCommand},
	{groupCloud, servecli.NewMetadataCommand},
	{groupCloud, dialectcli.NewDialectCommand},
	{groupSubsystems, componentcli.NewCCMCommand},
	{groupSubsystems, componentcli.NewCredproviderCommand},
	{groupSubsystems, proxycli.NewProxyCommand},
	{groupSubsystems, componentcli.NewCSICommand},
	{groupSubsystems, conformcli.NewConformCommand},
}

func main() {
	watched := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // if nohup has started this process, the process must continue to ignore SIGHUP
		watched = append(watched, syscall.SIGHUP)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, watched...)
	e := cli.Env{Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(superviseWork(signals, func(ctx context.Context) int { return start(ctx, e, os.Args[1:]) }))
}

// superviseWork calls workFn and returns its exit code. The first signal ends the context of
// workFn. After the second signal, superviseWork returns cli.ExitInterrupted at once, even if
// workFn still runs.
func superviseWork(signals <-chan os.Signal, workFn func(context.Context) int) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	code := make(chan int, 1)
	go func() { code <- workFn(ctx) }()
	select {
	case c := <-code:
		return c
	case <-signals:
		cancel()
	}
	select {
	case c := <-code:
		return c
	case <-signals:
		return cli.ExitInterrupted
	}
}
