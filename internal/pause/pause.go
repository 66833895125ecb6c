// Package pause waits: for a time, and between two tries. It waits for nothing
// but time, and no longer than its context lasts.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d, or less if ctx ends.
func For(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Backoff is the pause between two tries: First, then twice as long each time,
// and never longer than Most. It waits for up to half less, so that a crowd
// does not come back at once. It is not for several goroutines.
type Backoff struct {
	First, Most time.Duration

	next time.Duration
}

// Reset begins with First again.
func (b *Backoff) Reset() { b.next = 0 }

// Fresh reports whether there was no pause since it was made or reset.
func (b *Backoff) Fresh() bool { return b.next == 0 }

// Wait waits until it is time for the next try, or ctx ends.
func (b *Backoff) Wait(ctx context.Context) {
	b.next = min(max(b.First, 2*b.next), b.Most)
	For(ctx, b.next/2+rand.N(b.next/2+1)) //nolint:gosec // it spreads callers, and keeps no secret
}
