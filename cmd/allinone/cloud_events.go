package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

var eventColumns = []column[cloudsim.Event]{
	{head: "REV", cell: func(e cloudsim.Event) string { return strconv.FormatUint(e.Rev, 10) }},
	{head: "TIME", cell: func(e cloudsim.Event) string { return e.Time.Local().Format(time.TimeOnly + ".000") }},
	{head: "EVENT", cell: func(e cloudsim.Event) string { return string(e.Type) }},
	{head: "KIND", cell: func(e cloudsim.Event) string { return string(e.Kind) }},
	{head: "ID", cell: func(e cloudsim.Event) string { return e.ID }},
	{head: "NAME", cell: func(e cloudsim.Event) string { return objectOf(e).Name }},
	{head: "STATE", cell: func(e cloudsim.Event) string { return objectOf(e).State }},
	{head: "PROJECT", wide: true, cell: func(e cloudsim.Event) string { return string(e.Project) }},
	{head: "REQUEST", wide: true, cell: func(e cloudsim.Event) string { return e.RequestID }},
}

// eventObject contains the members of an event's resource that a table shows.
type eventObject struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

func objectOf(e cloudsim.Event) eventObject {
	var o eventObject
	_ = json.Unmarshal(e.Object, &o) // a member that cannot be read is shown as absent
	return o
}

func newEventsCommand(c *cloudCLI) *cobra.Command {
	var (
		o        output
		watching bool
		kinds    []string
		where    cloudsim.WatchOptions
	)
	cmd := &cobra.Command{
		Use: "events", Aliases: []string{"event"}, Short: "What changed, in order",
		Long: `Print the events that the cloud keeps, in order. Their revisions count the changes
of the whole cloud: to go on later, give --since the last one that you have.

With --watch, go on with new events until interrupted.`,
		Example: `  allinone cloud events --kind instance
  allinone cloud events --since 120 --watch -o json`,
		Args: cobra.NoArgs,
		RunE: c.run(func(ctx context.Context, cl *client.Client, _ []string) (err error) {
			if where.Kinds, err = parseKinds(kinds); err != nil {
				return err
			}
			p := printer[cloudsim.Event]{
				output: o, w: c.stdout, columns: eventColumns,
				id: func(e cloudsim.Event) string { return e.ID },
			}
			if watching {
				if err := cl.Ready(ctx); err != nil {
					return err // a watch waits for a cloud that stopped, but not for a cloud that never ran
				}
				s := newStream(p, func(e cloudsim.Event) any { return e })
				return follow(ctx, c, cl, where, func(e cloudsim.Event) error { return s.changes([]cloudsim.Event{e}) })
			}
			events, err := cl.AllEvents(ctx, where)
			if err != nil {
				return err
			}
			if len(events) == 0 && (o.format == formatTable || o.format == formatWide) {
				fmt.Fprintln(c.stderr, "no events")
				return nil
			}
			return p.list(events)
		}),
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.BoolVarP(&watching, "watch", "w", false, "go on with new events until interrupted")
	f.Uint64Var(&where.Since, "since", 0, "only events after this `REVISION`")
	f.StringSliceVar(&kinds, "kind", nil, "only events of this `KIND` of resource; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("kind", fixed(cloudsim.ResourceKinds()...))
	return cmd
}
