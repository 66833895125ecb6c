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
		Use: "replay FILE", Short: "Make the calls of a transcript again, and compare",
		Long: `Make the calls of a transcript again, one after the other, and compare each answer
with the recorded one. The first difference is named, and ends it.

The cloud must be as the recorded one was when it began: new, with the same seed,
profile and clock. Times are compared when the clock was frozen. Of a cloud that
was recorded while several called at once, the order may differ. A data plane
reports to the cloud when it is ready to: record and replay without one.`,
		Example: `  allinone cloudsim --seed 7 --frozen-at 2030-01-01T00:00:00Z --no-data-plane --record calls.jsonl
  # later, to a new cloud with the same flags
  allinone cloud replay calls.jsonl`,
		Args: cobra.ExactArgs(1),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return cloudsim.Errorf(cloudsim.Invalid, "%w", err)
			}
			defer func() { _ = f.Close() }() // the file was only read
			done, err := cl.Replay(ctx, f)
			if err != nil {
				if errors.Is(err, cloudsim.Conflict) {
					err = fmt.Errorf("%s: %w; %d calls before it were answered as recorded. It was recorded with %s",
						args[0], err, done.Calls, recordedWith(done.Head))
				}
				return err
			}
			full := ""
			if done.Full {
				full = "; the transcript was full, and there were more"
			}
			_, err = fmt.Fprintf(c.Stdout, "%d calls: answered as recorded%s\n", done.Calls, full)
			return err
		}),
	}
}

// recordedWith returns the flags for a cloud that can replay a transcript.
func recordedWith(h cloudsim.TranscriptHead) string {
	s := fmt.Sprintf("--profile %s --seed %d", h.Profile, h.Seed)
	if h.Exact() {
		s += " --frozen-at " + h.Time.Format("2006-01-02T15:04:05.999999999Z07:00")
	}
	return s
}
