package csidriver

import (
	"context"

	"golang.org/x/sync/singleflight"
)

// lookFor takes a look until ctx ends. Nobody can break off a call to a filesystem
// that hangs: it is left behind, and who asks again under the same key waits for
// the same one, so that no more than one hangs for a key.
func lookFor[T any](ctx context.Context, looks *singleflight.Group, key string, look func() (T, error)) (seen T, err error) {
	begun := looks.DoChan(key, func() (any, error) { return look() })
	select {
	case <-ctx.Done():
		return seen, ctx.Err()
	case r := <-begun:
		seen, _ = r.Val.(T)
		return seen, r.Err
	}
}
