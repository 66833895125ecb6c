// Package resident keeps what a long-running process holds in memory small.
//
// allinone links the whole of upstream's controller framework, whose hundreds
// of packages each run some code once, at start. The kernel keeps those pages
// mapped, and counts them as ours, until memory is short. A server gives them
// back when it has settled; what it needs again comes from the page cache, a
// microsecond a page.
package resident

import (
	"context"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// settle is how long a server warms up before it gives memory back.
const settle = time.Second

// A burst leaves garbage that nobody collects while nothing more is allocated,
// and stacks that were needed once. It is given back when it is worth a
// collection and the server is calm; and so seldom that collecting takes a
// hundredth of the time at most.
const (
	lookEvery = 500 * time.Millisecond
	calm      = 256 << 10 // bytes allocated between two looks
	worth     = 8 << 20   // bytes allocated since memory was given back
	share     = 100
)

// Trim gives back what the process needed to start only, and then, until ctx
// ends, what each burst of work leaves: run it beside a server. Where the
// system has no way to do the first, it only frees the heap.
func Trim(ctx context.Context, log *slog.Logger) error {
	t := time.NewTimer(settle)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-t.C:
	}
	before := allocated()
	debug.FreeOSMemory()
	if err := dropProgramPages(); err != nil {
		log.Debug("memory is not given back", "err", err)
	}
	trimBursts(ctx, before)
	return nil
}

// trimBursts counts from what had been allocated when memory was given back: a
// burst may begin before that is over.
func trimBursts(ctx context.Context, trimmed uint64) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	before := trimmed
	var notBefore time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := allocated()
		busy := now-before > calm
		before = now
		if busy || now-trimmed < worth || time.Now().Before(notBefore) {
			continue
		}
		began := time.Now()
		debug.FreeOSMemory()
		notBefore = time.Now().Add(share * time.Since(began))
		trimmed = now
	}
}

// allocated is how many bytes the heap has ever given.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
