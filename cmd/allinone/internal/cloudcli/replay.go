package cloudcli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func newReplayCommand(c *cli.Connection) *cobra.Command {
	return &cobra.Command{
		Use: "replay FILE", Short: "Repeat the calls of a transcript, and compare the answers",
		Long: `Repeat the calls of a transcript in order, and compare each answer with the recorded
answer. The command prints the first difference and stops.

The cloud must be new, with the same seed, profile and clock as the recorded cloud.
Times are compared if the clock was frozen. If several clients called at once during
the recording, the order may differ. Record and replay without a data plane, because
its reports come at random times.`,
		Example: `  allinone cloudsim --seed 7 --frozen-at 2030-01-01T00:00:00Z --no-data-plane --record calls.jsonl
  # Later, with a new cloud that has the same flags
  allinone cloud replay calls.jsonl`,
		Args: cobra.ExactArgs(1),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return cloudsim.Errorf(cloudsim.Invalid, "%w", err)
			}
			defer func() { _ = f.Close() }() // an error has no effect, because the command only reads the file
			done, err := cl.Replay(ctx, f)
			if err != nil {
				if errors.Is(err, cloudsim.Conflict) {
					err = fmt.Errorf("%s: %w; before this difference, %d calls got the recorded answers. The transcript was recorded with %s",
						args[0], err, done.Calls, recordedWith(done.Head))
				}
				return err
			}
			full := ""
			if done.Full {
				full = "; the transcript had reached its maximum size and does not contain the later calls"
			}
			_, err = fmt.Fprintf(c.Stdout, "%d calls got the recorded answers%s\n", done.Calls, full)
			return err
		}),
	}
}

// recordedWith returns the flags with which a cloud can replay the transcript. They are the flags
// of the cloud that recorded the transcript.
func recordedWith(h cloudsim.TranscriptHead) string {
	s := fmt.Sprintf("--profile %s --seed %d", h.Profile, h.Seed)
	if h.Exact() {
		s += " --frozen-at " + h.Time.Format("2006-01-02T15:04:05.999999999Z07:00")
	}
	return s
}
