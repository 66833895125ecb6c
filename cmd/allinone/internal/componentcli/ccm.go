// Package componentcli contains the commands of the Kubernetes components: ccm, csi and
// credprovider.
package componentcli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// libraryFlags contains the flags that libraries registered in pflag.CommandLine at the start of
// the program.
var libraryFlags = pflag.CommandLine

// NewCCMCommand returns the command "allinone ccm". It has the flags and the help of upstream's
// cloud-controller-manager command. Only this command has the flags in libraryFlags, because
// newRootCommand replaces the global flag set with an empty flag set.
func NewCCMCommand(e cli.Env) *cobra.Command {
	original := pflag.CommandLine
	pflag.CommandLine = libraryFlags
	defer func() { pflag.CommandLine = original }()
	return ccm.NewCommand(e.Getenv, e.Stderr)
}
