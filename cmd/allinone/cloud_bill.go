package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// auditFlags are the flags that select calls.
type auditFlags struct {
	caller, operation string
	since             time.Duration
}

func (a *auditFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.caller, "caller", "", "only calls of the service account or token of this name")
	f.StringVar(&a.operation, "operation", "", "only operations that match; * stands for any letters")
	f.DurationVar(&a.since, "since", 0, "only calls of so long until now, on the cloud's clock")
}

func (a *auditFlags) options(ctx context.Context, cl *client.Client) (o cloudsim.AuditOptions, err error) {
	o = cloudsim.AuditOptions{Caller: a.caller, Operation: a.operation}
	if a.since < 0 {
		return o, badFlag("since", a.since.String(), "a duration, e.g. 5m")
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

func newBillCommand(c *cloudCLI) *cobra.Command {
	var (
		o     output
		which auditFlags
		reset bool
	)
	cmd := &cobra.Command{
		Use: "bill", Short: "Who asked what of the API, and how often",
		Long: `Who asked what of the API, and how often: calls, throttled, denied, failed, struck
by a fault, and how long they took, by caller and operation. Watches count when
they end. The bill is kept in memory; it begins anew with the cloud, and with
--reset.`,
		Example: `  allinone cloud bill --caller ccm
  allinone cloud bill --since 5m -o wide
  allinone cloud bill --reset`,
		Args: cobra.NoArgs,
		RunE: c.run(func(ctx context.Context, cl *client.Client, _ []string) error {
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
			if o.format == formatJSON || o.format == formatYAML {
				return printer[cloudsim.Bill]{output: o, w: c.stdout}.one(b)
			}
			if !b.Complete {
				fmt.Fprintln(c.stderr, "older calls of this time are not kept any more")
			}
			return billPrinter(c, o).list(append(b.Rows, cloudsim.BillRow{Caller: "total", Operation: "*", BillCounts: b.Total}))
		}),
	}
	o.flags(cmd)
	which.flags(cmd)
	cmd.Flags().BoolVar(&reset, "reset", false, "begin a new bill")
	return cmd
}

func billPrinter(c *cloudCLI, o output) printer[cloudsim.BillRow] {
	count := func(of func(cloudsim.BillCounts) uint64) func(cloudsim.BillRow) string {
		return func(r cloudsim.BillRow) string { return strconv.FormatUint(of(r.BillCounts), 10) }
	}
	return printer[cloudsim.BillRow]{output: o, w: c.stdout, id: func(r cloudsim.BillRow) string { return r.Caller + " " + r.Operation }, columns: []column[cloudsim.BillRow]{
		{head: "CALLER", cell: func(r cloudsim.BillRow) string { return r.Caller }},
		{head: "OPERATION", cell: func(r cloudsim.BillRow) string { return r.Operation }},
		{head: "CALLS", cell: count(func(b cloudsim.BillCounts) uint64 { return b.Calls })},
		{head: "THROTTLED", cell: count(func(b cloudsim.BillCounts) uint64 { return b.Throttled })},
		{head: "DENIED", cell: count(func(b cloudsim.BillCounts) uint64 { return b.Denied })},
		{head: "FAILED", cell: count(func(b cloudsim.BillCounts) uint64 { return b.Failed })},
		{head: "FAULTS", cell: count(func(b cloudsim.BillCounts) uint64 { return b.Faults })},
		{head: "TIME", cell: func(r cloudsim.BillRow) string {
			return time.Duration(r.Millis * float64(time.Millisecond)).Round(time.Millisecond).String()
		}},
		{head: "BYTES", wide: true, cell: func(r cloudsim.BillRow) string { return strconv.FormatInt(r.Bytes, 10) }},
	}}
}

func newAuditCommand(c *cloudCLI) *cobra.Command {
	var (
		o     output
		which auditFlags
		limit int
	)
	cmd := &cobra.Command{
		Use: "audit", Short: "The most recent calls, and how each ended",
		Example: `  allinone cloud audit --caller ccm --since 1m
  allinone cloud audit --operation '*.create' -o json`,
		Args: cobra.NoArgs,
		RunE: c.run(func(ctx context.Context, cl *client.Client, _ []string) error {
			opts, err := which.options(ctx, cl)
			if err != nil {
				return err
			}
			opts.Limit = limit
			trail, err := cl.Audit(ctx, opts)
			if err != nil {
				return err
			}
			return auditPrinter(c, o).list(trail.Items)
		}),
	}
	o.flags(cmd)
	which.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many, the newest")
	return cmd
}

func auditPrinter(c *cloudCLI, o output) printer[cloudsim.AuditEntry] {
	return printer[cloudsim.AuditEntry]{output: o, w: c.stdout, id: func(e cloudsim.AuditEntry) string { return e.RequestID }, columns: []column[cloudsim.AuditEntry]{
		{head: "TIME", cell: func(e cloudsim.AuditEntry) string { return e.Time.Local().Format("15:04:05.000") }},
		{head: "CALLER", cell: func(e cloudsim.AuditEntry) string { return e.Caller }},
		{head: "OPERATION", cell: func(e cloudsim.AuditEntry) string { return e.Operation }},
		{head: "TARGET", cell: func(e cloudsim.AuditEntry) string { return e.Target }},
		{head: "OUTCOME", cell: func(e cloudsim.AuditEntry) string { return e.Outcome }},
		{head: "FAULT", cell: func(e cloudsim.AuditEntry) string { return string(e.Fault) }},
		{head: "REQUEST", cell: func(e cloudsim.AuditEntry) string { return e.RequestID }},
		{head: "MILLIS", wide: true, cell: func(e cloudsim.AuditEntry) string { return strconv.FormatFloat(e.Millis, 'f', 3, 64) }},
	}}
}

func newRateLimitsCommand(c *cloudCLI) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rate-limits", Aliases: []string{"rate-limit"}, Short: "How often each caller may call",
		Example: `  allinone cloud rate-limits get
  allinone cloud rate-limits set --read 10:20 --write 2:5
  allinone cloud rate-limits set --read off --write off`,
	}
	cmd.AddCommand(newGetRateLimitsCommand(c), newSetRateLimitsCommand(c))
	return cmd
}

func ratePrinter(c *cloudCLI, o output) printer[cloudsim.RateLimits] {
	return printer[cloudsim.RateLimits]{output: o, w: c.stdout, id: func(cloudsim.RateLimits) string { return "all" }, columns: []column[cloudsim.RateLimits]{
		{head: "READ", cell: func(r cloudsim.RateLimits) string { return rateCell(r.Read) }},
		{head: "WRITE", cell: func(r cloudsim.RateLimits) string { return rateCell(r.Write) }},
	}}
}

func rateCell(r cloudsim.Rate) string {
	if r.PerSecond == 0 {
		return "off"
	}
	return fmt.Sprintf("%v/s, %d at once", r.PerSecond, r.Burst)
}

func newGetRateLimitsCommand(c *cloudCLI) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "get", Short: "Show the limits", Args: cobra.NoArgs, Example: "  allinone cloud rate-limits get",
		RunE: c.run(func(ctx context.Context, cl *client.Client, _ []string) error {
			r, err := cl.RateLimits(ctx)
			if err != nil {
				return err
			}
			return ratePrinter(c, o).one(r)
		}),
	}
	o.flags(cmd)
	return cmd
}

const rateForm = "PERSECOND:BURST, e.g. 10:20, or off"

// parseRate parses PERSECOND:BURST, or off.
func parseRate(flag, s string) (r cloudsim.Rate, err error) {
	if s == "off" || s == "" {
		return r, nil
	}
	per, burst, _ := strings.Cut(s, ":")
	var err1, err2 error
	r.PerSecond, err1 = strconv.ParseFloat(per, 64)
	r.Burst, err2 = strconv.Atoi(burst)
	if err1 != nil || err2 != nil {
		return r, badFlag(flag, s, rateForm)
	}
	return r, nil
}

func newSetRateLimitsCommand(c *cloudCLI) *cobra.Command {
	var (
		o           output
		read, write string
	)
	cmd := &cobra.Command{
		Use: "set", Short: "Change the limits; what is not given stays",
		Long: `Change how often each caller may call, in calls a second in the long run and at
once after a rest. A call too many is answered 429 with Retry-After. What only
an admin of all projects may do is not limited.`,
		Example: "  allinone cloud rate-limits set --read 10:20 --write 2:5\n  allinone cloud rate-limits set --write off",
		Args:    cobra.NoArgs,
		RunE: c.run(func(ctx context.Context, cl *client.Client, _ []string) error {
			if read == "" && write == "" {
				return cloudsim.Errorf(cloudsim.Invalid, "nothing to set: give --read, --write or both")
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
				if *f.rate, err = parseRate(f.name, f.word); err != nil {
					return err
				}
			}
			if r, err = cl.SetRateLimits(ctx, r); err != nil {
				return err
			}
			return ratePrinter(c, o).one(r)
		}),
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&read, "read", "", "of calls that read: "+rateForm)
	cmd.Flags().StringVar(&write, "write", "", "of all others: "+rateForm)
	return cmd
}
