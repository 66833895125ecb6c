package ccm

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

var errStopping = errors.New("the cloud controller manager is stopping")

// gate passes calls to the cloud until it is closed. Upstream's controllers run
// until the process exits. A closed gate prevents further changes by them, so
// that another process may lead.
type gate struct {
	next http.RoundTripper

	mu     sync.Mutex
	closed bool
	within sync.WaitGroup
}

// RoundTrip passes the call on. It returns an error if the gate is closed.
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

// shut closes the gate. It then waits until all running calls are answered, or
// until ctx ends.
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
