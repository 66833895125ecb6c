package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

func newWhyCommand(c *cloudCLI) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "why OBJECT", Short: "Tell what brought an object where it is",
		Long: `Tell what brought an object where it is: the calls with who made them and their
request ids, the work and how it went, the faults that struck; and what it waits
for now. It is read from the journal, so it also tells of what is gone.

OBJECT is an id, or kind/name: the last one of that name.`,
		Example: `  allinone cloud why i-000001
  allinone cloud why instance/node-1
  allinone cloud why loadBalancer/web -o json`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			w, err := cl.Why(ctx, args[0])
			if err != nil {
				return err
			}
			p := printer[cloudsim.Why]{output: o, w: c.stdout, id: func(w cloudsim.Why) string { return w.ID }}
			if o.format != formatTable && o.format != formatWide {
				return p.one(w)
			}
			_, err = c.stdout.Write([]byte(story(w)))
			return err
		}),
	}
	o.flags(cmd)
	return cmd
}

// story formats w as text.
func story(w cloudsim.Why) string {
	var b strings.Builder
	state := w.State
	if w.Gone {
		state = "gone"
	}
	fmt.Fprintf(&b, "%s %s (%s): %s\n", w.Kind, printable(w.ID), printable(w.Name), printable(cmp.Or(state, "there")))
	if w.Since > 0 {
		fmt.Fprintf(&b, "what was before revision %d is forgotten\n", w.Since)
	}
	for _, s := range w.Steps {
		who := printable(cmp.Or(strings.TrimSpace(s.Caller+" "+s.Cause), "the cloud"))
		if s.RequestID != "" {
			who += " (" + printable(s.RequestID) + ")"
		}
		what := printable(s.Text)
		if s.ID != w.ID {
			what = printable(s.ID) + ": " + what
		}
		fmt.Fprintf(&b, "%6d  %s  %s\n        by %s\n", s.Rev, s.Time.Format(time.RFC3339), what, who)
	}
	for _, wait := range w.Waits {
		fmt.Fprintf(&b, "now: %s\n", printable(wait.Text))
	}
	return b.String()
}
