package agent

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cloudsim-dev/allinone/netproxy/server"
)

// countingContext counts the contexts that depend on it. For each new dependent context, Go's
// package "context" calls AfterFunc. When the dependent context ends, the package calls the
// function that AfterFunc returned.
type countingContext struct {
	context.Context
	never chan struct{}
	count atomic.Int32
}

func (c *countingContext) Done() <-chan struct{} { return c.never }

func (c *countingContext) AfterFunc(func()) (stop func() bool) {
	c.count.Add(1)
	return func() bool { return c.count.Add(-1) >= 0 }
}

// If several servers share an address, the agent can connect to a server with which it already has
// a session. The agent must then release the new session and its context.
func TestDuplicateSessionsLeaveNothing(t *testing.T) {
	listen := func(network, addr string) net.Listener {
		ln, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	sc := server.Default()
	sc.ID, sc.Count, sc.InsecureAgents, sc.DrainTimeout = "one", 2, true, 0 // the second server does not run
	sc.Agents = listen("tcp", "127.0.0.1:0")
	sc.Frontends = []server.Frontend{{Mode: server.GRPC, Listener: listen("unix", filepath.Join(t.TempDir(), "sock"))}}
	ctx, stop := context.WithCancel(t.Context())
	var running, sessions sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx, slog.New(slog.DiscardHandler), sc); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	c := Default()
	c.ID, c.Servers = "agent", []string{sc.Agents.Addr().String()}
	a, err := New(slog.New(slog.DiscardHandler), c)
	if err != nil {
		t.Fatal(err)
	}
	live := &countingContext{Context: context.Background(), never: make(chan struct{})}
	defer sessions.Wait() // the end of the server ends the session
	defer stop()
	a.sync(ctx, live, &sessions)
	before := live.count.Load()
	for range 50 {
		a.sync(ctx, live, &sessions)
	}
	if after := live.count.Load(); a.connected() != 1 || after != before {
		t.Errorf("after 50 duplicate sessions: %d sessions and %d contexts, want 1 session and %d contexts", a.connected(), after, before)
	}
}
