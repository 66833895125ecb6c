package cloudcli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// statsRow contains the counters of one listener or one target of a load balancer.
type statsRow struct {
	name                string // name of the load balancer
	endpoint            string
	connections, failed uint64
	active              int
	bytes               [2]string // bytes in and bytes out; empty for a listener
	why                 string
}

var statsColumns = []cli.Column[statsRow]{
	{Head: "LISTENER/TARGET", Cell: func(r statsRow) string { return r.endpoint }},
	{Head: "CONNECTIONS", Cell: func(r statsRow) string { return strconv.FormatUint(r.connections, 10) }},
	{Head: "ACTIVE", Cell: func(r statsRow) string { return strconv.Itoa(r.active) }},
	{Head: "FAILED", Cell: func(r statsRow) string { return strconv.FormatUint(r.failed, 10) }},
	{Head: "BYTES-IN", Cell: func(r statsRow) string { return r.bytes[0] }},
	{Head: "BYTES-OUT", Cell: func(r statsRow) string { return r.bytes[1] }},
	{Head: "WHY-FAILED", Wide: true, Cell: func(r statsRow) string { return r.why }},
}

func statsRows(name string, s cloudsim.LoadBalancerStats) []statsRow {
	var rows []statsRow
	for _, l := range s.Listeners {
		r := l.Refused
		rows = append(rows, statsRow{
			name:     name,
			endpoint: fmt.Sprintf("%s:%d", l.Protocol, l.Port), connections: l.Accepted, active: l.Active,
			failed: r.SourceRange + r.NoHealthyTarget + r.DialFailed + r.TooManyConnections, why: refusalWords(r),
		})
	}
	for _, t := range s.Targets {
		rows = append(rows, statsRow{
			name:     name,
			endpoint: t.Key().String(), connections: t.Connections, active: t.Active, failed: t.FailedDials,
			bytes: [2]string{strconv.FormatUint(t.BytesIn, 10), strconv.FormatUint(t.BytesOut, 10)},
		})
	}
	return rows
}

func refusalWords(r cloudsim.Refusals) string {
	var words []string
	for _, w := range []struct {
		n      uint64
		reason string
	}{{r.SourceRange, "source range"}, {r.NoHealthyTarget, "no healthy target"}, {r.DialFailed, "dial failed"}, {r.TooManyConnections, "too many connections"}} {
		if w.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", w.n, w.reason))
		}
	}
	return strings.Join(words, ", ")
}

func newLoadBalancerStatsCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "stats [NAME]", Short: "Show the traffic counters of one load balancer or of all load balancers",
		Long: `Show the traffic counters of a load balancer, by listener and by target, since the
data plane began to forward its connections. FAILED counts the connections that a
listener refused, and the failed connection attempts to a target. For listeners, -o wide
shows the reasons.

Without NAME, show the counters of all load balancers that forward connections.`,
		Example: `  allinone cloud load-balancers stats shop
  allinone cloud load-balancers stats
  allinone cloud load-balancers stats shop -o json`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: inOrder(completeNames(c, loadBalancers)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			p := cli.Printer[statsRow]{Output: o, Writer: c.Stdout, ID: func(r statsRow) string { return r.endpoint }, Columns: statsColumns}
			encoded := o.Format == cli.FormatJSON || o.Format == cli.FormatYAML
			if len(args) == 0 {
				all, _, err := cloudsim.All(ctx, cl.ListLoadBalancerStats, cloudsim.ListOptions{})
				switch {
				case err != nil:
					return err
				case encoded:
					return p.Encode(all)
				case len(all) == 0:
					fmt.Fprintln(c.Stderr, "no load balancer forwards connections")
					return nil
				}
				p.Columns = append([]cli.Column[statsRow]{{Head: "LOAD-BALANCER", Cell: func(r statsRow) string { return r.name }}}, statsColumns...)
				var rows []statsRow
				for _, l := range all {
					rows = append(rows, statsRows(l.Name, l.LoadBalancerStats)...)
				}
				return p.List(rows)
			}
			l, err := loadBalancers.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			s, err := cl.LoadBalancerStats(ctx, l.ID)
			if err != nil {
				return err
			}
			if encoded {
				return p.Encode(s)
			}
			return p.List(statsRows(l.Name, s))
		}),
	}
	o.Flags(cmd)
	return cmd
}
