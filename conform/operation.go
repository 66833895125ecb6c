package conform

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

var operationChecks = []Check{
	{ID: "ops.restart", Level: Should, missing: needs(needsLoadBalancers, needsCalls), exclusive: true, restarts: true, run: onNode(checkRestart),
		Title: "A restart of the CCM does not change the cloud if nothing else has changed"},
	{ID: "ops.crash", Level: Must, missing: needsLoadBalancers, exclusive: true, restarts: true, run: onNode(checkCrash),
		Title: "A crash of the CCM during the creation of a load balancer leaves one load balancer, and none after the deletion"},
}

func checkRestart(ctx context.Context, e *env, _ Machine) error {
	s, lb, err := e.balanced(ctx, "web")
	if err != nil {
		return err
	}
	if err := e.balances(ctx, s, lb.ID, "is complete", samePorts); err != nil {
		return err
	}
	before, err := e.driver.Calls(ctx)
	if err != nil {
		return fmt.Errorf("driver: calls: %w", err)
	}
	if err := e.restart(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(e.observe):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := e.driver.Calls(ctx)
	if err != nil {
		return fmt.Errorf("driver: calls: %w", err)
	}
	var writes []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if n := after[name].Calls - before[name].Calls; after[name].Writes && n > 0 {
			writes = append(writes, fmt.Sprintf("%s (%d)", name, n))
		}
	}
	if len(writes) > 0 {
		return fmt.Errorf("after the restart the CCM changed the cloud with these calls: %v", writes)
	}
	return nil
}

// restart kills the CCM and starts it again. It returns when the CCM has initialised a new Node. No
// load balancer uses this Node, so the Node causes no change in the cloud.
func (e *env) restart(ctx context.Context) error {
	if err := e.subject.Kill(); err != nil {
		return fmt.Errorf("kill the CCM: %w", err)
	}
	if err := e.subject.Start(ctx); err != nil {
		return fmt.Errorf("start the CCM: %w", err)
	}
	e.restarts++
	_, err := e.joined(ctx, fmt.Sprintf("restart-%d", e.restarts), func(n *v1.Node) { n.Labels[v1.LabelNodeExcludeBalancers] = "true" })
	return err
}

// checkCrash kills the CCM at different moments after the creation of a Service. See
// kubernetes/kubernetes#53451.
func checkCrash(ctx context.Context, e *env, _ Machine) error {
	added, err := e.addedLoadBalancers(ctx)
	if err != nil {
		return err
	}
	for i, delay := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond} {
		s, err := e.service(ctx, fmt.Sprintf("crash-%d", i))
		if err != nil {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := e.restart(ctx); err != nil {
			return err
		}
		if err := e.serviceBecomes(ctx, s, "ready after the crash", hasAddress); err != nil {
			return err
		}
		found, err := added(ctx)
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("crash %s after the creation of the Service: the cloud has the load balancers %v; want one", delay, found)
		}
		if err := e.leavesNone(ctx, s, added); err != nil {
			return fmt.Errorf("crash %s after the creation of the Service: %w", delay, err)
		}
	}
	return nil
}
