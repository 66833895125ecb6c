package cloudcli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/apply"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var holds = kind[cloudsim.Hold, cloudsim.HoldID]{
	kind: cloudsim.KindHold, noun: "hold", plural: "holds", command: "holds", prefix: "hold-",
	sample: "slow-stop",
	id:     func(h cloudsim.Hold) string { return string(h.ID) },
	columns: []cli.Column[cloudsim.Hold]{
		{Head: "ID", Cell: func(h cloudsim.Hold) string { return string(h.ID) }},
		{Head: "NAME", Cell: func(h cloudsim.Hold) string { return h.Name }},
		{Head: "KIND", Cell: func(h cloudsim.Hold) string { return string(h.Kind) }},
		{Head: "VERB", Cell: func(h cloudsim.Hold) string { return string(h.Verb) }},
		{Head: "TARGET", Cell: func(h cloudsim.Hold) string { return h.Target }},
	},
	get:  (*client.Client).GetHold,
	list: (*client.Client).ListHolds,
}

func newHoldsCommand(c *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: holds.command, Aliases: []string{"hold"}, Short: "Keep operations unfinished",
		Long: `Keep matching operations unfinished until you delete the hold or release the
operation. For example, an instance stays in the state stopping. A hold also applies to
operations that already run. Holds survive a restart of the cloud.`,
		Example: `  # Instances that you stop now stay in the state stopping
  allinone cloud holds create slow-stop --kind instance --verb stop
  allinone cloud operations list -o wide
  allinone cloud operations release op-000007    # ends only this operation
  allinone cloud holds delete slow-stop          # ends all held operations`,
	}
	cmd.AddCommand(holds.listCommand(c), holds.getCommand(c), newCreateHoldCommand(c),
		holds.deleteCommand(c, false, readFirst(holds, (*client.Client).DeleteHold)))
	return cmd
}

func newCreateHoldCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		labels []string
		req    cloudsim.CreateHold
	)
	cmd := &cobra.Command{
		Use: "create NAME --kind KIND --verb VERB", Short: "Create a hold",
		Example: `  allinone cloud holds create slow-stop --kind instance --verb stop
  allinone cloud holds create stuck-disk --kind disk --verb '*' --target disk-000001`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			if req.Target, err = apply.TargetID(ctx, cl, string(req.Kind), req.Target, nil); err != nil {
				return err
			}
			made, err := cl.CreateHold(ctx, req)
			if err != nil {
				return err
			}
			return holds.printer(c, o).One(made)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.StringVar((*string)(&req.Kind), "kind", "", "`KIND` of resource, e.g. instance, or '*'")
	f.StringVar((*string)(&req.Verb), "verb", "", "verb of the operations, e.g. stop, or '*'")
	f.StringVar(&req.Target, "target", "", "only for the resource with this `NAME` or id")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE` of the hold; may be repeated")
	var kinds []cloudsim.ResourceKind
	var verbs []cloudsim.Verb
	for _, t := range cloudsim.Transitions() {
		kinds, verbs = append(kinds, t.Kind), append(verbs, t.Verb)
	}
	slices.Sort(kinds)
	slices.Sort(verbs)
	_ = cmd.RegisterFlagCompletionFunc("kind", cli.Fixed(slices.Compact(kinds)...))
	_ = cmd.RegisterFlagCompletionFunc("verb", cli.Fixed(slices.Compact(verbs)...))
	return cmd
}

func newDurationsCommand(c *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: "durations", Aliases: []string{"duration"}, Short: "Set the durations of operations",
		Long: `Set durations, which replace delays of the cloud's profile. The new durations apply to
operations that begin after the command.`,
		Example: `  allinone cloud durations set instance create 2m
  allinone cloud durations set '*' '*' 0
  allinone cloud durations list
  allinone cloud durations clear    # use the profile again`,
	}
	cmd.AddCommand(
		durationsCommand(c, &cobra.Command{
			Use: "list", Short: "List durations that override the profile",
			Example: "  allinone cloud durations list", Args: cobra.NoArgs,
		}, func(have cloudsim.WorkDurations, _ []string) (cloudsim.WorkDurations, error) { return have, nil }),
		durationsCommand(c, &cobra.Command{
			Use: "set KIND VERB DURATION", Short: "Set the duration of operations with a kind and a verb",
			Long:    "Set the duration of operations with a kind and a verb; * matches all kinds or verbs. If\nseveral settings match, the newest setting applies.",
			Example: "  allinone cloud durations set disk attach 30s\n  allinone cloud durations set loadBalancer '*' 1500ms", Args: cobra.ExactArgs(3),
		}, withDuration),
		durationsCommand(c, &cobra.Command{
			Use: "clear", Short: "Delete all durations, so that the delays of the profile apply again",
			Example: "  allinone cloud durations clear", Args: cobra.NoArgs,
		}, func(cloudsim.WorkDurations, []string) (w cloudsim.WorkDurations, err error) { return w, nil }),
	)
	return cmd
}

// withDuration returns oldDurations with a new duration as the first element. newDuration contains
// three strings: a resource kind, the verb of an operation, and the time that this operation takes.
// withDuration omits the old durations that the new duration replaces.
func withDuration(oldDurations cloudsim.WorkDurations, newDuration []string) (cloudsim.WorkDurations, error) {
	d, err := time.ParseDuration(newDuration[2])
	if err != nil || d < 0 || d%time.Millisecond != 0 {
		return oldDurations, cloudsim.Errorf(cloudsim.Invalid, "%q is not a valid duration: want whole milliseconds, such as 30s, 250ms or 0", newDuration[2])
	}
	one := cloudsim.WorkDuration{Transition: cloudsim.Transition{Kind: cloudsim.ResourceKind(newDuration[0]), Verb: cloudsim.Verb(newDuration[1])}, Millis: d.Milliseconds()}
	rest := slices.DeleteFunc(oldDurations.Items, func(o cloudsim.WorkDuration) bool {
		return one.Covers(o.Kind, o.Verb) // the new duration replaces this duration
	})
	return cloudsim.WorkDurations{Items: append([]cloudsim.WorkDuration{one}, rest...)}, nil
}

// durationsCommand adds a RunE function to cmd. The RunE function prints all durations of work. If
// cmd is not the command "list", the RunE function first changes the durations with changeFn.
func durationsCommand(c *cli.Connection, cmd *cobra.Command, changeFn func(cloudsim.WorkDurations, []string) (cloudsim.WorkDurations, error)) *cobra.Command {
	var o cli.Output
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
		have, err := cl.GetDurations(ctx)
		if err != nil {
			return err
		}
		if cmd.Name() != "list" {
			want, err := changeFn(have, args)
			if err != nil {
				return err
			}
			if have, err = cl.SetDurations(ctx, want); err != nil {
				return err
			}
		}
		return cli.Printer[cloudsim.WorkDuration]{
			Output: o, Writer: c.Stdout,
			ID: func(d cloudsim.WorkDuration) string { return string(d.Kind) + "/" + string(d.Verb) },
			Columns: []cli.Column[cloudsim.WorkDuration]{
				{Head: "KIND", Cell: func(d cloudsim.WorkDuration) string { return string(d.Kind) }},
				{Head: "VERB", Cell: func(d cloudsim.WorkDuration) string { return string(d.Verb) }},
				{Head: "DURATION", Cell: func(d cloudsim.WorkDuration) string { return (time.Duration(d.Millis) * time.Millisecond).String() }},
			},
		}.List(have.Items)
	})
	o.Flags(cmd)
	return cmd
}
