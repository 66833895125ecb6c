package cloudcli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func quotaPrinter(c *cli.Connection, o cli.Output) cli.Printer[cloudsim.Quota] {
	return cli.Printer[cloudsim.Quota]{Output: o, Writer: c.Stdout, ID: func(q cloudsim.Quota) string { return string(q.Name) }, Columns: []cli.Column[cloudsim.Quota]{
		{Head: "NAME", Cell: func(q cloudsim.Quota) string { return string(q.Name) }},
		{Head: "USED/LIMIT", Cell: usedCell},
		{Head: "DEFAULT", Cell: func(q cloudsim.Quota) string { return strconv.FormatInt(q.Default, 10) }},
		{Head: "PROJECT", Wide: true, Cell: func(q cloudsim.Quota) string { return string(q.Project) }},
	}}
}

func usedCell(q cloudsim.Quota) string {
	used := "-"
	if q.Used != nil {
		used = strconv.FormatInt(*q.Used, 10)
	}
	return fmt.Sprintf("%s/%d", used, q.Limit)
}

func newQuotasCommand(c *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use: "quotas", Aliases: []string{"quota"}, Short: "Manage the quotas of projects",
		Example: `  allinone cloud quotas list
  allinone cloud quotas set instances=10 diskGiB=500 --project workshop`,
	}
	cmd.AddCommand(newListQuotasCommand(c), newSetQuotaCommand(c))
	return cmd
}

func newListQuotasCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List quotas with usage and limit", Args: cobra.NoArgs,
		Example: "  allinone cloud quotas list --project workshop",
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			all, err := cl.ListQuotas(ctx)
			if err != nil {
				return err
			}
			return quotaPrinter(c, o).List(all)
		}),
	}
	o.Flags(cmd)
	return cmd
}

func newSetQuotaCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "set NAME=LIMIT...", Short: "Change limits of a project",
		Long: `Change limits of the project in --project, or of the default project. A limit below
the usage prevents growth and deletes nothing. With the word default as LIMIT, the
project gets the default limit of the cloud again.`,
		Example: `  allinone cloud quotas set instances=3
  allinone cloud quotas set instances=default --project workshop`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: cli.Fixed(cloudsim.QuotaNames()...),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			wanted := make([]cloudsim.SetQuota, len(args))
			seen := map[string]bool{}
			for i, word := range args {
				name, limit, _ := strings.Cut(word, "=")
				if !slices.Contains(cloudsim.QuotaNames(), cloudsim.QuotaName(name)) {
					return cloudsim.Errorf(cloudsim.Invalid, "%q must have the form NAME=LIMIT, and NAME must be one of: %s", word, cli.Join(cloudsim.QuotaNames()))
				}
				if seen[name] {
					return cloudsim.Errorf(cloudsim.Invalid, "quota %s is given twice", name)
				}
				seen[name] = true
				if limit == "default" {
					continue
				}
				n, err := strconv.ParseInt(limit, 10, 64)
				if err != nil {
					return cloudsim.Errorf(cloudsim.Invalid, "%q: want NAME=LIMIT, e.g. instances=10 or instances=default", word)
				}
				wanted[i].Limit = &n
			}
			var all []cloudsim.Quota
			for i, word := range args {
				name, _, _ := strings.Cut(word, "=")
				q, err := cl.SetQuota(ctx, cloudsim.QuotaName(name), wanted[i])
				if err != nil {
					return err
				}
				all = append(all, q)
			}
			return quotaPrinter(c, o).List(all)
		}),
	}
	o.Flags(cmd)
	return cmd
}
