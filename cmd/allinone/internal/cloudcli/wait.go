package cloudcli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// progressEvery is the time between two progress messages while a command waits.
const progressEvery = 5 * time.Second

type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (w *waitFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait until the operation has ended")
	w.timeoutFlag(cmd)
}

func (w *waitFlags) timeoutFlag(cmd *cobra.Command) {
	w.timeout = 5 * time.Minute
	cmd.Flags().Var((*waitTime)(&w.timeout), "timeout", "time limit of the wait; 0 for no limit")
}

// waitTime is a flag value. It accepts a duration of 0 or more.
type waitTime time.Duration

func (p *waitTime) String() string { return time.Duration(*p).String() }
func (p *waitTime) Type() string   { return "duration" }

func (p *waitTime) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("want a duration such as 30s, or 0")
	}
	*p = waitTime(d)
	return nil
}

// errWaitTimeout is the result of context.Cause if a wait has reached its time limit.
var errWaitTimeout = errors.New("the time limit of the wait is over")

// await waits for operations and prints their progress to stderr. It returns the operations, and an
// error for every operation that failed. After the timeout, the method returns an error, but the
// cloud continues the operations.
func (w waitFlags) await(ctx context.Context, c *cli.Connection, cl *client.Client, ids []cloudsim.OperationID) ([]cloudsim.Operation, error) {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.timeout, errWaitTimeout)
		defer cancel()
	}
	var ops []cloudsim.Operation
	var errs []error
	for _, id := range ids {
		op, err := awaitOne(ctx, c, cl, id)
		if errors.Is(err, errWaitTimeout) {
			err = cloudsim.Errorf(cloudsim.Unavailable, "operation %s has not ended within the time limit of %s (--timeout), and the cloud continues the operation: see 'allinone cloud operations list'", id, w.timeout)
		}
		if err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		ops = append(ops, op)
		if op.Over() && op.State != cloudsim.OperationDone {
			errs = append(errs, failure(op))
		}
	}
	return ops, cloudsim.OneOrMany(errs)
}

// failure converts a failed operation to an error. The error has the kind and the detail of
// op.Error.
func failure(op cloudsim.Operation) error {
	why := cloudsim.OperationError{Detail: "no reason given"}
	if op.Error != nil {
		why = *op.Error
	}
	return cloudsim.Errorf(why.Kind, "%s %s: %s", describe(op), op.State, why.Detail)
}

func describe(op cloudsim.Operation) string {
	return fmt.Sprintf("%s (%s %s %s)", op.ID, op.Verb, op.Kind, op.Target)
}

func awaitOne(ctx context.Context, c *cli.Connection, cl *client.Client, id cloudsim.OperationID) (cloudsim.Operation, error) {
	op, err := cl.GetOperation(ctx, id)
	if err != nil || op.Over() {
		return printDone(c, op), err
	}
	fmt.Fprintf(c.Stderr, "%s: %s\n", describe(op), op.State)
	type result struct {
		op  cloudsim.Operation
		err error
	}
	over := make(chan result, 1)
	go func() {
		op, err := cl.WaitOperation(ctx, id)
		over <- result{op, err}
	}()
	began, tick := time.Now(), time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case r := <-over:
			return printDone(c, r.op), r.err
		case <-tick.C:
			fmt.Fprintf(c.Stderr, "%s: still %s after %s\n", describe(op), op.State, time.Since(began).Round(time.Second))
		}
	}
}

// printDone returns op. If op is done, printDone first prints a message about op to stderr.
func printDone(c *cli.Connection, op cloudsim.Operation) cloudsim.Operation {
	if op.State == cloudsim.OperationDone {
		took := ""
		if op.EndedAt != nil {
			took = " after " + op.EndedAt.Sub(op.CreatedAt).Round(time.Millisecond).String()
		}
		fmt.Fprintf(c.Stderr, "%s: done%s\n", describe(op), took)
	}
	return op // if op has failed, the caller prints the error
}

// settle waits for the operations on the given resources, and returns the new state of the
// resources. Without --wait, it does not wait, and returns the resources unchanged.
func settle[T cloudsim.Resource, ID ~string](ctx context.Context, c *cli.Connection, cl *client.Client, w waitFlags, k kind[T, ID], resources []T) ([]T, error) {
	if !w.wait {
		return resources, nil
	}
	var ids []cloudsim.OperationID
	for _, t := range resources {
		if id := t.Head().Operation; id != "" {
			ids = append(ids, id)
		}
	}
	_, err := w.await(ctx, c, cl, ids)
	if ctx.Err() != nil {
		return resources, err // the wait was interrupted, so return the last known state
	}
	var now []T
	for _, t := range resources {
		fresh, gone := k.get(cl, ctx, ID(k.id(t)))
		if gone != nil {
			err = errors.Join(err, gone)
			continue
		}
		now = append(now, fresh)
	}
	return now, err
}

// show prints the resource t that a call returned. With --wait it first waits for the operation
// on t.
func (k kind[T, ID]) show(ctx context.Context, c *cli.Connection, cl *client.Client, o cli.Output, w waitFlags, t T, err error) error {
	if err != nil {
		return err
	}
	now, err := settle(ctx, c, cl, w, k, []T{t})
	return errors.Join(printResult(k.printer(c, o), true, now), err)
}

// An action changes or deletes one resource and returns the resource.
type action[T cloudsim.Resource, ID ~string] func(*client.Client, context.Context, ID) (T, error)

// actionCommand returns a command that calls act for any number of resources. After an error for
// one resource, the command continues with the other resources.
func (k kind[T, ID]) actionCommand(c *cli.Connection, name, short string, act action[T, ID]) *cobra.Command {
	var o cli.Output
	var w waitFlags
	cmd := &cobra.Command{
		Use: name + " NAME...", Short: short,
		Example: fmt.Sprintf("  allinone cloud %[1]s %[2]s %[3]s\n  allinone cloud %[1]s %[2]s %[3]s --wait", k.command, name, k.sample),
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: completeNames(c, k),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			changed, failed := k.actOn(ctx, cl, args, act)
			changed, late := settle(ctx, c, cl, w, k, changed)
			return errors.Join(printResult(k.printer(c, o), len(args) == 1, changed), failed, late)
		}),
	}
	o.Flags(cmd)
	w.flags(cmd)
	return cmd
}

func (k kind[T, ID]) actOn(ctx context.Context, cl *client.Client, namesOrIDs []string, act action[T, ID]) ([]T, error) {
	found, err := k.resolveAll(ctx, cl, namesOrIDs)
	errs := []error{err}
	var changed []T
	for _, t := range found {
		t, err := act(cl, ctx, ID(k.id(t)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		changed = append(changed, t)
	}
	return changed, errors.Join(errs...)
}

// deleteCommand returns a command that deletes any number of resources and prints their states.
// If slow is true, the command has the flag --wait.
func (k kind[T, ID]) deleteCommand(c *cli.Connection, slow bool, act action[T, ID]) *cobra.Command {
	var w waitFlags
	cmd := &cobra.Command{
		Use: "delete NAME...", Aliases: []string{"rm"}, Short: "Delete one or more " + k.plural,
		Example: fmt.Sprintf("  allinone cloud %[1]s delete %[2]s", k.command, k.sample),
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: completeNames(c, k),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			going, failed := k.actOn(ctx, cl, args, act)
			late := k.awaitEnd(ctx, c, cl, w, going)
			for _, t := range going {
				state := "deleted"
				if k.state != nil && late == nil && !w.wait {
					state = k.state(t)
				}
				if late != nil {
					state = "being deleted"
				}
				fmt.Fprintf(c.Stdout, "%s %s (%s): %s\n", k.noun, k.id(t), t.Head().Name, state)
			}
			return errors.Join(failed, late)
		}),
	}
	if slow {
		cmd.Example += fmt.Sprintf("\n  allinone cloud %[1]s delete %[2]s --wait", k.command, k.sample)
		w.flags(cmd)
	}
	return cmd
}

func (k kind[T, ID]) awaitEnd(ctx context.Context, c *cli.Connection, cl *client.Client, w waitFlags, going []T) error {
	if !w.wait {
		return nil
	}
	var ids []cloudsim.OperationID
	for _, t := range going {
		ids = append(ids, t.Head().Operation)
	}
	_, err := w.await(ctx, c, cl, ids)
	return err
}
