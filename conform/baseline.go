package conform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

const (
	// maxGrowth is the permitted growth of a call budget in percent.
	maxGrowth = 20
	// minGrowth is the number of additional calls that is always permitted. If a CCM polls, its
	// number of calls differs a little between two runs.
	minGrowth = 2
)

// countCalls counts the calls that the CCM makes for some actions. No check may run at the same
// time. During the action "idle", countCalls only waits for the time Config.Observe.
func (s *suite) countCalls(ctx context.Context) {
	counted := map[string]int{}
	r := s.check(ctx, Check{ID: "budgets", run: func(ctx context.Context, e *env) error { return e.countActions(ctx, counted) }})
	if r.Verdict != Pass {
		s.report.Incomplete = "the call budgets were not measured: " + r.Reason
		return
	}
	s.report.Budgets = counted
}

// countActions executes each action. For each action, it stores in callCounts the number of calls
// that the CCM makes during the action.
func (e *env) countActions(ctx context.Context, callCounts map[string]int) error {
	var s *v1.Service
	var lb LoadBalancer
	var a, b Machine
	var added func(context.Context) ([]LoadBalancer, error)
	type action struct {
		name string
		do   func(context.Context) error
	}
	actions := []action{
		{"node.join", func(ctx context.Context) (err error) { a, err = e.joinNode(ctx, "a"); return err }},
		{"idle", e.waitToObserve},
	}
	if e.caps.LoadBalancers {
		actions = append(actions, []action{
			{"lb.create", func(ctx context.Context) (err error) {
				if added, err = e.addedLoadBalancers(ctx); err != nil {
					return err
				}
				if s, lb, err = e.createBalanced(ctx, "web"); err != nil {
					return err
				}
				return e.awaitBalancer(ctx, s, lb.ID, "forwards to the Node", func(_ *v1.Service, lb LoadBalancer) error { return forwardsTo(lb, []string{a.Name}, nil) })
			}},
			{"lb.node", func(ctx context.Context) (err error) {
				if b, err = e.joinNode(ctx, "b"); err != nil {
					return err
				}
				return e.awaitBalancer(ctx, s, lb.ID, "forwards to both Nodes", func(_ *v1.Service, lb LoadBalancer) error { return forwardsTo(lb, []string{a.Name, b.Name}, nil) })
			}},
			{"lb.unchanged", func(ctx context.Context) error {
				if err := e.changeService(ctx, s, func(s *v1.Service) { s.Annotations = map[string]string{LabelRun: "changed"} }); err != nil {
					return err
				}
				return e.waitToObserve(ctx)
			}},
			{"lb.delete", func(ctx context.Context) error { return e.leavesNone(ctx, s, added) }},
		}...)
	}
	for _, x := range actions {
		made, err := e.callsDuring(ctx, x.do)
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		callCounts[x.name] = total(made)
	}
	return nil
}

// ReadBaseline reads the call budgets of a report in the JSON format of WriteJSON.
func ReadBaseline(r io.Reader) (map[string]int, error) {
	var report Report
	if err := json.NewDecoder(r).Decode(&report); err != nil {
		return nil, err
	}
	if len(report.Budgets) == 0 {
		return nil, errors.New("the baseline has no call budgets: write it with --write-baseline")
	}
	return report.Budgets, nil
}

// Grown compares the call budgets of the report with a baseline. A call budget is the measured
// number of calls for one action, and not a limit. Grown returns a text for each budget that is
// above its baseline value by more than 20 percent and by more than 2 calls. It also returns a text
// for each budget of the baseline that the report does not contain.
func (r Report) Grown(baseline map[string]int) []string {
	var grown []string
	for _, name := range slices.Sorted(maps.Keys(baseline)) {
		was := baseline[name]
		now, ok := r.Budgets[name]
		switch {
		case !ok:
			grown = append(grown, fmt.Sprintf("%s: the baseline has %d calls, but this run did not count the calls of this action", name, was))
		case now > was+minGrowth && now*100 > was*(100+maxGrowth):
			grown = append(grown, fmt.Sprintf("%s: %d calls, the baseline has %d", name, now, was))
		}
	}
	return grown
}
