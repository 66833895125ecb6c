package server_test

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/cloudsim-dev/allinone/netproxy/server"
)

// A client that asks for an address with invalid UTF-8 gets an error. The connections of other
// clients through the same agent continue.
func TestInvalidAddressKeepsAgent(t *testing.T) {
	b := newBench(t)
	b.agent("one")
	c := mustDial(t, dialer{"http-connect", b.dialConnect}, target(t, echo))
	if _, err := b.dialConnect("\xff:80"); err == nil || !strings.Contains(err.Error(), "400 address must be valid UTF-8") {
		t.Errorf("got %v, want the status 400", err)
	}
	roundTrip(t, c, "still here")
}

// The server refuses an agent with an ID that is not valid UTF-8. If the server accepted this
// agent, the next scrape of the metrics would end the process of the server, because a metric label
// cannot contain this ID.
func TestInvalidAgentIDIsRefused(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := newBench(t, func(c *server.Config) { c.Registry = reg })
	conn, err := net.Dial("tcp", b.agents)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var block bytes.Buffer
	headers := hpack.NewEncoder(&block)
	for _, h := range [][2]string{ // gRPC's client would refuse the value of agentid
		{":method", "POST"}, {":scheme", "http"}, {":path", "/AgentService/Connect"}, {":authority", "server"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"agentid", "evil\xff"},
	} {
		if err := headers.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	refused := func() bool {
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.GetName() == "konnectivity_network_proxy_server_refused_agents_total" {
				return m.GetMetric()[0].GetCounter().GetValue() == 1
			}
		}
		return false
	}
	b.await("the server to refuse the agent", refused)
}
