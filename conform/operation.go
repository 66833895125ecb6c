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
	{ID: "ops.restart", Level: Should, skipReason: requirements(needsLoadBalancers, needsCalls), exclusive: true, needsRestart: true, run: onNode(checkRestart),
		Title: "A restart of the CCM does not change the cloud if nothing else has changed"},
	{ID: "ops.crash", Level: Must, skipReason: needsLoadBalancers, exclusive: true, needsRestart: true, limitFactor: 2, run: onNode(checkCrash),
		Title: "A crash of the CCM during the creation of a load balancer leaves one load balancer, and none after the deletion of the Service"},
	{ID: "lb.orphan", Level: Must, skipReason: requirements(needsLoadBalancers, needsCalls, needsFault(FaultLoseReply)), exclusive: true, needsRestart: true, limitFactor: 4, run: onNode(checkOrphan),
		Title: "A crash of the CCM after any call that creates a load balancer leaves one load balancer, and none after the deletion of the Service"},
	{ID: "ops.leader", Level: Must, skipReason: requirements(needsLoadBalancers, needsElection), exclusive: true, needsRestart: true, limitFactor: 2, run: onNode(checkLeader),
		Title: "Only one of two CCMs works, and the other CCM finishes the work after a crash of the first CCM"},
	{ID: "ops.migrate", Level: Should, skipReason: needsMigration, exclusive: true, needsRestart: true, limitFactor: 2, run: onNode(checkMigrate),
		Title: "The CCM deletes Nodes only while it holds the Lease of the leader migration"},
	{ID: "ops.rbac", Level: Must, skipReason: needsUser, run: checkPermissions,
		Title: "The CCM's user has the necessary permissions, and not all permissions"},
	{ID: "ops.throttle", Level: Should, skipReason: requirements(needsLoadBalancers, needsCalls, needsFault(FaultThrottle)), exclusive: true, run: onNode(checkThrottle),
		Title: "The CCM does not call the cloud much more often while the cloud refuses its calls"},
	{ID: "ops.budget", Level: Should, skipReason: requirements(needsLoadBalancers, needsCalls), exclusive: true, run: onNode(checkBudget),
		Title: "Without a change of the cluster, the CCM makes few calls, and changes nothing in the cloud"},
	{ID: "ops.slo", Level: Should, exclusive: true, run: checkTogether,
		Title: "Ten Nodes that join at the same time are initialized in time"},
}

func checkRestart(ctx context.Context, e *env, _ Machine) error {
	s, lb, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	if err := e.awaitBalancer(ctx, s, lb.ID, "is complete", samePorts); err != nil {
		return err
	}
	calls, err := e.callsDuring(ctx, func(ctx context.Context) error {
		if err := e.restart(ctx); err != nil {
			return err
		}
		return e.waitToObserve(ctx)
	})
	if err != nil {
		return err
	}
	if writes := writesOf(calls); len(writes) > 0 {
		return fmt.Errorf("after the restart the CCM changed the cloud with these calls: %v", writes)
	}
	return nil
}

// restart kills the CCM and starts it again. It returns when the CCM has initialized a new Node.
func (e *env) restart(ctx context.Context) error {
	if err := e.subject.Kill(); err != nil {
		return fmt.Errorf("kill the CCM: %w", err)
	}
	if err := e.subject.Start(ctx); err != nil {
		return fmt.Errorf("start the CCM: %w", err)
	}
	return e.excludedNode(ctx)
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
		if err := sleepFor(ctx, delay); err != nil {
			return err
		}
		if err := e.restart(ctx); err != nil {
			return err
		}
		if err := e.checkFinished(ctx, s, added); err != nil {
			return fmt.Errorf("crash %s after the creation of the Service: %w", delay, err)
		}
	}
	return nil
}

// writesOfCreation creates and deletes a load balancer. It counts the calls that changed the cloud
// during the creation. The result maps the name of a call to the number of calls with this name.
func (e *env) writesOfCreation(ctx context.Context, added func(context.Context) ([]LoadBalancer, error)) (map[string]int, error) {
	var s *v1.Service
	calls, err := e.callsDuring(ctx, func(ctx context.Context) (err error) {
		s, _, err = e.createBalanced(ctx, "first")
		return err
	})
	if err != nil {
		return nil, err
	}
	writes := map[string]int{}
	for name, c := range calls {
		if c.Writes {
			writes[name] = c.Calls
		}
	}
	return writes, e.leavesNone(ctx, s, added)
}

// checkOrphan finds the calls with which the CCM creates a load balancer. For each of these calls,
// it then creates a Service, and kills the CCM as soon as the CCM has made this call. The cloud
// loses the reply to this call, so the CCM cannot store the result.
func checkOrphan(ctx context.Context, e *env, _ Machine) error {
	added, err := e.addedLoadBalancers(ctx)
	if err != nil {
		return err
	}
	writes, err := e.writesOfCreation(ctx, added)
	if err != nil {
		return err
	}
	crashes := 0
	for _, name := range slices.Sorted(maps.Keys(writes)) {
		for i := range writes[name] {
			crashes++
			if err := e.crashAfter(ctx, fmt.Sprintf("crash-%d", crashes), name, i, added); err != nil {
				return fmt.Errorf("crash after call number %d of %s: %w", i+1, name, err)
			}
		}
	}
	return nil
}

// crashAfter creates a Service, and kills the CCM after one of its calls to the cloud. This call
// has the name callName. Before this call, the CCM makes numSkipped calls with the same name. Then
// crashAfter proves that a new CCM finishes the work.
func (e *env) crashAfter(ctx context.Context, suffix, callName string, numSkipped int, added func(context.Context) ([]LoadBalancer, error)) error {
	if err := e.disturb(ctx, Fault{Kind: FaultLoseReply, Call: callName, Skip: numSkipped}); err != nil {
		return err
	}
	before, err := e.driver.Calls(ctx)
	if err != nil {
		return fmt.Errorf("driver: read call counts: %w", err)
	}
	s, err := e.service(ctx, suffix)
	if err != nil {
		return err
	}
	if err := e.retryUntilOK(ctx, "the CCM makes the call "+callName, func(ctx context.Context) error {
		now, err := e.driver.Calls(ctx)
		if err == nil && now[callName].Calls-before[callName].Calls <= numSkipped {
			err = fmt.Errorf("the CCM made only %d of these calls; want more than %d", now[callName].Calls-before[callName].Calls, numSkipped)
		}
		return err
	}); err != nil {
		return err
	}
	if err := e.subject.Kill(); err != nil {
		return fmt.Errorf("kill the CCM: %w", err)
	}
	if err := e.undisturb(ctx); err != nil {
		return err
	}
	if err := e.restart(ctx); err != nil {
		return err
	}
	return e.checkFinished(ctx, s, added)
}

// checkFinished waits until a CCM has finished the work of a killed CCM. The work is finished when
// the Service has one load balancer. Then checkFinished deletes the Service, and the cloud must
// have no load balancer of the Service.
func (e *env) checkFinished(ctx context.Context, s *v1.Service, added func(context.Context) ([]LoadBalancer, error)) error {
	if err := e.serviceBecomes(ctx, s, "ready after the crash", hasAddress); err != nil {
		return err
	}
	found, err := added(ctx)
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("the cloud has the load balancers %v; want one", found)
	}
	return e.leavesNone(ctx, s, added)
}
