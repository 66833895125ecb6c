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
	"time"
)

// settle is how long a server warms up before it gives memory back.
const settle = time.Second

// Trim gives back, once, what the process needed to start only, and then waits
// for ctx to end: run it beside a server. Where the system has no way to do
// it, it only frees the heap.
func Trim(ctx context.Context, log *slog.Logger) error {
	t := time.NewTimer(settle)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-t.C:
	}
	debug.FreeOSMemory()
	if err := dropProgramPages(); err != nil {
		log.Debug("memory is not given back", "err", err)
	}
	<-ctx.Done()
	return nil
}
