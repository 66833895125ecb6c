package labcli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/lab"
)

// NewResetCommand returns the command "allinone reset".
func NewResetCommand(e cli.Env) *cobra.Command {
	var dataDir string
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Stop a lab and forget it",
		Long: `Stop the lab of a data dir and delete everything in it: the cluster, the cloud,
keys and logs. A folder that is not a lab's is left alone.`,
		Example: `  allinone reset --yes`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := labDir(dataDir)
			if err != nil {
				return err
			}
			if !yes {
				return cloudsim.Errorf(cloudsim.Invalid, "this deletes the cluster and the cloud in %s for good: say --yes", dir)
			}
			if err := lab.Reset(cmd.Context(), dir, stopTimeout); err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "The lab in %s is forgotten.\n", dir)
			return nil
		},
	}
	dataDirFlag(cmd.Flags(), &dataDir, e)
	cmd.Flags().BoolVar(&yes, "yes", false, "delete without asking")
	return cmd
}
