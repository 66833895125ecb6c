package server_test

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/server"
)

// In this test, a target keeps its socket open, but does not read. When the client disconnects, the
// server and the agent release the connection.
func TestStalledTargetLosesItsClient(t *testing.T) {
	for _, frontend := range []string{"grpc", "http-connect"} {
		for _, w := range wires {
			if !w.streams {
				continue // in upstream's protocol, the agent cuts the connection of a target that does not read
			}
			for _, floods := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/floods=%t", frontend, w.name, floods), func(t *testing.T) {
					b := w.bench(t)
					b.agent("one", func(c *agent.Config) { c.StallProbe = 100 * time.Millisecond })
					leave, read := stallUpload(t, b, frontend, floods)
					defer read()
					testRelease(t, b, leave)
				})
			}
		}
	}
}

// A client closes its connection to a target that does not read. The server has read all data of
// the client, but cannot send all data to the agent. The server and the agent release the
// connection.
func TestStalledTargetAfterClose(t *testing.T) {
	var wrote atomic.Int64
	b := newBench(t, func(c *server.Config) { c.Agents = countingListener{c.Agents, &wrote} })
	b.agent("one", func(c *agent.Config) { c.StallProbe = 100 * time.Millisecond })
	stop := make(chan struct{})
	defer close(stop)
	s, leave := rawStream(t, "unix://"+b.grpc, "/ProxyService/Proxy")
	if err := s.SendMsg(dialReq(7, target(t, func(*net.TCPConn) { <-stop }))); err != nil {
		t.Fatal(err)
	}
	id := recvPacket(t, s).GetDialResponse().GetConnectID()
	const piece = 8 << 10
	for stalled := false; !stalled; {
		before := wrote.Load()
		if err := s.SendMsg(data(id, strings.Repeat("x", piece))); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(300 * time.Millisecond); wrote.Load() < before+piece && !stalled; time.Sleep(50 * time.Microsecond) {
			stalled = time.Now().After(deadline)
		}
	}
	testRelease(t, b, func() {
		err := s.SendMsg(&client.Packet{Type: client.PacketType_CLOSE_REQ, Payload: &client.Packet_CloseRequest{CloseRequest: &client.CloseRequest{ConnectID: id}}})
		if err != nil {
			t.Fatal(err)
		}
		if p := recvPacket(t, s); p.Type != client.PacketType_CLOSE_RSP {
			t.Errorf("got %v, want CLOSE_RSP", p)
		}
		leave()
	})
}

// countingListener counts the bytes that the server writes to the accepted connections.
type countingListener struct {
	net.Listener
	wrote *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countingConn{c, l.wrote}, err
}

type countingConn struct {
	net.Conn
	wrote *atomic.Int64
}

func (c countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wrote.Add(int64(n))
	return n, err
}

// testRelease calls the function leave, which disconnects the only client of b. Then the server and
// the agent must release the goroutines and sockets of the client's connection. For example, the
// agent must close its socket to the target.
func testRelease(t *testing.T, b *bench, leave func()) {
	t.Helper()
	if tunnelGoroutines() == 0 {
		t.Fatal("found no goroutine of the connection before the client disconnected")
	}
	files, began := openFiles(t), time.Now()
	leave()
	b.await("the connection to end", func() bool {
		return len(b.server.Status().Connections) == 0 && agentLoad(b) == 0 && tunnelGoroutines() == 0 && openFiles(t) < files
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the release took %s, want at most 5s", took)
	}
}

// tunnelGoroutines returns the number of goroutines that the server or the agent uses for
// connections to targets.
func tunnelGoroutines() int {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for g := range strings.SplitSeq(string(stacks), "\n\n") {
		for _, f := range []string{"agent.(*tunnel).", "server.(*Server).open(", "server.(*Server).serveConnect(", "server.(*Server).proxy("} {
			if strings.Contains(g, f) {
				n++
				break
			}
		}
	}
	return n
}
