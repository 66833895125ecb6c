package main

import (
	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/ccm"
)

func newCCMCommand(e env) *cobra.Command { return ccm.NewCommand(e.getenv, e.stderr) }
