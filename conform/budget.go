package conform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// callsDuring calls fn. It returns the calls that the CCM makes while fn runs.
func (e *env) callsDuring(ctx context.Context, fn func(context.Context) error) (map[string]Count, error) {
	before, err := e.driver.Calls(ctx)
	if err != nil {
		return nil, fmt.Errorf("driver: read call counts: %w", err)
	}
	if err := fn(ctx); err != nil {
		return nil, err
	}
	after, err := e.driver.Calls(ctx)
	if err != nil {
		return nil, fmt.Errorf("driver: read call counts: %w", err)
	}
	made := map[string]Count{}
	for name, c := range after {
		if c.Calls -= before[name].Calls; c.Calls > 0 {
			made[name] = c
		}
	}
	return made, nil
}

func (e *env) waitToObserve(ctx context.Context) error { return sleepFor(ctx, e.observe) }

// sleepFor waits for a time. It returns an error if ctx ends first.
func sleepFor(ctx context.Context, d time.Duration) error {
	backoff.Sleep(ctx, d)
	return context.Cause(ctx)
}

func total(calls map[string]Count) (n int) {
	for _, c := range calls {
		n += c.Calls
	}
	return n
}

func writesOf(calls map[string]Count) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if c := calls[name]; c.Writes {
			all = append(all, fmt.Sprintf("%s (%d)", name, c.Calls))
		}
	}
	return all
}

// callsPerSecond is the average number of calls per second that the checks always permit. A good
// CCM makes far fewer calls. A lower limit is not necessary, because the method Report.Grown
// detects smaller regressions.
const callsPerSecond = 30

// checkBudget counts the calls that the CCM makes while the cluster does not change. Some CCMs have
// called their cloud so often that users reached the request limits of the cloud. For example,
// see the issue hetznercloud/hcloud-cloud-controller-manager#661.
func checkBudget(ctx context.Context, e *env, m Machine) error {
	s, lb, err := e.createBalanced(ctx, "web")
	if err != nil {
		return err
	}
	if err := e.awaitBalancer(ctx, s, lb.ID, "is complete", samePorts); err != nil {
		return err
	}
	if err := e.setReady(ctx, m.Name, false); err != nil {
		return err
	}
	idle, err := e.callsDuring(ctx, e.waitToObserve)
	if err != nil {
		return err
	}
	if writes := writesOf(idle); len(writes) > 0 {
		return fmt.Errorf("the CCM changed the cloud without a change of the cluster, with these calls: %v", writes)
	}
	if n, most := total(idle), int(callsPerSecond*e.observe.Seconds()); n > most {
		return fmt.Errorf("the CCM made %d calls in %s without a change of the cluster; want at most %d: %v", n, e.observe, most, idle)
	}
	return nil
}

func excludeNode(n *v1.Node) { n.Labels[v1.LabelNodeExcludeBalancers] = "true" }

// checkThrottle makes the cloud refuse all calls, and counts the calls of the CCM. A CCM that
// repeats refused calls without a delay makes the outage longer.
func checkThrottle(ctx context.Context, e *env, m Machine) error {
	if err := e.setReady(ctx, m.Name, false); err != nil { // so that the CCM regularly asks the cloud about the machine of this Node
		return err
	}
	idle, err := e.callsDuring(ctx, e.waitToObserve)
	if err != nil {
		return err
	}
	if err := e.disturb(ctx, Fault{Kind: FaultThrottle}); err != nil {
		return err
	}
	s, err := e.service(ctx, "web")
	if err != nil {
		return err
	}
	throttled, err := e.callsDuring(ctx, e.waitToObserve)
	if err != nil {
		return err
	}
	if err := e.undisturb(ctx); err != nil {
		return err
	}
	if n, most := total(throttled), max(2*total(idle), int(callsPerSecond*e.observe.Seconds())); n > most {
		return fmt.Errorf("the CCM made %d calls in %s while the cloud refused them with the status 429; want at most %d: %v", n, e.observe, most, throttled)
	}
	return e.serviceBecomes(ctx, s, "ready after the throttling", hasAddress)
}

// joinTogether is the number of Nodes that join at the same time in the check ops.slo.
const joinTogether = 10

func checkTogether(ctx context.Context, e *env) error {
	errs := make([]error, joinTogether)
	var joining sync.WaitGroup
	for i := range errs {
		joining.Go(func() { _, errs[i] = e.joinNode(ctx, fmt.Sprint(i), excludeNode) })
	}
	joining.Wait()
	return errors.Join(errs...)
}
