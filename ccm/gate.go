package ccm

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

var errStopping = errors.New("the cloud controller manager is stopping")

// gate is an HTTP transport for calls to the cloud. When the gate is closed, it
// refuses new calls. Upstream's controllers run until the process exits. The
// closed gate ensures that these controllers change nothing after another
// process begins to lead.
type gate struct {
	next http.RoundTripper

	mu     sync.Mutex
	closed bool
	within sync.WaitGroup
}

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

// shut closes the gate. It then waits until all running calls have ended. It
// returns an error if ctx ends first.
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
