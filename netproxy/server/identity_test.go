package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/cloudsim-dev/allinone/internal/cert"
	"github.com/cloudsim-dev/allinone/netproxy/agent"
	"github.com/cloudsim-dev/allinone/netproxy/server"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// authority signs the certificates of a server and its agents.
type authority struct {
	*testing.T
	ca   *cert.Pair
	pool *x509.CertPool
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	ca, err := cert.Sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	return authority{t, ca, pool}
}

// config signs a certificate and returns the TLS configuration of a program with this
// certificate.
func (a authority) config(template *x509.Certificate, use x509.ExtKeyUsage) *tls.Config {
	a.Helper()
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{use}
	pair, err := cert.Sign(template, a.ca, time.Now())
	if err != nil {
		a.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair.TLS()}, MinVersion: tls.VersionTLS12,
		RootCAs: a.pool, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "server",
	}
}

// node returns the TLS configuration of an agent. The parameter granted lists the identifiers that
// the agent's certificate grants.
func (a authority) node(granted string) func() (*tls.Config, error) {
	a.Helper()
	template := &x509.Certificate{}
	identifiers(a.T, granted).Grant(template)
	conf := a.config(template, x509.ExtKeyUsageClientAuth)
	return func() (*tls.Config, error) { return conf.Clone(), nil }
}

func identifiers(t *testing.T, text string) wire.Identifiers {
	t.Helper()
	id, err := wire.ParseIdentifiers(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// greet calls the server as an agent and returns nil if the server accepts the agent.
func (b *bench) greet(conf func() (*tls.Config, error), md ...string) error {
	b.Helper()
	s := b.rawAgent(conf, md...)
	h, err := s.Header()
	if err == nil && len(h.Get(wire.KeyServerID)) > 0 {
		return nil
	}
	return s.RecvMsg(&client.Packet{})
}

// A compromised node cannot claim the identifiers of another node. The server refuses an agent that
// states identifiers that its certificate does not grant. So the server never uses the agent of the
// compromised node for connections to the other node.
func TestNodeCannotClaimOthers(t *testing.T) {
	a := newAuthority(t)
	b := newBench(t, func(c *server.Config) {
		c.InsecureAgents, c.AgentTLS = false, a.config(&x509.Certificate{DNSNames: []string{"server"}}, x509.ExtKeyUsageServerAuth)
		c.Strategies = []server.Strategy{server.ByHost, server.ByCIDR, server.ByDefaultRoute}
	})
	const first, second = "host=node-1&ipv4=127.0.0.1&cidr=127.1.0.0/24", "host=node-2&ipv4=127.0.0.2&cidr=127.2.0.0/24"
	compromised := a.node(first)
	for name, stated := range map[string]string{
		"name":          "host=node-2",
		"address":       "host=node-1&ipv4=127.0.0.2",
		"pod range":     "host=node-1&cidr=127.2.0.0/24",
		"larger range":  "cidr=0.0.0.0/0",
		"default route": "default-route=true",
		"everything":    second,
	} {
		for _, streams := range []string{"", wire.StreamsVersion} {
			err := b.greet(compromised, wire.KeyAgentID, "node-2", wire.KeyAgentIdentifiers, stated, wire.KeyStreams, streams)
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "does not grant the identifiers") {
				t.Errorf("the %s of another node, streams %q: got %v, want PermissionDenied", name, streams, err)
			}
		}
	}
	b.agent("node-1", func(c *agent.Config) { c.TLS, c.Identifiers = compromised, identifiers(t, first) })
	if c, err := b.dialConnect("127.0.0.2:1"); err == nil {
		c.Close()
		t.Error("node-1's agent got a connection to node-2")
	} else if !strings.Contains(err.Error(), "select none of the 1 network proxy agents for 127.0.0.2") {
		t.Errorf(`connection to node-2 without its agent: got error %v, want "select none of the 1 network proxy agents for 127.0.0.2"`, err)
	}
	b.agent("node-2", func(c *agent.Config) { c.TLS, c.Identifiers = a.node(second), identifiers(t, second) })
	roundTrip(t, mustDial(t, dialer{"http-connect", b.dialConnect}, target(t, echo)), "by node-1")
}

// A server with TrustIdentifiers accepts any identifiers from an authenticated agent.
func TestTrustIdentifiers(t *testing.T) {
	a := newAuthority(t)
	b := newBench(t, func(c *server.Config) {
		c.InsecureAgents, c.TrustIdentifiers = false, true
		c.AgentTLS = a.config(&x509.Certificate{DNSNames: []string{"server"}}, x509.ExtKeyUsageServerAuth)
	})
	if err := b.greet(a.node("host=node-1"), wire.KeyAgentID, "one", wire.KeyAgentIdentifiers, "host=node-2"); err != nil {
		t.Error(err)
	}
}

// nodeTokens is an Authenticator. The token of a node is the node's name.
// nodeTokens grants this name as a host identifier.
type nodeTokens struct{}

func (nodeTokens) Authenticate(_ context.Context, token string) (wire.Identifiers, error) {
	if !strings.HasPrefix(token, "node-") {
		return wire.Identifiers{}, server.ErrDenied
	}
	return wire.Identifiers{Host: []string{token}}, nil
}

// The token of a node grants only the identifiers of this node. So an agent of node-1 cannot renew
// its session with the token of node-2.
func TestTokenCannotClaimOthers(t *testing.T) {
	b := newBench(t, func(c *server.Config) { c.InsecureAgents, c.Authenticator = false, nodeTokens{} })
	call := func(token, stated string) error {
		return b.greet(nil, wire.KeyAgentID, "a", wire.KeyAgentIdentifiers, stated, wire.KeyAuthorization, wire.BearerPrefix+token)
	}
	if err := call("node-1", "host=node-1"); err != nil {
		t.Error(err)
	}
	if err := call("node-1", "host=node-2"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("name of another node: got %v, want PermissionDenied", err)
	}
	if err := call("other", ""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("invalid token: got %v, want Unauthenticated", err)
	}
	s := b.rawAgent(nil, wire.KeyAgentID, "a", wire.KeyAgentIdentifiers, "host=node-1", wire.KeyStreams, wire.StreamsVersion, wire.KeyAuthorization, wire.BearerPrefix+"node-1")
	var h metadata.MD
	h, err := s.Header()
	if err != nil {
		t.Fatal(err)
	}
	r, _ := rawStream(t, b.agents, wire.MethodRenew, wire.KeySession, h.Get(wire.KeySession)[0], wire.KeyAuthorization, wire.BearerPrefix+"node-2")
	if err := r.RecvMsg(&client.Packet{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("renewal of a session of node-1 with the token of node-2: got %v, want PermissionDenied", err)
	}
}

// If the configuration contains no means to authenticate agents, New returns an error. With
// InsecureAgents, New accepts the same configuration.
func TestAgentsMustBeAuthenticated(t *testing.T) {
	cfg := server.Default()
	cfg.ID, cfg.Agents = "one", listen(t, "tcp", "127.0.0.1:0")
	cfg.Frontends = []server.Frontend{{Mode: server.GRPC, Listener: listen(t, "tcp", "127.0.0.1:0")}}
	for name, change := range map[string]func(*server.Config){
		"plaintext":                       func(*server.Config) {},
		"TLS without client certificates": func(c *server.Config) { c.AgentTLS = &tls.Config{MinVersion: tls.VersionTLS12} },
	} {
		cfg := cfg
		change(&cfg)
		if _, err := server.New(slog.New(slog.DiscardHandler), cfg); err == nil || !strings.Contains(err.Error(), "the server cannot authenticate agents") {
			t.Errorf("%s: got %v, want an error about agents", name, err)
		}
		cfg.InsecureAgents = true
		if _, err := server.New(slog.New(slog.DiscardHandler), cfg); err != nil {
			t.Errorf("%s, insecure agents: got %v", name, err)
		}
	}
}
