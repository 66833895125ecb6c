package csidriver

import (
	"context"

	"golang.org/x/sync/singleflight"
)

// lookFor runs checkFn and waits for its result until ctx ends. Go cannot
// cancel a system call to a hung filesystem, so the goroutine of checkFn does
// not end before the system call returns. A later call of lookFor with the same
// key waits for this goroutine. Each key therefore has at most one hung
// goroutine.
func lookFor[T any](ctx context.Context, looks *singleflight.Group, key string, checkFn func() (T, error)) (seen T, err error) {
	begun := looks.DoChan(key, func() (any, error) { return checkFn() })
	select {
	case <-ctx.Done():
		return seen, ctx.Err()
	case r := <-begun:
		seen, _ = r.Val.(T)
		return seen, r.Err
	}
}
