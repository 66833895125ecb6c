package cloudcli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func newClockCommand(c *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: "clock", Short: "Stop, move or speed up the cloud's time",
		Long: `Stop, move or speed up the cloud's time. The durations of operations, the expiry of
tokens, the time windows of faults and retention times follow the cloud's clock. The
cloud stores the settings of its clock in its file, so the settings survive a restart of
the cloud. For example, a stopped clock stays stopped.

Faults never affect the commands of the clock.`,
		Example: `  # The instance stays in the state stopping until you advance the clock
  allinone cloud clock freeze
  allinone cloud instances stop node-1
  allinone cloud clock advance 1s

  # A day passes in a minute and a half. Then the normal rate returns
  allinone cloud clock set --rate 1000
  allinone cloud clock resume`,
	}
	cmd.AddCommand(newGetClockCommand(c), newSetClockCommand(c), newFreezeClockCommand(c), newAdvanceClockCommand(c), newResumeClockCommand(c))
	return cmd
}

func clockPrinter(c *cli.Connection, o cli.Output) cli.Printer[cloudsim.Clock] {
	return cli.Printer[cloudsim.Clock]{
		Output: o, Writer: c.Stdout,
		ID: func(k cloudsim.Clock) string { return k.Now.Format(time.RFC3339Nano) },
		Columns: []cli.Column[cloudsim.Clock]{
			{Head: "NOW", Cell: func(k cloudsim.Clock) string { return k.Now.Format(time.RFC3339) }},
			{Head: "MODE", Cell: func(k cloudsim.Clock) string { return string(k.Mode) }},
			{Head: "RATE", Cell: func(k cloudsim.Clock) string { return strconv.FormatFloat(k.Rate, 'g', -1, 64) }},
			{Head: "AHEAD", Cell: func(k cloudsim.Clock) string {
				return (time.Duration(k.AheadSeconds) * time.Second).String()
			}},
			{Head: "NEXT DUE", Cell: func(k cloudsim.Clock) string {
				if k.NextDue == nil {
					return ""
				}
				return "in " + k.NextDue.Sub(k.Now).Round(time.Millisecond).String()
			}},
		},
	}
}

// clockCommand adds a RunE function to cmd. The RunE function calls fn and prints the clock that
// fn returns.
func clockCommand(c *cli.Connection, cmd *cobra.Command, fn func(context.Context, *client.Client, []string) (cloudsim.Clock, error)) *cobra.Command {
	var o cli.Output
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
		k, err := fn(ctx, cl, args)
		if err != nil {
			return err
		}
		return clockPrinter(c, o).One(k)
	})
	o.Flags(cmd)
	return cmd
}

func newGetClockCommand(c *cli.Connection) *cobra.Command {
	return clockCommand(c, &cobra.Command{
		Use: "get", Short: "Show the cloud's time and its rate",
		Example: "  allinone cloud clock get\n  allinone cloud clock get -o name    # only the time",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, cl *client.Client, _ []string) (cloudsim.Clock, error) {
		return cl.GetClock(ctx)
	})
}

func newSetClockCommand(c *cli.Connection) *cobra.Command {
	var (
		at    string
		ahead time.Duration
		rate  float64
		real  bool
	)
	cmd := &cobra.Command{
		Use: "set", Short: "Set the time, its offset from the computer's time, or its rate",
		Long: `Set the time, its offset from the computer's time, or its rate. If you omit a flag,
its value stays unchanged. Work that is due at the new time ends soon afterward. To
wait for this work, use 'advance' instead.`,
		Example: `  allinone cloud clock set --time 2030-01-01T00:00:00Z
  allinone cloud clock set --ahead 24h
  allinone cloud clock set --rate 60          # one minute per second
  allinone cloud clock set --real             # set the clock to the computer's time again`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&at, "time", "", "new `TIME` of the cloud, RFC 3339")
	f.DurationVar(&ahead, "ahead", 0, "offset from the computer's time, e.g. 24h; negative for a clock that is behind")
	f.Float64Var(&rate, "rate", 0, "seconds of the cloud per second of the computer")
	f.BoolVar(&real, "real", false, "follow the computer's clock again")
	return clockCommand(c, cmd, func(ctx context.Context, cl *client.Client, _ []string) (cloudsim.Clock, error) {
		req := cloudsim.SetClock{Real: real}
		var err error
		if req.Time, err = cli.Instant("time", at); err != nil {
			return cloudsim.Clock{}, err
		}
		if cmd.Flags().Changed("ahead") {
			s := ahead.Seconds()
			req.AheadSeconds = &s
		}
		if cmd.Flags().Changed("rate") {
			req.Rate = &rate
		}
		return cl.SetClock(ctx, req)
	})
}

func newFreezeClockCommand(c *cli.Connection) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use: "freeze", Short: "Stop the cloud's clock until you advance or resume the clock",
		Example: "  allinone cloud clock freeze\n  allinone cloud clock freeze --at 2030-01-01T00:00:00Z",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&at, "at", "", "`TIME` at which the cloud's clock stops, RFC 3339 (default now)")
	return clockCommand(c, cmd, func(ctx context.Context, cl *client.Client, _ []string) (cloudsim.Clock, error) {
		t, err := cli.Instant("at", at)
		if err != nil {
			return cloudsim.Clock{}, err
		}
		return cl.SetClock(ctx, cloudsim.SetClock{Time: t, Rate: new(0.0)})
	})
}

func newAdvanceClockCommand(c *cli.Connection) *cobra.Command {
	return clockCommand(c, &cobra.Command{
		Use: "advance DURATION", Short: "Move the time forward, and wait until the due work has ended",
		Long: `Move the time forward, and wait until the due work has ended. Each piece of work ends at
its due time, in the order of these times. Afterward a stopped clock is stopped again,
and a running clock keeps running.`,
		Example: "  allinone cloud clock advance 90s\n  allinone cloud clock advance 24h\n  allinone cloud clock advance 0      # end the work that is due now",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, cl *client.Client, args []string) (cloudsim.Clock, error) {
		d, err := time.ParseDuration(args[0])
		if err != nil || d < 0 {
			return cloudsim.Clock{}, cloudsim.Errorf(cloudsim.Invalid, "%q is not a valid duration: want a value of 0 or more, such as 90s, 24h or 0", args[0])
		}
		return cl.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: d.Seconds()})
	})
}

func newResumeClockCommand(c *cli.Connection) *cobra.Command {
	var real bool
	cmd := &cobra.Command{
		Use: "resume", Short: "Let the cloud's clock run again from the time that it shows, at the rate of the computer's clock",
		Example: "  allinone cloud clock resume\n  allinone cloud clock resume --real    # set the clock to the computer's time",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&real, "real", false, "follow the computer's clock again, which may set the time back")
	return clockCommand(c, cmd, func(ctx context.Context, cl *client.Client, _ []string) (cloudsim.Clock, error) {
		if real {
			return cl.SetClock(ctx, cloudsim.SetClock{Real: true})
		}
		return cl.SetClock(ctx, cloudsim.SetClock{Rate: new(1.0)})
	})
}
