package cloudcli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/apply"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var faults = kind[cloudsim.Fault, cloudsim.FaultID]{
	kind: cloudsim.KindFault, noun: "fault", plural: "faults", command: "faults", prefix: "fault-",
	sample: "lost-reply",
	id:     func(f cloudsim.Fault) string { return string(f.ID) },
	columns: []cli.Column[cloudsim.Fault]{
		{Head: "ID", Cell: func(f cloudsim.Fault) string { return string(f.ID) }},
		{Head: "NAME", Cell: func(f cloudsim.Fault) string { return f.Name }},
		{Head: "OPERATION", Cell: func(f cloudsim.Fault) string { return f.Match.Operation }},
		{Head: "EFFECT", Cell: func(f cloudsim.Fault) string { return string(f.Effect.Type) }},
		{Head: "HITS", Cell: hitsCell},
		{Head: "SEEN", Cell: func(f cloudsim.Fault) string { return strconv.FormatUint(f.Seen, 10) }},
		{Head: "CALLER", Wide: true, Cell: func(f cloudsim.Fault) string { return f.Match.Caller }},
		{Head: "TARGET", Wide: true, Cell: func(f cloudsim.Fault) string { return f.Match.Target }},
		{Head: "ZONE", Wide: true, Cell: func(f cloudsim.Fault) string { return f.Match.Zone }},
	},
	get:  (*client.Client).GetFault,
	list: (*client.Client).ListFaults,
}

func hitsCell(f cloudsim.Fault) string {
	hits := strconv.FormatUint(f.Hits, 10)
	if f.When.Max > 0 {
		hits += "/" + strconv.FormatUint(f.When.Max, 10)
	}
	return hits
}

func newFaultsCommand(c *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: faults.command, Aliases: []string{"fault"}, Short: "Make calls fail on purpose",
		Long: `Make calls fail on purpose: delay calls, refuse calls, drop calls, or do the work and
lose the reply. A fault selects calls and has an effect. The cloud counts the calls that
the fault changes, and writes an event with the id of each request.

Faults never affect the commands of faults, so you can always repair the cloud.`,
		Example: `  allinone cloud faults preset lost-reply
  allinone cloud faults create slow --operation 'instances.*' --effect latency --latency 2s
  allinone cloud faults list
  allinone cloud faults delete lost-reply slow`,
	}
	cmd.AddCommand(
		faults.listCommand(c),
		faults.getCommand(c),
		newCreateFaultCommand(c),
		newFaultPresetCommand(c),
		newFaultTargetsCommand(c),
		faults.deleteCommand(c, false, readFirst(faults, (*client.Client).DeleteFault)),
	)
	return cmd
}

// faultFlags contains the flag values that the method applyTo converts to the types of
// cloudsim.CreateFault.
type faultFlags struct {
	labels, matchLabels []string
	effect              string
	probability         float64
	from, until         string
	after, lasts        time.Duration
	retryAfter          time.Duration
	latency, jitter     time.Duration
	age                 time.Duration
}

func newCreateFaultCommand(c *cli.Connection) *cobra.Command {
	var (
		o   cli.Output
		in  faultFlags
		req cloudsim.CreateFault
	)
	cmd := &cobra.Command{
		Use: "create NAME --effect EFFECT [--operation PATTERN]", Short: "Create a fault",
		Long: `Create a fault. The fault changes matching calls until you delete it, until it has changed
--max calls, or until its end. The same command again returns the existing fault.

Effects:
  error             an error instead of the work
  latency           the work after a delay: --latency, plus up to --jitter
  throttle          429 with Retry-After instead of the work
  hang              no answer for 10 minutes, or until the caller closes the connection
  drop              no work, and a closed connection without a reply
  loseReply         the work, and a closed connection without a reply
  errorAfterCommit  the work, and an error as the reply
  quota             an error, as if the quota were exhausted
  stockOut          an error, as if the zone had no capacity for the type: --zone, --type
  staleRead         an answer with data of the time --age ago
  duplicate         the work twice, and the second reply
  stuckState        the work begins, but does not end before the end of the fault
  corruptToken      an invalid secret in the reply to a call that creates a token
  zoneOutage        failure of the zone --zone: API, data plane or both (--scope)`,
		Example: `  # The next load balancer is created, but the reply is lost
  allinone cloud faults create lost --operation loadBalancers.create --effect loseReply --max 1

  # A third of the CCM's reads fail for ten minutes, the same third every time
  allinone cloud faults create flaky --operation '*.get' --caller ccm --effect error --probability 0.33 --for 10m

  # No more large instances in a zone; a zone without network for five minutes
  allinone cloud faults create out --operation instances.create --zone sim-1a --type large --effect stockOut
  allinone cloud faults create dark --zone sim-1b --effect zoneOutage --scope data --for 5m

  # Calls about one zone take two to three seconds
  allinone cloud faults create far --operation '*' --zone sim-1b --effect latency --latency 2s --jitter 1s`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			req.Name = args[0]
			if err := in.applyTo(&req); err != nil {
				return err
			}
			of, _, _ := strings.Cut(req.Match.Operation, ".")
			var err error
			if req.Match.Target, err = apply.TargetID(ctx, cl, of, req.Match.Target, nil); err != nil {
				return err
			}
			made, err := cl.CreateFault(ctx, req)
			if err != nil {
				return err
			}
			return faults.printer(c, o).One(made)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.StringVar(&req.Match.Operation, "operation", "*", "`PATTERN` of operations, e.g. instances.* or '*'; see 'faults targets'")
	f.StringVar(&req.Match.Caller, "caller", "", "only calls of the token or service account with this name")
	f.StringVar(&req.Match.Target, "target", "", "only calls about the resource with this `NAME` or id; an id is required if --operation matches several kinds of resources")
	f.StringVar(&req.Match.Zone, "zone", "", "only calls about a resource in this zone, and calls that create a resource in it")
	f.StringVar(&req.Match.DialectCall, "dialect-call", "", "only calls of a dialect that match this `PATTERN`, e.g. 'hcloud.load_balancers.*'; see 'allinone dialect calls'")
	f.StringVar(&req.Match.Type, "type", "", "only calls about a resource of this instance type or disk type, and calls that create such a resource")
	f.StringSliceVarP(&in.matchLabels, "selector", "l", nil, "only calls about a resource with the label `KEY=VALUE`; may be repeated")
	f.Float64Var(&in.probability, "probability", 1, "probability that the fault changes a matching call, more than 0 and at most 1")
	f.Uint64Var(&req.When.Seed, "seed", 0, "seed of the random decisions; the same seed, fault id and calls give the same decisions")
	f.Uint64Var(&req.When.Skip, "skip", 0, "number of matching calls that stay unchanged before the first changed call")
	f.Uint64Var(&req.When.Max, "max", 0, "maximum number of calls that the fault changes; 0 for no maximum")
	f.DurationVar(&in.after, "after", 0, "time from now until the start of the fault, e.g. 30s")
	f.DurationVar(&in.lasts, "for", 0, "duration of the fault, e.g. 10m; 0 for no end")
	f.StringVar(&in.from, "from", "", "start of the fault, `TIME` in RFC 3339")
	f.StringVar(&in.until, "until", "", "end of the fault, `TIME` in RFC 3339")
	f.StringVar(&in.effect, "effect", "", "effect: "+cli.Join(cloudsim.FaultEffects()))
	f.StringVar(&req.Effect.Kind, "kind", "", "`KIND` of the error: "+strings.Join(errorKinds(), ", "))
	f.IntVar(&req.Effect.Status, "status", 0, "HTTP status of the error (default the status of --kind)")
	f.StringVar(&req.Effect.Message, "message", "", "message of the error")
	f.DurationVar(&in.retryAfter, "retry-after", 0, "Retry-After of the error, in whole seconds")
	f.DurationVar(&in.latency, "latency", 0, "delay of the effect latency")
	f.DurationVar(&in.jitter, "jitter", 0, "maximum of an additional random delay of the effect latency")
	f.DurationVar(&in.age, "age", 0, "age of the data in the answer, for the effect staleRead, in whole seconds")
	f.StringVar((*string)(&req.Effect.Scope), "scope", "", "part of the zone that fails: api, data or both, for the effect zoneOutage (default both)")
	f.StringArrayVar(&in.labels, "label", nil, "label `KEY=VALUE` of the fault; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("effect", cli.Fixed(cloudsim.FaultEffects()...))
	_ = cmd.RegisterFlagCompletionFunc("kind", cli.Fixed(errorKinds()...))
	_ = cmd.RegisterFlagCompletionFunc("operation", operationNames(c))
	_ = cmd.RegisterFlagCompletionFunc("caller", completeNames(c, tokens))
	_ = cmd.RegisterFlagCompletionFunc("zone", completeNames(c, zones))
	_ = cmd.RegisterFlagCompletionFunc("scope", cli.Fixed(cloudsim.OutageAPI, cloudsim.OutageData, cloudsim.OutageBoth))
	return cmd
}

func errorKinds() []string {
	var words []string
	for _, k := range cloudsim.Kinds() {
		words = append(words, k.Error())
	}
	return words
}

// applyTo parses the flags and writes their values into req. It returns an error for each
// flag that it cannot parse.
func (in faultFlags) applyTo(req *cloudsim.CreateFault) error {
	var errs [10]error
	req.Labels, errs[0] = cli.ParseLabels("label", in.labels)
	req.Match.Labels, errs[1] = cli.ParseLabels("selector", in.matchLabels)
	req.When.From, errs[2] = cli.Instant("from", in.from)
	req.When.Until, errs[3] = cli.Instant("until", in.until)
	req.When.AfterSeconds, errs[4] = seconds("after", in.after)
	req.When.ForSeconds, errs[5] = seconds("for", in.lasts)
	retry, err := seconds("retry-after", in.retryAfter)
	req.Effect.RetryAfterSeconds, errs[6] = int(retry), err
	req.Effect.AgeSeconds, errs[7] = seconds("age", in.age)
	if in.probability != 1 {
		req.When.Probability = &in.probability
	}
	req.Effect.Type = cloudsim.FaultEffectType(in.effect)
	req.Effect.LatencyMillis, errs[8] = delayMillis("latency", in.latency)
	req.Effect.JitterMillis, errs[9] = delayMillis("jitter", in.jitter)
	var given []error
	for _, err := range errs {
		if err != nil {
			given = append(given, err)
		}
	}
	return cloudsim.OneOrMany(given)
}

func seconds(flag string, d time.Duration) (int64, error) {
	if d < 0 || d%time.Second != 0 {
		return 0, cli.BadFlag(flag, d.String(), "whole seconds, e.g. 90s")
	}
	return int64(d / time.Second), nil
}

func operationNames(c *cli.Connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), cli.CompletionTimeout)
		defer cancel()
		cl, err := c.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		targets, err := cl.FaultTargets(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var words []cobra.Completion
		for _, t := range targets {
			words = append(words, cobra.CompletionWithDesc(t.Operation, t.Summary))
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

func newFaultTargetsCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "targets", Short: "List the operations that faults can change",
		Example: "  allinone cloud faults targets\n  allinone cloud faults targets -o name",
		Args:    cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			targets, err := cl.FaultTargets(ctx)
			if err != nil {
				return err
			}
			return cli.Printer[cloudsim.FaultTarget]{
				Output: o, Writer: c.Stdout,
				ID: func(t cloudsim.FaultTarget) string { return t.Operation },
				Columns: []cli.Column[cloudsim.FaultTarget]{
					{Head: "OPERATION", Cell: func(t cloudsim.FaultTarget) string { return t.Operation }},
					{Head: "METHOD", Cell: func(t cloudsim.FaultTarget) string { return t.Method }},
					{Head: "PATH", Cell: func(t cloudsim.FaultTarget) string { return t.Path }},
					{Head: "SUMMARY", Wide: true, Cell: func(t cloudsim.FaultTarget) string { return t.Summary }},
				},
			}.List(targets)
		}),
	}
	o.Flags(cmd)
	return cmd
}

func newFaultPresetCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var zone string
	var about strings.Builder
	var presets []cobra.Completion
	for _, p := range cloudsim.FaultPresets() {
		fmt.Fprintf(&about, "\n\n%s\n  %s", p.Name, p.About)
		presets = append(presets, cobra.CompletionWithDesc(p.Name, p.About))
	}
	cmd := &cobra.Command{
		Use: "preset NAME", Short: "Create the faults of a preset, which simulates an incident",
		Long:    "Create the faults of a preset, which simulates an incident. The faults are active until\nyou delete them. A preset about the next call changes only one call." + about.String(),
		Example: "  allinone cloud faults preset lost-reply\n  allinone cloud faults preset cloud-down\n  allinone cloud faults preset zone-down --zone sim-1b\n  allinone cloud faults delete cloud-down",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: inOrder(cobra.FixedCompletions(presets, cobra.ShellCompDirectiveNoFileComp)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			var known []string
			for _, p := range cloudsim.FaultPresets() {
				if p.Name == args[0] {
					if zone != "" && !p.Zoned() {
						return cli.BadFlag("zone", zone, "no zone, because the preset "+p.Name+" affects all zones")
					}
					if zone != "" {
						p = p.InZone(zone)
					}
					return makePreset(ctx, cl, p, faults.printer(c, o))
				}
				known = append(known, p.Name)
			}
			return cloudsim.Errorf(cloudsim.NotFound, "no preset is named %q: choose %s", args[0], strings.Join(known, ", "))
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringVar(&zone, "zone", "", "zone of a preset that affects one zone (default "+cloudsim.PresetZone+")")
	_ = cmd.RegisterFlagCompletionFunc("zone", completeNames(c, zones))
	return cmd
}

// makePreset creates the faults of a preset and prints them. If it cannot create a fault, it
// continues with the other faults.
func makePreset(ctx context.Context, cl *client.Client, p cloudsim.FaultPreset, out cli.Printer[cloudsim.Fault]) error {
	var made []cloudsim.Fault
	var failed []error
	for _, req := range p.Faults {
		f, err := cl.CreateFault(ctx, req)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		made = append(made, f)
	}
	return errors.Join(printResult(out, len(p.Faults) == 1, made), cloudsim.OneOrMany(failed))
}
