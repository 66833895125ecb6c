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

// An agent that is given several servers is with all of them, and stays with
// the others when one goes; when it is back, so is the agent.
func TestSeveralServers(t *testing.T) {
	one := newBench(t, func(c *server.Config) { c.ID = "one" })
	two := newBench(t, func(c *server.Config) { c.ID = "two" })
	one.agent("a", func(c *agent.Config) { c.Servers = []string{one.agents, two.agents} })
	two.await("the agent", func() bool { return two.has("a") })
	if err := one.stop(); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, mustDial(t, dialer{"http-connect", two.dialConnect}, target(t, echo)), "hello")
	again := newBench(t, func(c *server.Config) {
		c.ID = "one"
		c.Agents.Close()
		c.Agents = listen(t, "tcp", one.agents)
	})
	again.await("the agent to come back", func() bool { return again.has("a") })
}

// Behind one address, an agent calls until it has met as many servers as there
// are.
func TestServersBehindOneAddress(t *testing.T) {
	one := newBench(t, func(c *server.Config) { c.ID, c.Count = "one", 2 })
	two := newBench(t, func(c *server.Config) { c.ID, c.Count = "two", 2 })
	turn := make(chan string, 2)
	turn <- one.agents
	turn <- two.agents
	one.agent("a", func(c *agent.Config) { c.Servers = []string{balancer(t, turn)} })
	two.await("the agent", func() bool { return two.has("a") })
}

// An agent that is told to stop is not chosen any more, and waits for what it
// carries.
func TestAgentDrains(t *testing.T) {
	b := newBench(t)
	stop := b.agent("leaving", func(c *agent.Config) { c.DrainTimeout = patience })
	old := mustDial(t, dialer{"http-connect", b.dialConnect}, target(t, echo))
	roundTrip(t, old, "before")
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	b.await("the agent to say so", func() bool { return b.server.Status().Agents[0].Draining })
	b.agent("staying")
	for range 10 {
		roundTrip(t, mustDial(t, dialer{"http-connect", b.dialConnect}, target(t, echo)), "new")
	}
	roundTrip(t, old, "after")
	for _, a := range b.server.Status().Agents {
		if a.ID == "leaving" && a.Connections != 1 {
			t.Errorf("the agent that leaves has %d connections, want its old one", a.Connections)
		}
	}
	old.Close()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A server that is told to stop takes no new clients and loses no connection
// that ends in time.
func TestServerDrains(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.DrainTimeout = patience })
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
	b.await("the server to say so", func() bool { return b.server.Ready() != nil })
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
		t.Fatalf("stopped with connections open: %v", err)
	default:
	}
}

// A dial that one agent cannot make is made by another.
func TestDialIsRetried(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.Strategies = []server.Strategy{server.ByDefaultRoute, server.ByDefault} })
	b.agent("deaf", func(c *agent.Config) { c.DialTimeout = time.Nanosecond; c.Identifiers.DefaultRoute = true })
	b.agent("good")
	for _, d := range b.dialers() {
		roundTrip(t, mustDial(t, d, target(t, echo)), "hello")
	}
}

// A counter's word is taken before the servers'.
type counted struct {
	n   int
	err error
}

func (c counted) Servers(context.Context) (int, error) { return c.n, c.err }

func TestServersAreCounted(t *testing.T) {
	for name, c := range map[string]agent.Counter{"counted": counted{2, nil}, "max": counted{2, nil}} {
		one := newBench(t, func(c *server.Config) { c.ID = "one" })
		two := newBench(t, func(c *server.Config) { c.ID = "two" })
		turn := make(chan string, 2)
		turn <- one.agents
		turn <- two.agents
		one.agent("a", func(cfg *agent.Config) {
			cfg.Servers, cfg.Counter = []string{balancer(t, turn)}, c
			if name == "max" {
				cfg.CountSource = agent.CountMax
			}
		})
		two.await("the agent", func() bool { return two.has("a") })
	}
	b := newBench(t)
	b.agent("b", func(c *agent.Config) { c.Counter = counted{0, errors.New("no API")} })
}
