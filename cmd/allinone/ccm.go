package main

import (
	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/ccm"
)

// newCCMCommand is upstream's command, with its own flags and help: an operator
// who knows any cloud controller manager knows this one.
func newCCMCommand(e env) *cobra.Command { return ccm.NewCommand(e.getenv, e.stderr) }
