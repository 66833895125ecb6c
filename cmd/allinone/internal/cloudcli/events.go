package cloudcli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var eventColumns = []cli.Column[cloudsim.Event]{
	{Head: "REV", Cell: func(e cloudsim.Event) string { return strconv.FormatUint(e.Rev, 10) }},
	{Head: "TIME", Cell: func(e cloudsim.Event) string { return e.Time.Local().Format(time.TimeOnly + ".000") }},
	{Head: "EVENT", Cell: func(e cloudsim.Event) string { return string(e.Type) }},
	{Head: "KIND", Cell: func(e cloudsim.Event) string { return string(e.Kind) }},
	{Head: "ID", Cell: func(e cloudsim.Event) string { return e.ID }},
	{Head: "NAME", Cell: func(e cloudsim.Event) string { return objectOf(e).Name }},
	{Head: "STATE", Cell: func(e cloudsim.Event) string { return objectOf(e).State }},
	{Head: "PROJECT", Wide: true, Cell: func(e cloudsim.Event) string { return string(e.Project) }},
	{Head: "REQUEST", Wide: true, Cell: func(e cloudsim.Event) string { return e.RequestID }},
}

// eventObject contains the fields of an event's resource that a table shows.
type eventObject struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

func objectOf(e cloudsim.Event) eventObject {
	var o eventObject
	_ = json.Unmarshal(e.Object, &o) // the table shows a field that cannot be read as missing
	return o
}

func newEventsCommand(c *cli.Connection) *cobra.Command {
	var (
		o        cli.Output
		watching bool
		kinds    []string
		where    cloudsim.WatchOptions
	)
	cmd := &cobra.Command{
		Use: "events", Aliases: []string{"event"}, Short: "List the changes of all resources, in order",
		Long: `Print the events that the cloud keeps, in order. Each event has a revision, which
counts the changes of the whole cloud. To continue later, give the last revision to
--since.

With --watch, the command prints new events until you interrupt it.`,
		Example: `  allinone cloud events --kind instance
  allinone cloud events --since 120 --watch -o json`,
		Args: cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) (err error) {
			if where.Kinds, err = parseKinds(kinds); err != nil {
				return err
			}
			p := cli.Printer[cloudsim.Event]{
				Output: o, Writer: c.Stdout, Columns: eventColumns,
				ID: func(e cloudsim.Event) string { return e.ID },
			}
			if watching {
				if err := cl.Ready(ctx); err != nil {
					return err // if no cloud runs when the command starts, the command must fail; follow would wait for the cloud
				}
				s := newStream(p, func(e cloudsim.Event) any { return e })
				return follow(ctx, c, cl, where, func(e cloudsim.Event) error { return s.changes([]cloudsim.Event{e}) })
			}
			events, err := cl.AllEvents(ctx, where)
			if err != nil {
				return err
			}
			if len(events) == 0 && (o.Format == cli.FormatTable || o.Format == cli.FormatWide) {
				fmt.Fprintln(c.Stderr, "no events")
				return nil
			}
			return p.List(events)
		}),
	}
	o.Flags(cmd)
	f := cmd.Flags()
	f.BoolVarP(&watching, "watch", "w", false, "then print new events until Ctrl-C")
	f.Uint64Var(&where.Since, "since", 0, "only events after this `REVISION`")
	f.StringSliceVar(&kinds, "kind", nil, "only events of this `KIND` of resource; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("kind", cli.Fixed(cloudsim.ResourceKinds()...))
	return cmd
}
