// Package backoff waits for a fixed time, or waits between attempts with a growing delay. Every
// wait ends early when its context ends.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for the duration d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Backoff waits between attempts. The field First is the first delay. Each next
// delay is twice the previous delay, but never longer than the field Most. Wait
// shortens each delay at random, by up to half, so that many callers do not all
// try again at the same moment. A Backoff is not safe for concurrent use.
type Backoff struct {
	First, Most time.Duration

	next time.Duration
}

// Reset sets the next delay to the field First.
func (b *Backoff) Reset() { b.next = 0 }

// Fresh reports whether the next call of Wait is the first call since the
// creation of b or since the last Reset.
func (b *Backoff) Fresh() bool { return b.next == 0 }

// Wait waits for the next delay, or until ctx ends.
func (b *Backoff) Wait(ctx context.Context) {
	b.next = min(max(b.First, 2*b.next), b.Most)
	Sleep(ctx, b.next/2+rand.N(b.next/2+1)) //nolint:gosec // only spreads callers, so it needs no secure random numbers
}
