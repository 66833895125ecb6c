package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

func quotaPrinter(c *cloudCLI, o output) printer[cloudsim.Quota] {
	return printer[cloudsim.Quota]{output: o, w: c.stdout, id: func(q cloudsim.Quota) string { return string(q.Name) }, columns: []column[cloudsim.Quota]{
		{head: "NAME", cell: func(q cloudsim.Quota) string { return string(q.Name) }},
		{head: "USED/LIMIT", cell: usedCell},
		{head: "DEFAULT", cell: func(q cloudsim.Quota) string { return strconv.FormatInt(q.Default, 10) }},
		{head: "PROJECT", wide: true, cell: func(q cloudsim.Quota) string { return string(q.Project) }},
	}}
}

func usedCell(q cloudsim.Quota) string {
	used := "-"
	if q.Used != nil {
		used = strconv.FormatInt(*q.Used, 10)
	}
	return fmt.Sprintf("%s/%d", used, q.Limit)
}

func newQuotasCommand(c *cloudCLI) *cobra.Command {
	cmd := &cobra.Command{
		Use: "quotas", Aliases: []string{"quota"}, Short: "How much a project may have, and has",
		Example: `  allinone cloud quotas list
  allinone cloud quotas set instances=10 diskGiB=500 --project workshop`,
	}
	cmd.AddCommand(newListQuotasCommand(c), newSetQuotaCommand(c))
	return cmd
}

func newListQuotasCommand(c *cloudCLI) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List quotas, used and limit", Args: cobra.NoArgs,
		Example: "  allinone cloud quotas list --project workshop",
		RunE: c.run(func(ctx context.Context, cl *client.Client, _ []string) error {
			all, err := cl.ListQuotas(ctx)
			if err != nil {
				return err
			}
			return quotaPrinter(c, o).list(all)
		}),
	}
	o.flags(cmd)
	return cmd
}

func newSetQuotaCommand(c *cloudCLI) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "set NAME=LIMIT...", Short: "Change limits of a project",
		Long: `Change limits of the project chosen by --project, else of the default one. A limit
below what is used stops growth and takes nothing away. LIMIT default is that of
the cloud.`,
		Example: `  allinone cloud quotas set instances=3
  allinone cloud quotas set instances=default --project workshop`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: fixed(cloudsim.QuotaNames()...),
		RunE: c.run(func(ctx context.Context, cl *client.Client, args []string) error {
			wanted := make([]cloudsim.SetQuota, len(args))
			seen := map[string]bool{}
			for i, word := range args {
				name, limit, _ := strings.Cut(word, "=")
				if !slices.Contains(cloudsim.QuotaNames(), cloudsim.QuotaName(name)) {
					return cloudsim.Errorf(cloudsim.Invalid, "%q names no quota; there are: %s", word, join(cloudsim.QuotaNames()))
				}
				if seen[name] {
					return cloudsim.Errorf(cloudsim.Invalid, "%s is given twice", name)
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
			return quotaPrinter(c, o).list(all)
		}),
	}
	o.flags(cmd)
	return cmd
}

// parseQuotas parses the NAME=LIMIT words of a flag.
func parseQuotas(flag string, words []string) (map[cloudsim.QuotaName]int64, error) {
	limits := map[cloudsim.QuotaName]int64{}
	for _, w := range words {
		name, limit, _ := strings.Cut(w, "=")
		n, err := strconv.ParseInt(limit, 10, 64)
		if err != nil {
			return nil, badFlag(flag, w, "NAME=LIMIT, e.g. instances=10")
		}
		limits[cloudsim.QuotaName(name)] = n
	}
	return limits, cloudsim.ValidateQuotas(limits)
}
