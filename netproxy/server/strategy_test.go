package server_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/server"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// For each case, the test starts two agents with the IDs "right" and "wrong". The strategies prefer
// the agent "right", so no connection may use the agent "wrong".
func TestStrategies(t *testing.T) {
	addr := target(t, echo)
	_, port, _ := net.SplitHostPort(addr)
	for _, tc := range []struct {
		strategies, right, wrong string
		zones                    [2]string
	}{
		{strategies: "destHost", right: "ipv4=127.0.0.1", wrong: "ipv4=127.0.0.2"},
		{strategies: "destHost,default", right: "host=127.0.0.1", wrong: ""},
		{strategies: "destCIDR", right: "cidr=127.0.0.0/24", wrong: "cidr=127.0.0.0/8"},
		{strategies: "defaultRoute", right: "default-route=true", wrong: "default-route=false"},
		{strategies: "zone,default", zones: [2]string{"a", "b"}},
	} {
		t.Run(tc.strategies, func(t *testing.T) {
			b := newBench(t, func(c *server.Config) {
				var err error
				if c.Strategies, err = server.ParseStrategies(tc.strategies); err != nil {
					t.Fatal(err)
				}
				c.Zone = "a"
			})
			for i, text := range []string{tc.right, tc.wrong} {
				id, err := wire.ParseIdentifiers(text)
				if err != nil {
					t.Fatal(err)
				}
				b.agent([]string{"right", "wrong"}[i], func(c *agent.Config) { c.Identifiers, c.Zone = id, tc.zones[i] })
			}
			for range 10 {
				mustDial(t, dialer{"http-connect", b.dialConnect}, net.JoinHostPort("127.0.0.1", port))
			}
			for _, a := range b.server.Status().Agents {
				if a.ID == "wrong" && a.Connections > 0 {
					t.Errorf("got %d of 10 connections through the wrong agent, want 0", a.Connections)
				}
			}
		})
	}
}

// TestStrategyOfAnIPv6Address proves that the strategy destHost finds the agent of an IPv6 address,
// for each notation of this address.
func TestStrategyOfAnIPv6Address(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	t.Cleanup(func() { ln.Close() })
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	b := newBench(t, func(c *server.Config) { c.Strategies = []server.Strategy{server.ByHost} })
	id, err := wire.ParseIdentifiers("ipv6=::1")
	if err != nil {
		t.Fatal(err)
	}
	b.agent("one", func(c *agent.Config) { c.Identifiers = id })
	for _, host := range []string{"::1", "0:0:0:0:0:0:0:1"} {
		mustDial(t, dialer{"http-connect", b.dialConnect}, net.JoinHostPort(host, port))
	}
}

func TestLeastLoaded(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.Strategies = []server.Strategy{server.ByLoad} })
	b.agent("one")
	b.agent("two")
	addr := target(t, echo)
	for range 10 {
		mustDial(t, dialer{"http-connect", b.dialConnect}, addr)
	}
	for _, a := range b.server.Status().Agents {
		if a.Connections != 5 {
			t.Errorf("agent %s: got %d of 10 connections, want 5", a.ID, a.Connections)
		}
	}
}

// TestZoneStrategyNeedsZone proves that a server with the strategy zone needs a zone. Without a
// zone, the strategy would select no agent.
func TestZoneStrategyNeedsZone(t *testing.T) {
	cfg := server.Default()
	cfg.Strategies = []server.Strategy{server.ByZone, server.ByDefault}
	const want = "--zone is required for the strategy zone"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("configuration without a zone: got error %v, want %q", err, want)
	}
	cfg.Zone = "a"
	if err := cfg.Validate(); err == nil || strings.Contains(err.Error(), want) {
		t.Errorf("configuration with a zone: got error %v, want other errors than %q", err, want)
	}
}

// TestStrategyTwice proves that the server ignores a repeated strategy. Otherwise two metrics would
// have the same labels, and each scrape would fail.
func TestStrategyTwice(t *testing.T) {
	all, err := server.ParseStrategies("default,zone,default")
	if want := []server.Strategy{server.ByDefault, server.ByZone}; err != nil || !slices.Equal(all, want) {
		t.Errorf("got %v, error %v; want %v", all, err, want)
	}
}
