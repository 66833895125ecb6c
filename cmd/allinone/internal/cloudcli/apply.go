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
		Use: "apply -f FILE", Short: "Create and update the resources that a file describes",
		Long: `Create and update the resources that a YAML file describes. The file has lists of
resources under the plural names of the API. A resource refers to another resource by
its name.

The command creates missing resources. It updates the fields that the API can change:
labels of instances, networks, disks and load balancers; listeners, targets and other
settings of load balancers; pod ranges and the maximum number of routes of networks.
Any other difference is an error, and the command then changes nothing. The command
ignores differences in values that the cloud does not return, such as user data. Fields
and labels that the file does not contain stay unchanged. The number 0 and an empty
string mean the default. If you apply a file again, nothing changes.

The command checks the whole file before it changes the cloud. With --dry-run, the
command stops after this check. Without --dry-run, the cloud can still refuse a
resource for a reason that only the cloud knows, such as a quota or an overlapping
range. The earlier changes of the command then stay. The command applies networks first,
and then subnets, instances, addresses, routes, disks, load balancers, faults and holds.

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
