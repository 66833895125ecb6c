// Package conformcli contains the commands that check cloud controller managers and CSI drivers.
package conformcli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/conform"
)

// NewConformCommand returns the command "allinone conform".
func NewConformCommand(e cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conform",
		Short: "Check whether a cloud controller manager fulfills the contract of Kubernetes",
		Long: `Check whether a cloud controller manager (CCM) fulfills the contract between Kubernetes and
cloud providers. The checks change machines, Nodes and Services, and observe the CCM. They
need an API server and a driver, but no kubelet. The command csi checks CSI drivers.`,
		Example: `  # Check the controllers of k8s.io/cloud-provider with a cloud in memory
  allinone conform run --driver fake`,
	}
	cmd.AddCommand(newRunCommand(e), newCSICommand(e), newListCommand(e), newProxyCommand(e), newCleanupCommand(e))
	return cmd
}

func newListCommand(e cli.Env) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the checks",
		Example: "  allinone conform list",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p := cli.Printer[conform.Check]{Writer: e.Stdout, Output: o, ID: func(c conform.Check) string { return c.ID }, Columns: []cli.Column[conform.Check]{
				{Head: "CHECK", Cell: func(c conform.Check) string { return c.ID }},
				{Head: "LEVEL", Cell: func(c conform.Check) string { return string(c.Level) }},
				{Head: "STATEMENT", Cell: func(c conform.Check) string { return c.Title }},
			}}
			return p.List(conform.Checks())
		},
	}
	o.Flags(cmd)
	return cmd
}

// summary returns one line with the number of results for each verdict.
func summary(r conform.Report) string {
	var parts []string
	for _, v := range []conform.Verdict{conform.Pass, conform.Fail, conform.Skip, conform.KnownIssue} {
		n := 0
		for _, x := range r.Results {
			if x.Verdict == v {
				n++
			}
		}
		if n > 0 || v == conform.Pass {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	return strings.Join(parts, ", ")
}
