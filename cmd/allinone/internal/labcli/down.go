package labcli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/lab/process"
)

// stopTimeout is the default time limit for the stop of a lab. The processes of a lab stop one
// after the other. The limit is long enough for the grace periods of these processes.
const stopTimeout = time.Minute

// NewDownCommand returns the command "allinone down".
func NewDownCommand(e cli.Env) *cobra.Command {
	var dataDir string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a lab",
		Long: `Stop the lab of a data dir, whether it runs in the background or in another
terminal, and wait until all of its processes have ended. The data dir stays, and
'up' starts the same lab again.`,
		Example: `  allinone down`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := labDir(dataDir)
			if err != nil {
				return err
			}
			stopped, err := process.Down(cmd.Context(), dir, timeout)
			switch {
			case err != nil:
				return err
			case stopped:
				fmt.Fprintf(e.Stdout, "The lab in %s has stopped.\n", dir)
			default:
				fmt.Fprintf(e.Stdout, "No lab runs in %s.\n", dir)
			}
			return nil
		},
	}
	dataDirFlag(cmd.Flags(), &dataDir, e)
	cmd.Flags().DurationVar(&timeout, "timeout", stopTimeout, "time limit for the lab to stop, before the command kills the lab")
	return cmd
}
