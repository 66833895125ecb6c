package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// Mode is the protocol of a frontend. The values are the same as in upstream's network proxy.
type Mode string

const (
	GRPC        Mode = "grpc"
	HTTPConnect Mode = "http-connect"
)

// Frontend is a listener for clients such as kube-apiserver.
type Frontend struct {
	Mode     Mode
	Listener net.Listener
	TLS      *tls.Config // nil: no TLS, for example on a Unix socket
}

// Authenticator checks the tokens of agents.
type Authenticator interface {
	// Authenticate returns the identifiers that the token grants to an agent. It returns
	// ErrDenied if the token is not valid. If the check is not possible now, it returns a
	// different error.
	Authenticate(ctx context.Context, token string) (wire.Identifiers, error)
}

// ErrDenied is the error of an Authenticator for an invalid token.
var ErrDenied = errors.New("the token is not a valid token of an agent")

// Config configures a server. Default returns suitable values for most fields.
type Config struct {
	ID    string // unique name of the server
	Count int    // number of servers, reported to agents
	Zone  string // zone of the server, for the strategy zone

	Frontends []Frontend
	Agents    net.Listener
	AgentTLS  *tls.Config // nil: plaintext, for tests and local sockets
	// If Authenticator is nil, agents need no token.
	Authenticator Authenticator
	// InsecureAgents permits a configuration that requires neither a certificate nor a token. With
	// this configuration, every program that can connect to the agents' listener can receive the
	// connections of clients. InsecureAgents also has the effect of TrustIdentifiers.
	InsecureAgents bool
	// TrustIdentifiers accepts all identifiers that an agent states, as upstream's server does.
	// If both TrustIdentifiers and InsecureAgents are false, the agent's certificate or token must
	// grant each identifier. The server refuses an agent that states any other identifier.
	TrustIdentifiers bool
	// ReviewInterval is the time between two checks of a connected agent's token. Without the
	// extension that Streams enables, the server checks the token only when the agent connects.
	ReviewInterval time.Duration

	Strategies []Strategy
	// Streams enables the extension that package wire describes: a gRPC stream for each connection.
	Streams bool

	DialTimeout       time.Duration // time from a client's request until the connection is open
	KeepaliveTime     time.Duration // time without data before the server pings an agent
	FrontendKeepalive time.Duration // time without data before the server pings a gRPC client
	HeaderTimeout     time.Duration // time for a client to send its request
	HalfCloseTimeout  time.Duration // allowed time without data after one direction has ended
	DrainTimeout      time.Duration // time for connections to end after the stop of the server begins
	QueueBytes        int           // buffer size of each connection, with upstream's agents
	StallGrace        time.Duration // time for which a client may block other connections, with upstream's agents

	// Registry receives the metrics, and Tracer receives the spans. Registry and Tracer may be
	// nil.
	Registry prometheus.Registerer
	Tracer   trace.TracerProvider
}

// Default returns the configuration of a server without listeners.
func Default() Config {
	return Config{
		Count: 1, Streams: true, Strategies: []Strategy{ByDefault}, ReviewInterval: 10 * time.Minute,
		DialTimeout: 10 * time.Second, KeepaliveTime: 10 * time.Second, FrontendKeepalive: time.Hour,
		HeaderTimeout: 10 * time.Second, HalfCloseTimeout: time.Minute, DrainTimeout: 30 * time.Second,
		QueueBytes: 512 << 10, StallGrace: time.Second,
	}
}

// Validate returns an error for each field that is not valid.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ID == "" {
		bad("--server-id must not be empty")
	}
	if c.Count < 1 {
		bad("--server-count must be at least 1, got %d", c.Count)
	}
	if c.Agents == nil {
		bad("a listener for agents is required")
	}
	certified := c.AgentTLS != nil && c.AgentTLS.ClientAuth == tls.RequireAndVerifyClientCert
	if !certified && c.Authenticator == nil && !c.InsecureAgents {
		bad("the server cannot authenticate agents: configure client certificates or tokens, or allow insecure agents")
	}
	if len(c.Frontends) == 0 {
		bad("at least one frontend is required")
	}
	for _, f := range c.Frontends {
		if f.Mode != GRPC && f.Mode != HTTPConnect {
			bad("mode must be %s or %s, got %q", GRPC, HTTPConnect, f.Mode)
		}
		if f.Listener == nil {
			bad("frontend %s has no listener", f.Mode)
		}
	}
	if len(c.Strategies) == 0 {
		bad("at least one strategy is required")
	}
	if c.Zone == "" && slices.Contains(c.Strategies, ByZone) {
		bad("--zone is required for the strategy %s in --proxy-strategies", ByZone)
	}
	for name, d := range map[string]time.Duration{
		"--backend-dial-timeout": c.DialTimeout, "--keepalive-time": c.KeepaliveTime, "--frontend-keepalive-time": c.FrontendKeepalive,
		"--header-timeout": c.HeaderTimeout, "--half-close-timeout": c.HalfCloseTimeout, "--stall-grace": c.StallGrace,
		"--authentication-interval": c.ReviewInterval,
	} {
		if d <= 0 {
			bad("%s must be greater than zero, got %s", name, d)
		}
	}
	if c.DrainTimeout < 0 {
		bad("--graceful-shutdown-timeout must not be negative, got %s", c.DrainTimeout)
	}
	if c.QueueBytes < 64<<10 {
		bad("--queue-bytes must be at least 65536, got %d", c.QueueBytes)
	}
	return errors.Join(errs...)
}
