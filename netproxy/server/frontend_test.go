package server_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/certs"
	"github.com/cloudsim-dev/allinone/netproxy/server"
)

func makeKeys(t *testing.T) (file func(string) string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	if err := certs.Make(dir, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	return func(name string) string { return filepath.Join(dir, name) }
}

func files(file func(string) string, name, ca string) certs.Files {
	return certs.Files{Cert: file(name + ".crt"), Key: file(name + ".key"), CA: file(ca + ".crt")}
}

// There is one certificate authority for frontends and one for agents. A TCP frontend accepts a
// client with a certificate of the frontends' authority. It refuses a client with a certificate of
// the agents' authority.
func TestMutualTLS(t *testing.T) {
	file := makeKeys(t)
	conf := func(f certs.Files, protos ...string) *tls.Config {
		c, err := certs.ServerConfig(slog.New(slog.DiscardHandler), f, certs.Options{NextProtos: protos})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	front := listen(t, "tcp", "127.0.0.1:0")
	b := newBench(t, func(c *server.Config) {
		c.AgentTLS = conf(files(file, certs.Server, certs.AgentsCA), "h2")
		c.Frontends = append(c.Frontends, server.Frontend{Mode: server.HTTPConnect, Listener: front, TLS: conf(files(file, certs.Frontend, certs.FrontendCA), "http/1.1")})
	})
	b.agent("one", func(c *agent.Config) {
		c.TLS = func() (*tls.Config, error) {
			return certs.ClientConfig(files(file, certs.Agent, certs.AgentsCA), certs.Options{})
		}
	})
	dial := func(name, ca string) (net.Conn, error) {
		cc, err := certs.ClientConfig(certs.Files{Cert: file(name + ".crt"), Key: file(name + ".key"), CA: file(ca + ".crt")}, certs.Options{ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", front.Addr().String(), cc)
		if err != nil {
			return nil, err
		}
		return connectOver(conn, target(t, echo))
	}
	good, err := dial(certs.Client, certs.FrontendCA)
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	roundTrip(t, good, strings.Repeat("hello", 50_000))
	if c, err := dial(certs.Agent, certs.FrontendCA); err == nil {
		c.Close()
		t.Error("the server accepted a client with an agent's certificate")
	}
}

// The server uses new certificates without a restart. If a new certificate file is invalid, the
// server keeps the previous certificate.
func TestCertificatesAreReloaded(t *testing.T) {
	file, other := makeKeys(t), makeKeys(t)
	conf, err := certs.ServerConfig(slog.New(slog.DiscardHandler), files(file, certs.Frontend, certs.FrontendCA), certs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		now, err := conf.GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		return now.Certificates[0].Leaf.SerialNumber.String()
	}
	first := serial()
	if serial() != first {
		t.Error("the certificate changed without a change of the files")
	}
	if err := os.WriteFile(file("frontend.crt"), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if serial() != first {
		t.Error("the server uses an invalid certificate file")
	}
	for _, name := range []string{"frontend.crt", "frontend.key"} {
		raw, err := os.ReadFile(other(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file(name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if serial() == first {
		t.Error("the new certificate is not used")
	}
}

// Datagrams of up to 60,000 bytes arrive complete and separately.
func TestUDP(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	go func() { // ends when pc is closed
		buf := make([]byte, 64<<10)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(buf[:n], from)
		}
	}()
	for _, w := range wires {
		b := w.bench(t)
		b.agent("one", func(c *agent.Config) { c.Streams = w.streams })
		s, _ := rawStream(t, "unix://"+b.grpc, "/ProxyService/Proxy")
		ask := dialReq(1, pc.LocalAddr().String())
		ask.GetDialRequest().Protocol = "udp"
		if err := s.SendMsg(ask); err != nil {
			t.Fatal(err)
		}
		id := recvPacket(t, s).GetDialResponse().GetConnectID()
		if id == 0 {
			t.Fatal("the dial was not answered with a connection")
		}
		for _, size := range []int{1, 5000, 60_000} {
			want := bytes.Repeat([]byte{'x'}, size)
			p := &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: id, Data: want}}}
			if err := s.SendMsg(p); err != nil {
				t.Fatal(err)
			}
			if got := recvPacket(t, s).GetData().GetData(); !bytes.Equal(got, want) {
				t.Errorf("%s: sent %d bytes, got %d", w.name, size, len(got))
			}
		}
		// The proxy does not merge datagrams that follow each other quickly.
		const burst = 100
		for range burst {
			if err := s.SendMsg(data(id, strings.Repeat("y", 100))); err != nil {
				t.Fatal(err)
			}
		}
		for range burst {
			if got := recvPacket(t, s).GetData().GetData(); len(got) != 100 {
				t.Fatalf("%s: got a datagram of %d bytes, want 100", w.name, len(got))
			}
		}
	}
}

// TestHalfCloseTimeoutEndsConnection proves that HalfCloseTimeout applies to a connection if the
// client has closed its direction and the target sends no bytes. The server ends this connection
// after HalfCloseTimeout.
func TestHalfCloseTimeoutEndsConnection(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.HalfCloseTimeout = 100 * time.Millisecond })
	b.agent("one")
	held := make(chan struct{})
	c := mustDial(t, dialer{"http-connect", b.dialConnect}, target(t, func(*net.TCPConn) { <-held }))
	defer close(held)
	if err := c.(*bufferedConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	b.await("the connection to end", func() bool { return len(b.server.Status().Connections) == 0 })
}
