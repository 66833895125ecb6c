package ccm

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

var errStopping = errors.New("the cloud controller manager is stopping")

// gate lets calls to the cloud through until it is closed. Upstream's controllers
// have no end but the process's: behind a closed gate they change nothing any
// more, so another process may lead.
type gate struct {
	next http.RoundTripper

	mu     sync.Mutex
	closed bool
	within sync.WaitGroup
}

// RoundTrip is the call; it is refused when the gate is closed.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, errStopping
	}
	g.within.Add(1)
	g.mu.Unlock()
	defer g.within.Done()
	return g.next.RoundTrip(r)
}

// shut lets no more calls through, and waits until those within are answered,
// or ctx ends.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	empty := make(chan struct{})
	go func() { defer close(empty); g.within.Wait() }()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
