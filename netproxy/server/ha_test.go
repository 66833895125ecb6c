package server_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/server"
)

// An agent with several servers connects to each server. If one server stops, the agent stays
// connected to the remaining servers. When the stopped server is back, the agent connects to this
// server again.
func TestSeveralServers(t *testing.T) {
	one := newBench(t, func(c *server.Config) { c.ID = "one" })
	two := newBench(t, func(c *server.Config) { c.ID = "two" })
	one.agent("a", func(c *agent.Config) { c.Servers = []string{one.agents, two.agents} })
	two.await("the agent", func() bool { return two.has("a") })
	if err := one.stop(); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, mustDial(t, dialer{"http-connect", two.dialConnect}, target(t, echo)), "hello")
	restarted := newBench(t, func(c *server.Config) {
		c.ID = "one"
		c.Agents.Close()
		c.Agents = listen(t, "tcp", one.agents)
	})
	restarted.await("the agent to connect again", func() bool { return restarted.has("a") })
}

// If several servers share an address, the agent calls this address until it has a session with
// each server.
func TestServersBehindOneAddress(t *testing.T) {
	one := newBench(t, func(c *server.Config) { c.ID, c.Count = "one", 2 })
	two := newBench(t, func(c *server.Config) { c.ID, c.Count = "two", 2 })
	addrs := make(chan string, 2)
	addrs <- one.agents
	addrs <- two.agents
	one.agent("a", func(c *agent.Config) { c.Servers = []string{balancer(t, addrs)} })
	two.await("the agent", func() bool { return two.has("a") })
}

// If another agent is available, the server does not choose an agent that
// drains. The draining agent waits for the end of its connections.
func TestAgentDrains(t *testing.T) {
	b := newBench(t)
	stop := b.agent("leaving", func(c *agent.Config) { c.DrainTimeout = testTimeout })
	old := mustDial(t, dialer{"http-connect", b.dialConnect}, target(t, echo))
	roundTrip(t, old, "before")
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	b.await("the agent to drain", func() bool { return b.server.Status().Agents[0].Draining })
	b.agent("staying")
	for range 10 {
		roundTrip(t, mustDial(t, dialer{"http-connect", b.dialConnect}, target(t, echo)), "new")
	}
	roundTrip(t, old, "after")
	for _, a := range b.server.Status().Agents {
		if a.ID == "leaving" && a.Connections != 1 {
			t.Errorf("the draining agent has %d connections, want 1", a.Connections)
		}
	}
	old.Close()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A server that drains accepts no new clients. Its open connections continue during the drain
// timeout.
func TestServerDrains(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.DrainTimeout = testTimeout })
	b.agent("one")
	addr := target(t, echo)
	for _, d := range b.dialers() {
		defer func(c io.ReadWriteCloser) { c.Close() }(mustDial(t, d, addr))
	}
	var open []io.ReadWriteCloser
	for _, d := range b.dialers() {
		open = append(open, mustDial(t, d, addr))
	}
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	b.await("the server to drain", func() bool { return b.server.Ready() != nil })
	b.await("no new clients", func() bool {
		c, err := b.dialConnect(addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	for _, c := range open {
		if _, err := io.WriteString(c, "late"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-stopped:
		t.Fatalf("the server stopped with open connections: %v", err)
	default:
	}
}

// If one agent cannot dial a target, the server tries another agent.
func TestDialIsRetried(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.Strategies = []server.Strategy{server.ByDefaultRoute, server.ByDefault} })
	b.agent("deaf", func(c *agent.Config) { c.DialTimeout = time.Nanosecond; c.Identifiers.DefaultRoute = true })
	b.agent("good")
	for _, d := range b.dialers() {
		roundTrip(t, mustDial(t, d, target(t, echo)), "hello")
	}
}

type fixedCounter struct {
	n   int
	err error
}

func (c fixedCounter) Servers(context.Context) (int, error) { return c.n, c.err }

func TestServersAreCounted(t *testing.T) {
	for name, c := range map[string]agent.Counter{"counted": fixedCounter{2, nil}, "max": fixedCounter{2, nil}} {
		one := newBench(t, func(c *server.Config) { c.ID = "one" })
		two := newBench(t, func(c *server.Config) { c.ID = "two" })
		addrs := make(chan string, 2)
		addrs <- one.agents
		addrs <- two.agents
		one.agent("a", func(cfg *agent.Config) {
			cfg.Servers, cfg.Counter = []string{balancer(t, addrs)}, c
			if name == "max" {
				cfg.CountSource = agent.CountMax
			}
		})
		two.await("the agent", func() bool { return two.has("a") })
	}
	b := newBench(t)
	b.agent("b", func(c *agent.Config) { c.Counter = fixedCounter{0, errors.New("no API")} })
}
