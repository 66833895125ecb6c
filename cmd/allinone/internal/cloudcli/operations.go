package cloudcli

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var operations = kind[cloudsim.Operation, cloudsim.OperationID]{
	kind: cloudsim.KindOperation, noun: "operation", plural: "operations", command: "operations", prefix: "op-",
	sample: "op-000001", worked: true,
	id:    func(o cloudsim.Operation) string { return string(o.ID) },
	state: func(o cloudsim.Operation) string { return string(o.State) },
	columns: []cli.Column[cloudsim.Operation]{
		{Head: "ID", Cell: func(o cloudsim.Operation) string { return string(o.ID) }},
		{Head: "VERB", Cell: func(o cloudsim.Operation) string { return string(o.Verb) }},
		{Head: "KIND", Cell: func(o cloudsim.Operation) string { return string(o.Kind) }},
		{Head: "TARGET", Cell: func(o cloudsim.Operation) string { return o.Target }},
		{Head: "STATE", Cell: func(o cloudsim.Operation) string { return string(o.State) }},
		{Head: "DONE", Cell: func(o cloudsim.Operation) string { return strconv.Itoa(o.Percent) + "%" }},
		{Head: "TOOK", Cell: tookCell},
		{Head: "HELD BY", Wide: true, Cell: func(o cloudsim.Operation) string { return o.HeldBy }},
		{Head: "CALLER", Cell: func(o cloudsim.Operation) string { return o.Caller }},
		{Head: "ERROR", Cell: func(o cloudsim.Operation) string {
			if o.Error == nil {
				return ""
			}
			return o.Error.Detail
		}},
		{Head: "REQUEST", Wide: true, Cell: func(o cloudsim.Operation) string { return o.RequestID }},
	},
	get:  (*client.Client).GetOperation,
	list: (*client.Client).ListOperations,
}

func tookCell(o cloudsim.Operation) string {
	if o.EndedAt == nil {
		return ""
	}
	return o.EndedAt.Sub(o.CreatedAt).Round(time.Millisecond).String()
}

func newOperationsCommand(c *cli.Connection) *cobra.Command {
	cmd := operations.groupCommand("Manage operations: the records of work that takes time, such as the creation of a disk", "operation", "op")
	cmd.AddCommand(operations.listCommand(c), operations.getCommand(c), newWaitCommand(c), newCancelCommand(c), newReleaseCommand(c))
	return cmd
}

func newWaitCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	var w waitFlags
	cmd := &cobra.Command{
		Use: "wait ID...", Short: "Wait until operations have ended",
		Long: "Wait until operations have ended. If an operation fails, the command fails with the\nsame kind of error.",
		Example: `  allinone cloud operations wait op-000001
  allinone cloud operations wait op-000001 op-000002 --timeout 30s -o json`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeNames(c, operations),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			found, missing := operations.resolveAll(ctx, cl, args)
			var ids []cloudsim.OperationID
			for _, op := range found {
				ids = append(ids, op.ID)
			}
			over, failed := w.await(ctx, c, cl, ids)
			return errors.Join(printResult(operations.printer(c, o), len(args) == 1, over), missing, failed)
		}),
	}
	o.Flags(cmd)
	w.timeoutFlag(cmd)
	return cmd
}

func newCancelCommand(c *cli.Connection) *cobra.Command {
	return eachOperation(c, &cobra.Command{
		Use: "cancel ID...", Short: "Cancel operations before they end",
		Long: `Cancel operations before they end. The cloud deletes an instance, disk, load balancer,
snapshot or snapshot group that it is creating, and stops an instance that it is
starting. A disk that the cloud is attaching becomes detached. A disk that the cloud is
detaching stays attached, unless its machine has no device of the disk: then the call
fails. Other operations cannot be cancelled.`,
		Example: "  allinone cloud operations cancel op-000001",
	}, (*client.Client).CancelOperation)
}

func newReleaseCommand(c *cli.Connection) *cobra.Command {
	return eachOperation(c, &cobra.Command{
		Use: "release ID...", Short: "Release operations that a hold or fault keeps unfinished; the hold or fault stays",
		Example: "  allinone cloud operations list -o wide    # see HELD BY\n  allinone cloud operations release op-000001",
	}, (*client.Client).ReleaseOperation)
}

// eachOperation adds a RunE function to cmd. The RunE function calls act for every operation in
// the arguments.
func eachOperation(c *cli.Connection, cmd *cobra.Command, act func(*client.Client, context.Context, cloudsim.OperationID) (cloudsim.Operation, error)) *cobra.Command {
	var o cli.Output
	cmd.Args, cmd.ValidArgsFunction = cobra.MinimumNArgs(1), completeNames(c, operations)
	cmd.RunE = c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
		var done []cloudsim.Operation
		var failed []error
		for _, id := range args {
			op, err := act(cl, ctx, cloudsim.OperationID(id))
			if err != nil {
				failed = append(failed, err)
				continue
			}
			done = append(done, op)
		}
		return errors.Join(printResult(operations.printer(c, o), len(args) == 1, done), cloudsim.OneOrMany(failed))
	})
	o.Flags(cmd)
	return cmd
}
