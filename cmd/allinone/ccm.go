package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/ccm"
)

// libraryFlags are those that libraries gave to every program as it was loaded.
var libraryFlags = pflag.CommandLine

// newCCMCommand is upstream's command, with its own flags and help: an operator
// who knows any cloud controller manager knows this one. It alone looks for flags
// of libraries, see newRootCommand.
func newCCMCommand(e env) *cobra.Command {
	ours := pflag.CommandLine
	pflag.CommandLine = libraryFlags
	defer func() { pflag.CommandLine = ours }()
	return ccm.NewCommand(e.getenv, e.stderr)
}
