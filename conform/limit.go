package conform

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// errLimit is the cancellation cause for a check that exceeds its time limit.
var errLimit = errors.New("the check has exceeded its time limit")

// errCleanup is the cancellation cause for a cleanup that exceeds cleanupTimeout.
var errCleanup = errors.New("the cleanup of the check has exceeded its time limit")

var errHangs = errors.New("the call of the driver does not return")

// maxHangs is the number of hanging driver calls after which a run skips its remaining checks.
const maxHangs = 3

// boundDriver wraps a driver so that each call returns. If the context of a call ends before the
// wrapped driver returns, the result is an error that names the call. If the wrapped driver panics,
// the result is also an error.
type boundDriver struct {
	driver Driver
	hangs  atomic.Int32 // number of calls that did not return
}

var _ Driver = (*boundDriver)(nil)

// boundCall runs one call of the driver. It returns an error if ctx ends before the driver returns.
func boundCall[T any](ctx context.Context, d *boundDriver, name string, do func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	began, results := time.Now(), make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("the call %s of the driver panicked: %v", name, p)
			}
			results <- r
		}()
		r.value, r.err = do(ctx)
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
	}
	select { // a driver that observes ctx returns soon after the end of ctx, with a more exact error
	case r := <-results:
		return r.value, r.err
	case <-time.After(poll):
		if cause := context.Cause(ctx); errors.Is(cause, errLimit) || errors.Is(cause, errCleanup) {
			d.hangs.Add(1)
		}
		var none T
		return none, fmt.Errorf("%s: %w within %s: %w", name, errHangs, time.Since(began).Round(time.Second), context.Cause(ctx))
	}
}

// do is boundCall for a driver call that returns only an error.
func do(ctx context.Context, d *boundDriver, name string, f func(context.Context) error) error {
	_, err := boundCall(ctx, d, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// Recording implements Recorder.
func (d *boundDriver) Recording(ctx context.Context, after time.Time) ([]Call, error) {
	return boundCall(ctx, d, "Recording", func(ctx context.Context) ([]Call, error) { return recordingOf(ctx, d.driver, after) })
}

func (d *boundDriver) Capabilities(ctx context.Context) (Capabilities, error) {
	return boundCall(ctx, d, "Capabilities", d.driver.Capabilities)
}

func (d *boundDriver) CreateMachine(ctx context.Context, m Machine) (Machine, error) {
	return boundCall(ctx, d, "CreateMachine", func(ctx context.Context) (Machine, error) { return d.driver.CreateMachine(ctx, m) })
}

func (d *boundDriver) ListMachines(ctx context.Context) ([]Machine, error) {
	return boundCall(ctx, d, "ListMachines", d.driver.ListMachines)
}

func (d *boundDriver) GetMachine(ctx context.Context, name string) (Machine, error) {
	return boundCall(ctx, d, "GetMachine", func(ctx context.Context) (Machine, error) { return d.driver.GetMachine(ctx, name) })
}

func (d *boundDriver) StopMachine(ctx context.Context, name string) error {
	return do(ctx, d, "StopMachine", func(ctx context.Context) error { return d.driver.StopMachine(ctx, name) })
}

func (d *boundDriver) StartMachine(ctx context.Context, name string) error {
	return do(ctx, d, "StartMachine", func(ctx context.Context) error { return d.driver.StartMachine(ctx, name) })
}

func (d *boundDriver) DeleteMachine(ctx context.Context, name string) error {
	return do(ctx, d, "DeleteMachine", func(ctx context.Context) error { return d.driver.DeleteMachine(ctx, name) })
}

func (d *boundDriver) ListLoadBalancers(ctx context.Context) ([]LoadBalancer, error) {
	return boundCall(ctx, d, "ListLoadBalancers", d.driver.ListLoadBalancers)
}

func (d *boundDriver) DeleteLoadBalancer(ctx context.Context, id string) error {
	return do(ctx, d, "DeleteLoadBalancer", func(ctx context.Context) error { return d.driver.DeleteLoadBalancer(ctx, id) })
}

func (d *boundDriver) ListRoutes(ctx context.Context) ([]Route, error) {
	return boundCall(ctx, d, "ListRoutes", d.driver.ListRoutes)
}

func (d *boundDriver) CreateRoute(ctx context.Context, r Route) (Route, error) {
	return boundCall(ctx, d, "CreateRoute", func(ctx context.Context) (Route, error) { return d.driver.CreateRoute(ctx, r) })
}

func (d *boundDriver) DeleteRoute(ctx context.Context, id string) error {
	return do(ctx, d, "DeleteRoute", func(ctx context.Context) error { return d.driver.DeleteRoute(ctx, id) })
}

func (d *boundDriver) SetFault(ctx context.Context, f Fault) error {
	return do(ctx, d, "SetFault", func(ctx context.Context) error { return d.driver.SetFault(ctx, f) })
}

func (d *boundDriver) ClearFault(ctx context.Context) error {
	return do(ctx, d, "ClearFault", d.driver.ClearFault)
}

func (d *boundDriver) Calls(ctx context.Context) (map[string]Count, error) {
	return boundCall(ctx, d, "Calls", d.driver.Calls)
}
