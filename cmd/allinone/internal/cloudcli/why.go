package cloudcli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func newWhyCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var request string
	cmd := &cobra.Command{
		Use: "why [OBJECT]", Short: "Explain the state of an object, or the effects of a request",
		Long: `Explain the state of an object: its changes with callers and request ids, its operations
with results, the faults that changed calls, and why current operations wait. The
command reads the journal, so it also explains deleted objects.

OBJECT is an id, or kind/name for the last object with this name.

With --request, explain the effects of one request: its calls, its operations, the
changes of objects, and the faults that changed calls. Each answer of the cloud has the
id of its request. The audit trail, events and errors also contain this id.`,
		Example: `  allinone cloud why i-000001
  allinone cloud why instance/node-1
  allinone cloud why loadBalancer/web -o json
  allinone cloud why --request req-0123456789abcdef`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			if (len(args) == 0) == (request == "") {
				return cloudsim.Errorf(cloudsim.Invalid, "set either OBJECT or --request")
			}
			var w cloudsim.Why
			var err error
			if request != "" {
				w, err = cl.WhyRequest(ctx, request)
			} else {
				w, err = cl.Why(ctx, args[0])
			}
			if err != nil {
				return err
			}
			p := cli.Printer[cloudsim.Why]{Output: o, Writer: c.Stdout, ID: func(w cloudsim.Why) string { return w.ID }}
			if o.Format != cli.FormatTable && o.Format != cli.FormatWide {
				return p.One(w)
			}
			_, err = c.Stdout.Write([]byte(whyText(w)))
			return err
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringVar(&request, "request", "", "`ID` of a request to explain")
	return cmd
}

func whyText(w cloudsim.Why) string {
	var b strings.Builder
	state := w.State
	if w.Gone {
		state = "deleted"
	}
	switch {
	case w.Kind != cloudsim.WhyOfRequest:
		fmt.Fprintf(&b, "%s %s (%s): %s\n", w.Kind, cli.Printable(w.ID), cli.Printable(w.Name), cli.Printable(cmp.Or(state, "exists")))
	case len(w.Calls) == 0:
		fmt.Fprintf(&b, "request %s: the call itself is no longer in the audit trail, or your role cannot read the audit trail\n", cli.Printable(w.ID))
	default:
		fmt.Fprintf(&b, "request %s (%s): %s\n", cli.Printable(w.ID), cli.Printable(w.Name), cli.Printable(state))
	}
	for _, e := range w.Calls {
		fmt.Fprintf(&b, "  call  %s  %s: %s, status %d\n        by %s\n", e.Time.Format(time.RFC3339), cli.Printable(strings.TrimSpace(e.Operation+" "+e.Target)), cli.Printable(e.Outcome), e.Status, cli.Printable(e.Caller))
	}
	if w.Since > 0 {
		fmt.Fprintf(&b, "the cloud no longer stores the events up to revision %d\n", w.Since)
	}
	for _, s := range w.Steps {
		origin := cli.Printable(cmp.Or(strings.TrimSpace(s.Caller+" "+s.Cause), "the cloud"))
		if s.RequestID != "" {
			origin += " (" + cli.Printable(s.RequestID) + ")"
		}
		text := cli.Printable(s.Text)
		if s.ID != w.ID {
			text = cli.Printable(s.ID) + ": " + text
		}
		fmt.Fprintf(&b, "%6d  %s  %s\n        by %s\n", s.Rev, s.Time.Format(time.RFC3339), text, origin)
	}
	for _, wait := range w.Waits {
		fmt.Fprintf(&b, "now: %s\n", cli.Printable(wait.Text))
	}
	return b.String()
}
