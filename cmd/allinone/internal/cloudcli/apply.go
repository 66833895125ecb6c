package cloudcli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim/apply"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

func newApplyCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var file string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Make the cloud what a file describes",
		Long: `Make the cloud what a file describes. The file is YAML: lists of resources in the
words of the API, by their plural. One resource is named from another by its name.

What is missing is created. What exists and differs is updated where the API can:
labels of instances, networks and load balancers, what load balancers forward and
how, pod ranges and limits of networks. Any other difference is an error, and
nothing of that resource is changed. What the file does not say stays as it is, and
so do labels that it does not name. A number that is 0 and a text that is empty ask
for the default. Applying a file again does nothing.

The whole file is checked before anything is made; --dry-run stops there. What only
the cloud knows when it is asked, such as quotas and ranges that overlap, can still
refuse a resource; what comes before it in the file is made then.

'allinone cloudsim --apply FILE' does the same before the cloud is ready.`,
		Example: `  # cloud.yaml
  #   instances:
  #   - {name: node-1, zone: sim-1a, type: small}
  #   holds:
  #   - {name: slow, kind: instance, verb: stop, target: node-1}
  allinone cloud apply -f cloud.yaml --dry-run
  allinone cloud apply -f cloud.yaml
  sed s/small/large/ cloud.yaml | allinone cloud apply -f -`,
		Args: cobra.NoArgs,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, _ []string) error {
			wanted, err := apply.Read(file, c.Stdin)
			if err != nil {
				return err
			}
			done, err := apply.All(ctx, cl, wanted, dryRun)
			return errors.Join(appliedPrinter(c, o).List(done), err)
		}),
	}
	o.Flags(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "`FILE` to apply; - for standard input")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the changes without applying them")
	return cmd
}

func appliedPrinter(c *cli.Connection, o cli.Output) cli.Printer[apply.Result] {
	return cli.Printer[apply.Result]{Output: o, Writer: c.Stdout, ID: func(a apply.Result) string { return a.Name }, Columns: []cli.Column[apply.Result]{
		{Head: "LIST", Cell: func(a apply.Result) string { return a.List }},
		{Head: "NAME", Cell: func(a apply.Result) string { return a.Name }},
		{Head: "RESULT", Cell: func(a apply.Result) string { return a.Result }},
		{Head: "FIELDS", Cell: func(a apply.Result) string { return a.Fields }},
	}}
}
