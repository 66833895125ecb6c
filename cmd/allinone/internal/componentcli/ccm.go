// Package componentcli contains the commands of the Kubernetes components: ccm, csi and
// credprovider.
package componentcli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// libraryFlags are the flags that libraries registered when the program was loaded.
var libraryFlags = pflag.CommandLine

// NewCCMCommand returns upstream's command with its own flags and help, so that operators
// of other cloud controller managers already know this command. Only this command gets the
// flags of libraries; see newRootCommand.
func NewCCMCommand(e cli.Env) *cobra.Command {
	ours := pflag.CommandLine
	pflag.CommandLine = libraryFlags
	defer func() { pflag.CommandLine = ours }()
	return ccm.NewCommand(e.Getenv, e.Stderr)
}
