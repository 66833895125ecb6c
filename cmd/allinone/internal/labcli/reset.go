package labcli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/lab/process"
)

// NewResetCommand returns the command "allinone reset".
func NewResetCommand(e cli.Env) *cobra.Command {
	var dataDir string
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Stop a lab and delete its data",
		Long: `Stop the lab of a data dir and delete everything in it: the cluster, the cloud,
keys and logs. The command does not delete a folder that is not the data dir of a
lab.`,
		Example: `  allinone reset --yes`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := labDir(dataDir)
			if err != nil {
				return err
			}
			if !yes {
				return cloudsim.Errorf(cloudsim.Invalid, "the command deletes the cluster and the cloud in %s, and you cannot undo this: add --yes", dir)
			}
			if err := process.Reset(cmd.Context(), dir, stopTimeout); err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "The lab in %s is deleted.\n", dir)
			return nil
		},
	}
	dataDirFlag(cmd.Flags(), &dataDir, e)
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm the deletion")
	return cmd
}
