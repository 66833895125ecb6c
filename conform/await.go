package conform

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// These errors state why an observed object does not fulfill a condition.
var (
	errUnseen  = errors.New("the watch has not reported the object yet")
	errDeleted = errors.New("the object does not exist")
	errExists  = errors.New("the object still exists")
)

// isPresent returns a condition for awaitState and staysInState. If the object does not exist, the
// condition returns errDeleted. Otherwise it returns the result of checkFn.
func isPresent[T any](checkFn func(*T) error) func(*T) error {
	return func(o *T) error {
		if o == nil {
			return errDeleted
		}
		return checkFn(o)
	}
}

func isAbsent[T any](o *T) error {
	if o != nil {
		return errExists
	}
	return nil
}

// nodeBecomes waits until the Node exists and fulfills the condition.
func (e *env) nodeBecomes(ctx context.Context, name, state string, condition func(*v1.Node) error) error {
	return awaitState(ctx, e, nodeKey(name), state, isPresent(condition))
}

// nodeStays waits for the observation time. It returns an error as soon as the Node does not
// fulfill the condition or does not exist.
func (e *env) nodeStays(ctx context.Context, name, state string, condition func(*v1.Node) error) error {
	return staysInState(ctx, e, nodeKey(name), state, isPresent(condition))
}

func (e *env) nodeDisappears(ctx context.Context, name string) error {
	return awaitState(ctx, e, nodeKey(name), "deleted", isAbsent[v1.Node])
}

func (e *env) serviceBecomes(ctx context.Context, s *v1.Service, state string, condition func(*v1.Service) error) error {
	return awaitState(ctx, e, serviceKey(s), state, isPresent(condition))
}

func (e *env) serviceStays(ctx context.Context, s *v1.Service, state string, condition func(*v1.Service) error) error {
	return staysInState(ctx, e, serviceKey(s), state, isPresent(condition))
}

func (e *env) serviceDisappears(ctx context.Context, s *v1.Service) error {
	return awaitState(ctx, e, serviceKey(s), "deleted", isAbsent[v1.Service])
}

func (e *env) lastService(s *v1.Service) (*v1.Service, error) {
	all, _ := e.seen.versionsOf(serviceKey(s))
	if now := lastVersion[v1.Service](all); now != nil {
		return now, nil
	}
	return nil, errDeleted
}

// awaitState waits until an object fulfills the condition. If the object is deleted, awaitState
// calls condition with nil.
func awaitState[T any](ctx context.Context, e *env, key, state string, condition func(*T) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for {
		all, changed := e.seen.versionsOf(key)
		err := errUnseen
		if len(all) > 0 {
			err = condition(lastVersion[T](all))
		}
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s is not %s after %s: %w", key, state, e.timeout, err)
		}
	}
}

// staysInState waits for the observation time. It returns an error as soon as the object does not
// fulfill the condition. It also returns an error if the watch does not report the object during
// this time.
func staysInState[T any](ctx context.Context, e *env, key, state string, condition func(*T) error) error {
	end := time.NewTimer(e.observe)
	defer end.Stop()
	over := false
	all, changed := e.seen.versionsOf(key)
	for checked := max(len(all)-1, 0); ; all, changed = e.seen.versionsOf(key) { // several versions can arrive between two checks
		for ; checked < len(all); checked++ {
			if err := condition(lastVersion[T](all[:checked+1])); err != nil {
				return fmt.Errorf("%s does not stay %s: %w", key, state, err)
			}
		}
		switch {
		case over && len(all) == 0:
			return fmt.Errorf("cannot check that %s stays %s: %w", key, state, errUnseen)
		case over:
			return nil
		}
		select {
		case <-changed:
		case <-end.C:
			over = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retryUntilOK calls fn repeatedly until fn returns nil. After the time e.timeout, it returns an
// error that wraps the last error of fn.
func (e *env) retryUntilOK(ctx context.Context, condition string, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for {
		err := fn(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: timeout after %s: %w", condition, e.timeout, err)
		}
	}
}

// checkAlways calls fn repeatedly during the observation time. It returns the first error of fn.
func (e *env) checkAlways(ctx context.Context, condition string, fn func(context.Context) error) error {
	end := time.NewTimer(e.observe)
	defer end.Stop()
	for {
		if err := fn(ctx); err != nil {
			return fmt.Errorf("expected that %s: %w", condition, err)
		}
		select {
		case <-time.After(poll):
		case <-end.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
