package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/server"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// rawStream opens a gRPC stream on which a test can send any packet.
func rawStream(t testing.TB, addr, method string, md ...string) (grpc.ClientStream, context.CancelFunc) {
	t.Helper()
	return rawStreamBy(t, insecure.NewCredentials(), addr, method, md...)
}

// rawAgent opens an agent's Connect stream, over TLS if conf is not nil.
func (b *bench) rawAgent(conf func() (*tls.Config, error), md ...string) grpc.ClientStream {
	b.Helper()
	creds := insecure.NewCredentials()
	if conf != nil {
		c, err := conf()
		if err != nil {
			b.Fatal(err)
		}
		creds = credentials.NewTLS(c)
	}
	s, _ := rawStreamBy(b, creds, b.agents, wire.MethodConnect, md...)
	return s
}

func rawStreamBy(t testing.TB, creds credentials.TransportCredentials, addr, method string, md ...string) (grpc.ClientStream, context.CancelFunc) {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), md...), testTimeout)
	t.Cleanup(func() { cancel(); cc.Close() })
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	return s, cancel
}

func recvPacket(t testing.TB, s grpc.ClientStream) *client.Packet {
	t.Helper()
	var p client.Packet
	if err := s.RecvMsg(&p); err != nil {
		t.Fatal(err)
	}
	return &p
}

func dialReq(random int64, addr string) *client.Packet {
	return &client.Packet{Type: client.PacketType_DIAL_REQ, Payload: &client.Packet_DialRequest{
		DialRequest: &client.DialRequest{Protocol: "tcp", Address: addr, Random: random}}}
}

func data(id int64, text string) *client.Packet {
	return &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: id, Data: []byte(text)}}}
}

// The answer to the dial arrives before the target's first data.
func TestAnswerComesFirst(t *testing.T) {
	addr := target(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "220 ready\r\n") })
	for _, w := range wires {
		b := w.bench(t)
		b.agent("one", func(c *agent.Config) { c.Streams = w.streams })
		for range 20 {
			s, done := rawStream(t, "unix://"+b.grpc, "/ProxyService/Proxy")
			if err := s.SendMsg(dialReq(7, addr)); err != nil {
				t.Fatal(err)
			}
			first, second := recvPacket(t, s), recvPacket(t, s)
			if r := first.GetDialResponse(); r.GetRandom() != 7 || r.GetError() != "" || r.GetConnectID() == 0 {
				t.Fatalf("%s: got the first packet %v, want the answer to dial 7", w.name, first)
			}
			if string(second.GetData().GetData()) != "220 ready\r\n" {
				t.Fatalf("%s: got the second packet %v, want data", w.name, second)
			}
			done()
		}
	}
}

// The server answers or ignores invalid packets of a client, and still serves other clients.
func TestHostileClient(t *testing.T) {
	b := newBench(t)
	b.agent("one")
	addr := target(t, echo)
	good := mustDial(t, dialer{"http-connect", b.dialConnect}, addr)
	s, _ := rawStream(t, "unix://"+b.grpc, "/ProxyService/Proxy")
	for _, p := range []*client.Packet{
		{Type: 99}, {Type: client.PacketType_DATA}, data(0, "x"), data(1<<40, "x"), {Type: client.PacketType_DIAL_RSP}, {Type: client.PacketType_DRAIN},
	} {
		if err := s.SendMsg(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SendMsg(&client.Packet{Type: client.PacketType_CLOSE_REQ, Payload: &client.Packet_CloseRequest{CloseRequest: &client.CloseRequest{ConnectID: 5}}}); err != nil {
		t.Fatal(err)
	}
	if p := recvPacket(t, s); p.GetCloseResponse().GetError() == "" || p.GetCloseResponse().GetConnectID() != 5 {
		t.Errorf("close of an unknown connection: got %v", p)
	}
	if err := s.SendMsg(dialReq(1, addr)); err != nil {
		t.Fatal(err)
	}
	id := recvPacket(t, s).GetDialResponse().GetConnectID()
	for _, p := range []*client.Packet{{Type: 99}, data(0, "zero"), data(id+1, "foreign"), dialReq(2, addr), data(id, "mine")} {
		if err := s.SendMsg(p); err != nil {
			t.Fatal(err)
		}
	}
	if p := recvPacket(t, s); p.GetDialResponse().GetRandom() != 2 || p.GetDialResponse().GetError() == "" {
		t.Errorf("second dial on a stream: got %v, want an error", p)
	}
	if p := recvPacket(t, s); string(p.GetData().GetData()) != "mine" {
		t.Errorf("got %v, want the data mine", p)
	}
	roundTrip(t, good, "still here")
}

// If a dial cannot succeed, the server refuses the dial at once. The answer
// contains the reason.
func TestRefusals(t *testing.T) {
	b := newBench(t)
	for _, d := range b.dialers() {
		if _, err := d.dial("127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "no network proxy agent is connected") {
			t.Errorf(`%s without an agent: got error %v, want "no network proxy agent is connected"`, d.name, err)
		}
	}
	b.agent("one")
	for addr, want := range map[string]string{
		"127.0.0.1:1": "refused", "nowhere": "host:port", "127.0.0.1:0": "no valid port", ":80": "host:port",
	} {
		for _, d := range b.dialers() {
			if _, err := d.dial(addr); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s to %q: got %v, want %q", d.name, addr, err, want)
			}
		}
	}
}

// The server answers an invalid request with a status and the reason.
func TestBadRequests(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.HeaderTimeout = 300 * time.Millisecond })
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                                      "HTTP/1.1 405 ",
		"nonsense\r\n\r\n":                                                       "HTTP/1.1 400 ",
		"CONNECT a:1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n":           "HTTP/1.1 400 ",
		"CONNECT a HTTP/1.1\r\nHost: x\r\n\r\n":                                  "HTTP/1.1 400 ",
		"CONNECT a:1 HTTP/1.1\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n": "HTTP/1.1 431 ",
		"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n":                                    "", // the request never ends, so the server closes the connection
		"":                                                                       "",
	} {
		conn, err := net.Dial("unix", b.connect)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		_, _ = io.WriteString(conn, request) // the server may close the connection before the end of the request
		got, err := io.ReadAll(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(string(got), want) || want == "" && len(got) > 0 {
			t.Errorf("%.40q: got %.60q, %v; want %q", request, got, err, want)
		}
		conn.Close()
	}
}

// With the extension that package wire describes, the agent uses one gRPC stream for each
// connection. So a blocked connection does not slow down other connections.
func TestStalledReaderDoesNotSlowOthers(t *testing.T) {
	b := newBench(t)
	b.agent("one")
	flooding := target(t, flood)
	for _, d := range b.dialers() {
		stalled := mustDial(t, d, flooding)
		startFlood(t, stalled)
		b.await("the stalled connection to stop", func() bool {
			return isStalled(b, 1<<20)
		})
		for range 20 {
			c := mustDial(t, d, target(t, echo))
			roundTrip(t, c, strings.Repeat("x", 1<<20))
			c.Close()
		}
		stalled.Close()
		b.await("the stalled connection to end", func() bool { return len(b.server.Status().Connections) == 0 })
	}
}

// If a target reads no data, the agent checks whether the client is still connected. For this
// check, the agent sends an empty chunk to the server. TestStalledTargetKeepsItsClient proves that
// the check does not end the client's connection. The server must not forward the empty chunk,
// because the client's library takes an empty packet as the end of the data.
func TestStalledTargetKeepsItsClient(t *testing.T) {
	b := newBench(t)
	b.agent("one", func(c *agent.Config) { c.StallProbe = 100 * time.Millisecond })
	for _, d := range b.dialers() {
		stop := make(chan struct{})
		c := mustDial(t, d, target(t, func(*net.TCPConn) { <-stop }))
		go func() {
			for {
				if _, err := c.Write(make([]byte, 64<<10)); err != nil {
					return // the test has ended
				}
			}
		}()
		got := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 1))
			got <- err
		}()
		select {
		case err := <-got:
			t.Errorf("%s: Read returned %v, but the target has sent nothing", d.name, err)
		case <-time.After(time.Second): // ten checks
		}
		close(stop) // before c.Close, because Close of the client's library waits for the blocked Write
		c.Close()
	}
}

// isStalled reports whether the target's data has stalled on the only connection of the server. The
// target sends n bytes. isStalled returns true if more than n/16 bytes have arrived from the
// target, and no more bytes arrive during the next 50 ms.
func isStalled(b *bench, n int64) bool {
	before := b.server.Status().Connections
	time.Sleep(50 * time.Millisecond)
	after := b.server.Status().Connections
	return len(before) == 1 && len(after) == 1 && before[0].FromTarget == after[0].FromTarget && after[0].FromTarget > n/16
}

// In upstream's protocol, a client that does not read blocks the other connections of the agent. So
// the server cuts the client's connection. The other connections continue.
func TestStalledReaderIsCutInUpstreamProtocol(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.StallGrace = 200 * time.Millisecond })
	b.agent("one", func(c *agent.Config) { c.Streams = false })
	flooding := target(t, flood)
	d := dialer{"http-connect", b.dialConnect}
	good := mustDial(t, d, target(t, echo))
	startFlood(t, mustDial(t, d, flooding)) // the test never reads this connection
	b.await("the stalled connection to be cut", func() bool { return len(b.server.Status().Connections) <= 2 && agentLoad(b) == 1 })
	roundTrip(t, good, strings.Repeat("still here", 1000))
}

func agentLoad(b *bench) int64 {
	n := int64(0)
	for _, a := range b.server.Status().Agents {
		n += a.Connections
	}
	return n
}

// If an agent disconnects, its connections end. New connections use another agent.
func TestAgentVanishes(t *testing.T) {
	everyWay(t, func(t *testing.T, d dialer, _ bool) {
		b := newBench(t)
		stop := b.agent("first")
		ways := map[string]dialer{"grpc": {d.name, b.dialGRPC}, "http-connect": {d.name, b.dialConnect}}
		c := mustDial(t, ways[d.name], target(t, echo))
		roundTrip(t, c, "hello")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection did not end: %v", err)
		}
		b.await("the agent and its connection to disappear", func() bool { return len(b.server.Status().Agents) == 0 && len(b.server.Status().Connections) == 0 })
		b.agent("second")
		roundTrip(t, mustDial(t, ways[d.name], target(t, echo)), "again")
	})
}

// If the agent does not answer a dial, the dial ends after the dial timeout.
func TestDialTimeout(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.DialTimeout = 300 * time.Millisecond })
	// This agent never answers.
	s, _ := rawStream(t, b.agents, "/AgentService/Connect", "agentid", "mute")
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	for _, d := range b.dialers() {
		began := time.Now()
		_, err := d.dial("192.0.2.1:80")
		if err == nil || !strings.Contains(err.Error(), "mute did not connect to 192.0.2.1:80 within 300ms") {
			t.Errorf("%s: got %v, want an error of the agent mute", d.name, err)
		}
		if took := time.Since(began); took > testTimeout/2 {
			t.Errorf("%s: the dial took %s, want about 300ms", d.name, took)
		}
	}
	if agentLoad(b) != 0 {
		t.Errorf("got %d dials after the timeout, want 0", agentLoad(b))
	}
}

func TestDialEndsWithItsClient(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.DialTimeout = testTimeout })
	s, _ := rawStream(t, b.agents, "/AgentService/Connect", "agentid", "mute")
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", b.connect)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "CONNECT 192.0.2.1:80 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	caller, leave := rawStream(t, "unix://"+b.grpc, "/ProxyService/Proxy")
	if err := caller.SendMsg(dialReq(1, "192.0.2.1:80")); err != nil {
		t.Fatal(err)
	}
	b.await("both dials", func() bool { return agentLoad(b) == 2 })
	conn.Close()
	leave()
	b.await("both dials to end", func() bool { return agentLoad(b) == 0 })
}

// If an agent sends invalid packets, other agents and clients can still use the server.
func TestHostileAgent(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.Strategies = []server.Strategy{server.ByHost} })
	s, _ := rawStream(t, b.agents, "/AgentService/Connect", "agentid", "evil", "agentidentifiers", "host=evil")
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	b.agent("good", func(c *agent.Config) { c.Identifiers.Host = []string{"127.0.0.1"} })
	for _, p := range []*client.Packet{
		{Type: 99}, {Type: client.PacketType_DATA}, data(5, "x"), {Type: client.PacketType_CLOSE_RSP}, {Type: client.PacketType_DIAL_REQ},
		{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{DialResponse: &client.DialResponse{Random: 42, ConnectID: 9}}},
	} {
		if err := s.SendMsg(p); err != nil {
			t.Fatal(err)
		}
	}
	if p := recvPacket(t, s); p.GetCloseRequest().GetConnectID() != 9 {
		t.Errorf("answer to an unknown dial: got %v, want CLOSE_REQ for connection 9", p)
	}
	for _, tc := range []struct {
		answer *client.DialResponse
		want   string
	}{
		{&client.DialResponse{}, "contains no connection"},
		{&client.DialResponse{ConnectID: 1}, ""},
		{&client.DialResponse{ConnectID: 1}, "one id for two connections"},
		{&client.DialResponse{Error: "evil\r\nHTTP/1.1 200 OK"}, "502 agent evil: evil  HTTP/1.1 200 OK"},
	} {
		result := make(chan error, 1)
		go func() {
			c, err := b.dialConnect("evil:1")
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
			result <- err
		}()
		tc.answer.Random = recvPacket(t, s).GetDialRequest().GetRandom()
		if err := s.SendMsg(&client.Packet{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{DialResponse: tc.answer}}); err != nil {
			t.Fatal(err)
		}
		if err := <-result; (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: got %v, want %q", tc.answer, err, tc.want)
		}
	}
	roundTrip(t, mustDial(t, dialer{"http-connect", b.dialConnect}, target(t, echo)), "unharmed")
}

func TestAgentsAreChecked(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.Authenticator = onlyToken("secret") })
	for name, md := range map[string][]string{
		"no id":                  {"authorization", "Bearer secret"},
		"two ids":                {"agentid", "a", "agentid", "b", "authorization", "Bearer secret"},
		"bad identifiers":        {"agentid", "a", "agentidentifiers", "color=red", "authorization", "Bearer secret"},
		"invalid CIDR":           {"agentid", "a", "agentidentifiers", "cidr=10.0.0.0", "authorization", "Bearer secret"},
		"no token":               {"agentid", "a"},
		"token of another agent": {"agentid", "a", "authorization", "Bearer other"},
	} {
		s, _ := rawStream(t, b.agents, "/AgentService/Connect", md...)
		if err := s.RecvMsg(&client.Packet{}); err == nil {
			t.Errorf("%s: the server accepted the agent", name)
		}
	}
	s, _ := rawStream(t, b.agents, "/cloudsim.netproxy.v1.Tunnel/Open", "x-tunnel-session", "guess", "x-tunnel-dial", "1")
	if err := s.RecvMsg(&client.Packet{}); err == nil {
		t.Error("the server accepted a tunnel without a session")
	}
	file := t.TempDir() + "/token"
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.agent("good", func(c *agent.Config) { c.TokenFile = file })
}

type onlyToken string

func (o onlyToken) Authenticate(_ context.Context, token string) (wire.Identifiers, error) {
	if token != string(o) {
		return wire.Identifiers{}, server.ErrDenied
	}
	return wire.Identifiers{}, nil
}

// The server ends the session of a connected agent when the agent's token is no longer valid. An
// agent that renews its token stays connected.
func TestTokensAreReviewed(t *testing.T) {
	good := &rotating{}
	good.set("first")
	b := newBench(t, func(c *server.Config) { c.Authenticator, c.ReviewInterval = good, 20*time.Millisecond })
	file := t.TempDir() + "/token"
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	b.agent("one", func(c *agent.Config) { c.TokenFile, c.RenewInterval = file, 20*time.Millisecond })
	c := mustDial(t, dialer{"http-connect", b.dialConnect}, target(t, echo))
	good.set("first", "second")
	write("second")
	b.await("the token to be renewed", func() bool { return good.saw("second") })
	good.set("second")
	seen := good.count()
	b.await("some more reviews", func() bool { return good.count() > seen+5 })
	roundTrip(t, c, "still here")
	good.set("third")
	b.await("the end of the agent's session", func() bool { return !b.has("one") })
}

type rotating struct {
	mu    sync.Mutex
	good  []string
	seen  map[string]bool
	calls int
}

func (r *rotating) set(tokens ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.good, r.seen = tokens, map[string]bool{}
}

func (r *rotating) saw(token string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[token]
}

func (r *rotating) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

func (r *rotating) Authenticate(_ context.Context, token string) (wire.Identifiers, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.seen[token] = true
	for _, g := range r.good {
		if g == token {
			return wire.Identifiers{}, nil
		}
	}
	return wire.Identifiers{}, server.ErrDenied
}

// The test opens many connections and drops them in different ways. At the end, the process has no
// additional goroutine and no additional open file.
func TestNothingLeaks(t *testing.T) {
	rounds := 5000
	if testing.Short() {
		rounds = 200
	}
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			b := w.bench(t)
			b.agent("one", func(c *agent.Config) { c.Streams = w.streams })
			addr := target(t, echo)
			ways := b.dialers()
			openAndDrop(t, ways, addr, 50) // creates the lasting resources before the measurement
			b.await("the first connections to end", func() bool { return agentLoad(b) == 0 })
			goroutines, files := runtime.NumGoroutine(), openFiles(t)
			openAndDrop(t, ways, addr, rounds)
			b.await("all connections to end", func() bool { return agentLoad(b) == 0 && len(b.server.Status().Connections) == 0 })
			b.await(fmt.Sprintf("goroutines to be about %d", goroutines), func() bool { return runtime.NumGoroutine() <= goroutines+10 })
			b.await(fmt.Sprintf("files to be about %d", files), func() bool { return openFiles(t) <= files+10 })
		})
	}
}

// openAndDrop opens n connections, 16 at a time. It closes a third of them without data, a third
// after a write, and a third after a write and a read.
func openAndDrop(t *testing.T, ways []dialer, addr string, n int) {
	var all sync.WaitGroup
	work := make(chan int)
	for range 16 {
		all.Go(func() {
			for i := range work {
				c, err := ways[i%len(ways)].dial(addr)
				if err != nil {
					t.Error(err)
					continue
				}
				if i%3 > 0 {
					_, _ = io.WriteString(c, "hello")
				}
				if i%3 > 1 {
					_, _ = c.Read(make([]byte, 3))
				}
				c.Close()
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	all.Wait()
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(all)
}

// If a client ends its stream without a dial, the server continues to run.
func TestStreamWithoutDial(t *testing.T) {
	b := newBench(t)
	b.agent("one")
	s, _ := rawStream(t, "unix://"+b.grpc, "/ProxyService/Proxy")
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(&client.Packet{}); !errors.Is(err, io.EOF) {
		t.Errorf("end of a stream without a dial: got error %v, want EOF", err)
	}
	roundTrip(t, mustDial(t, dialer{"grpc", b.dialGRPC}, target(t, echo)), "still here")
}
