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
	{Head: "MACHINE-TIME", Wide: true, Cell: func(e cloudsim.Event) string { return e.OnMachine().Local().Format(time.DateTime) }},
}

// eventObject contains those fields of an event's resource that a table shows.
type eventObject struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

func objectOf(e cloudsim.Event) eventObject {
	var o eventObject
	_ = json.Unmarshal(e.Object, &o) // the table shows an invalid field like a missing field
	return o
}

func newEventsCommand(c *cli.Connection) *cobra.Command {
	var (
		o        cli.Output
		watching bool
		kinds    []string
		where    cloudsim.WatchOptions
		newest   cloudsim.EventOptions
	)
	cmd := &cobra.Command{
		Use: "events", Aliases: []string{"event"}, Short: "List the changes of all resources, in order",
		Long: `Print the events that the cloud keeps, in order. Each event has a revision, which
counts the changes of the whole cloud. To continue later, give the last revision to
--since.

With --last, print only the newest events, newest first. With --watch, the command
prints the stored events, and then new events until you interrupt it.`,
		Example: `  allinone cloud events --kind instance
  allinone cloud events --last 20 --id i-000001
  allinone cloud events --last 20 --request req-0123456789abcdef
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
			if newest.RequestID != "" && newest.Limit == 0 {
				return cloudsim.Errorf(cloudsim.Invalid, "--request needs --last")
			}
			if newest.Limit != 0 {
				newest.Kinds, newest.ID = where.Kinds, where.ID
				return printNewest(ctx, c, cl, p, newest)
			}
			if watching {
				if err := cl.Ready(ctx); err != nil {
					return err // without this check, follow would wait until a cloud runs
				}
				s := newStream(p, func(e cloudsim.Event) any { return e })
				return follow(ctx, c, cl, where, func(e cloudsim.Event) error { return s.printAll([]cloudsim.Event{e}) })
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
	f.BoolVarP(&watching, "watch", "w", false, "after the list, print new events until Ctrl-C")
	f.IntVar(&newest.Limit, "last", 0, "only the newest `N` events, newest first")
	f.StringVar(&newest.RequestID, "request", "", "with --last, only events that the request with this `ID` caused")
	f.StringVar(&where.ID, "id", "", "only events of the resource with this `ID`")
	f.Uint64Var(&where.Since, "since", 0, "only events after this `REVISION`")
	f.StringSliceVar(&kinds, "kind", nil, "only events of this `KIND` of resource; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("kind", cli.Fixed(cloudsim.ResourceKinds()...))
	cmd.MarkFlagsMutuallyExclusive("last", "watch")
	cmd.MarkFlagsMutuallyExclusive("last", "since")
	return cmd
}

// printNewest prints the newest o.Limit events. It reads several pages if o.Limit is larger than a
// page.
func printNewest(ctx context.Context, c *cli.Connection, cl *client.Client, p cli.Printer[cloudsim.Event], o cloudsim.EventOptions) error {
	if o.Limit < 0 {
		return cli.BadFlag("last", strconv.Itoa(o.Limit), "a positive number")
	}
	var all []cloudsim.Event
	for want := o.Limit; ; {
		o.Limit = min(want-len(all), cloudsim.MaxPageSize)
		page, err := cl.ListNewestEvents(ctx, o)
		if err != nil {
			return err
		}
		if all = append(all, page.Items...); page.Next == "" || len(all) >= want {
			break
		}
		if o.Before, err = strconv.ParseUint(page.Next, 10, 64); err != nil {
			return err
		}
	}
	if len(all) == 0 && (p.Format == cli.FormatTable || p.Format == cli.FormatWide) {
		fmt.Fprintln(c.Stderr, "no events")
		return nil
	}
	return p.List(all)
}
