package cloudcli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

type auditFlags struct {
	caller, operation string
	since             time.Duration
}

func (a *auditFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.caller, "caller", "", "only calls of the service account or token with this name")
	f.StringVar(&a.operation, "operation", "", "only operations that match this pattern; * matches any characters")
	f.DurationVar(&a.since, "since", 0, "only calls that are at most `DURATION` old, such as 10m, on the cloud's clock")
}

func (a *auditFlags) options(ctx context.Context, cl *client.Client) (o cloudsim.AuditOptions, err error) {
	o = cloudsim.AuditOptions{Caller: a.caller, Operation: a.operation}
	if a.since < 0 {
		return o, cli.BadFlag("since", a.since.String(), "a duration, e.g. 5m")
	}
	if a.since > 0 {
		clock, err := cl.GetClock(ctx)
		if err != nil {
			return o, err
		}
		o.Since = clock.Now.Add(-a.since)
	}
	return o, nil
}

func newBillCommand(c *cli.Connection) *cobra.Command {
	var (
		o     cli.Output
		which auditFlags
		reset bool
	)
	cmd := &cobra.Command{
		Use: "bill", Short: "Count API calls by caller and operation",
		Long: `Count API calls by caller and operation: all calls, throttled, denied and failed
calls, and calls with a fault. TIME is the total duration of all calls. A watch counts
when it ends. The cloud keeps the counters in memory. A restart of the cloud and --reset
clear them.`,
		Example: `  allinone cloud bill --caller ccm
  allinone cloud bill --since 5m -o wide
  allinone cloud bill --reset`,
		Args: cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			if reset {
				return cl.ResetBill(ctx)
			}
			opts, err := which.options(ctx, cl)
			if err != nil {
				return err
			}
			b, err := cl.Bill(ctx, opts)
			if err != nil {
				return err
			}
			if o.Format == cli.FormatJSON || o.Format == cli.FormatYAML {
				return cli.Printer[cloudsim.Bill]{Output: o, Writer: c.Stdout}.One(b)
			}
			if !b.Complete {
				fmt.Fprintln(c.Stderr, "the counts are not complete: the cloud no longer stores the older calls of this period")
			}
			return billPrinter(c, o).List(append(b.Rows, cloudsim.BillRow{Caller: "total", Operation: "*", BillCounts: b.Total}))
		}),
	}
	o.Flags(cmd)
	which.flags(cmd)
	cmd.Flags().BoolVar(&reset, "reset", false, "set all counters to 0")
	return cmd
}

func billPrinter(c *cli.Connection, o cli.Output) cli.Printer[cloudsim.BillRow] {
	count := func(of func(cloudsim.BillCounts) uint64) func(cloudsim.BillRow) string {
		return func(r cloudsim.BillRow) string { return strconv.FormatUint(of(r.BillCounts), 10) }
	}
	return cli.Printer[cloudsim.BillRow]{Output: o, Writer: c.Stdout, ID: func(r cloudsim.BillRow) string { return r.Caller + " " + r.Operation }, Columns: []cli.Column[cloudsim.BillRow]{
		{Head: "CALLER", Cell: func(r cloudsim.BillRow) string { return r.Caller }},
		{Head: "OPERATION", Cell: func(r cloudsim.BillRow) string { return r.Operation }},
		{Head: "CALLS", Cell: count(func(b cloudsim.BillCounts) uint64 { return b.Calls })},
		{Head: "THROTTLED", Cell: count(func(b cloudsim.BillCounts) uint64 { return b.Throttled })},
		{Head: "DENIED", Cell: count(func(b cloudsim.BillCounts) uint64 { return b.Denied })},
		{Head: "FAILED", Cell: count(func(b cloudsim.BillCounts) uint64 { return b.Failed })},
		{Head: "FAULTS", Cell: count(func(b cloudsim.BillCounts) uint64 { return b.Faults })},
		{Head: "TIME", Cell: func(r cloudsim.BillRow) string {
			return time.Duration(r.Millis * float64(time.Millisecond)).Round(time.Millisecond).String()
		}},
		{Head: "BYTES", Wide: true, Cell: func(r cloudsim.BillRow) string { return strconv.FormatInt(r.Bytes, 10) }},
	}}
}

func newAuditCommand(c *cli.Connection) *cobra.Command {
	var (
		o        cli.Output
		which    auditFlags
		limit    int
		watching bool
	)
	cmd := &cobra.Command{
		Use: "audit", Short: "List the most recent calls and their results",
		Long: `List the most recent calls and their results, oldest first.

With --watch, the command prints the list, and then each new call when the call ends,
until Ctrl-C. In JSON each line is one call. The cloud keeps the calls in memory. After
a restart of the cloud, the command continues with the calls of the new run.`,
		Example: `  allinone cloud audit --caller ccm --since 1m
  allinone cloud audit --operation '*.create' -o json
  allinone cloud audit --caller ccm --watch`,
		Args: cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			opts, err := which.options(ctx, cl)
			if err != nil {
				return err
			}
			opts.Limit = limit
			trail, err := cl.Audit(ctx, opts)
			if err != nil {
				return err
			}
			p := auditPrinter(c, o)
			if !watching {
				return p.List(trail.Items)
			}
			s := newStream(p, func(e cloudsim.AuditEntry) any { return e })
			if err := s.printAll(trail.Items); err != nil {
				return err
			}
			opts.After = trail.Last
			return followAudit(ctx, c, cl, opts, func(e cloudsim.AuditEntry) error { return s.printAll([]cloudsim.AuditEntry{e}) })
		}),
	}
	o.Flags(cmd)
	which.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&limit, "limit", 100, "maximum number of calls; the newest calls are printed")
	f.BoolVarP(&watching, "watch", "w", false, "after the list, print new calls until Ctrl-C")
	return cmd
}

// followAudit watches the audit trail and calls handle for each entry with a number greater
// than o.After. If the next entries are no longer in the cloud's memory, followAudit prints a
// notice and continues with the oldest entry in memory.
func followAudit(ctx context.Context, c *cli.Connection, cl *client.Client, o cloudsim.AuditOptions, handle func(cloudsim.AuditEntry) error) error {
	for {
		err := keepWatching(ctx, c, func() iter.Seq2[cloudsim.AuditEntry, error] { return cl.WatchAudit(ctx, o) }, func(e cloudsim.AuditEntry) error {
			o.After = e.Number
			return handle(e)
		})
		if !errors.Is(err, cloudsim.Gone) {
			return err
		}
		fmt.Fprintln(c.Stderr, "some calls are no longer in the cloud's memory; continuing with the oldest call in memory")
		o.After = 0
	}
}

func auditPrinter(c *cli.Connection, o cli.Output) cli.Printer[cloudsim.AuditEntry] {
	return cli.Printer[cloudsim.AuditEntry]{Output: o, Writer: c.Stdout, ID: func(e cloudsim.AuditEntry) string { return e.RequestID }, Columns: []cli.Column[cloudsim.AuditEntry]{
		{Head: "TIME", Cell: func(e cloudsim.AuditEntry) string { return e.Time.Local().Format("15:04:05.000") }},
		{Head: "CALLER", Cell: func(e cloudsim.AuditEntry) string { return e.Caller }},
		{Head: "OPERATION", Cell: func(e cloudsim.AuditEntry) string { return e.Operation }},
		{Head: "TARGET", Cell: func(e cloudsim.AuditEntry) string { return e.Target }},
		{Head: "OUTCOME", Cell: func(e cloudsim.AuditEntry) string { return e.Outcome }},
		{Head: "FAULT", Cell: func(e cloudsim.AuditEntry) string { return string(e.Fault) }},
		{Head: "REQUEST", Cell: func(e cloudsim.AuditEntry) string { return e.RequestID }},
		{Head: "MILLIS", Wide: true, Cell: func(e cloudsim.AuditEntry) string { return strconv.FormatFloat(e.Millis, 'f', 3, 64) }},
	}}
}

func newRateLimitsCommand(c *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rate-limits", Aliases: []string{"rate-limit"}, Short: "Manage the rate limits of callers",
		Example: `  allinone cloud rate-limits get
  allinone cloud rate-limits set --read 10:20 --write 2:5
  allinone cloud rate-limits set --read off --write off`,
	}
	cmd.AddCommand(newGetRateLimitsCommand(c), newSetRateLimitsCommand(c))
	return cmd
}

func ratePrinter(c *cli.Connection, o cli.Output) cli.Printer[cloudsim.RateLimits] {
	return cli.Printer[cloudsim.RateLimits]{Output: o, Writer: c.Stdout, ID: func(cloudsim.RateLimits) string { return "all" }, Columns: []cli.Column[cloudsim.RateLimits]{
		{Head: "READ", Cell: func(r cloudsim.RateLimits) string { return rateCell(r.Read) }},
		{Head: "WRITE", Cell: func(r cloudsim.RateLimits) string { return rateCell(r.Write) }},
	}}
}

func rateCell(r cloudsim.Rate) string {
	if r.PerSecond == 0 {
		return "off"
	}
	return fmt.Sprintf("%v/s, burst %d", r.PerSecond, r.Burst)
}

func newGetRateLimitsCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "get", Short: "Show the rate limits", Args: cobra.NoArgs, Example: "  allinone cloud rate-limits get",
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			r, err := cl.RateLimits(ctx)
			if err != nil {
				return err
			}
			return ratePrinter(c, o).One(r)
		}),
	}
	o.Flags(cmd)
	return cmd
}

func newSetRateLimitsCommand(c *cli.Connection) *cobra.Command {
	var (
		o           cli.Output
		read, write string
	)
	cmd := &cobra.Command{
		Use: "set", Short: "Change the rate limits",
		Long: `Change the rate limits of each caller: calls per second on average, and calls in a
burst. The cloud answers calls beyond the limit with 429 and Retry-After. Operations
that only an admin of all projects may call have no limit.`,
		Example: "  allinone cloud rate-limits set --read 10:20 --write 2:5\n  allinone cloud rate-limits set --write off",
		Args:    cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			if read == "" && write == "" {
				return cloudsim.Errorf(cloudsim.Invalid, "set --read, --write or both")
			}
			r, err := cl.RateLimits(ctx)
			if err != nil {
				return err
			}
			for _, f := range []struct {
				name, word string
				rate       *cloudsim.Rate
			}{{"read", read, &r.Read}, {"write", write, &r.Write}} {
				if f.word == "" {
					continue
				}
				if *f.rate, err = cli.ParseRate(f.name, f.word); err != nil {
					return err
				}
			}
			if r, err = cl.SetRateLimits(ctx, r); err != nil {
				return err
			}
			return ratePrinter(c, o).One(r)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringVar(&read, "read", "", "limit of calls that read: "+cli.RateForm)
	cmd.Flags().StringVar(&write, "write", "", "limit of all other calls: "+cli.RateForm)
	return cmd
}
