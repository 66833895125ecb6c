package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// Counter returns the number of servers.
type Counter interface {
	// Servers returns the number of running servers, or 0 if the number is unknown.
	Servers(ctx context.Context) (int, error)
}

// Config configures an agent. Default returns suitable values for most fields.
type Config struct {
	// ID identifies the agent. Upstream's server regards agents with equal IDs as one agent, so
	// these agents must reach the same targets.
	ID string
	// Identifiers are the destinations for which servers prefer this agent.
	Identifiers wire.Identifiers
	// Zone is the zone in which the agent runs. Only this project's server uses it.
	Zone string
	// Servers are addresses of the form host:port. The agent resolves each name repeatedly. Each
	// address of a name belongs to a server, or to a load balancer that forwards to servers.
	Servers []string
	// TLS returns a new configuration for each connection to a server. If TLS is
	// nil, the agent uses plaintext. Plaintext is for tests and local sockets. If
	// ServerName in the configuration is empty, the agent sets ServerName to the
	// host of the server.
	TLS func() (*tls.Config, error)
	// TokenFile is a file with a token for the server. The agent reads the file for each call.
	// If TokenFile is empty, the agent sends no token.
	TokenFile string
	// Counter returns the number of running servers. If Counter is nil, the agent uses the number
	// that the servers report.
	Counter Counter
	// CountSource is CountDefault or CountMax. With CountMax, the agent uses the larger of two
	// numbers: the result of Counter and the number that the servers report.
	CountSource string
	// Streams makes the agent offer a protocol extension to servers. Package wire describes the
	// extension.
	Streams bool
	// DialLocal allows targets at loopback, link-local and unspecified addresses. The metadata
	// service of a cloud and the local services of the agent's machine have these addresses.
	DialLocal bool

	SyncInterval    time.Duration // time between two checks for missing servers
	SyncIntervalCap time.Duration // maximum pause between failed calls
	KeepaliveTime   time.Duration // time without data before the agent pings the server
	DialTimeout     time.Duration // timeout of a dial of a target, of the lookup of a server's name, and of a call of Counter
	DrainTimeout    time.Duration // time for connections to end after the stop of the agent begins
	RenewInterval   time.Duration // with the extension: time between two renewals of the token
	QueueBytes      int           // buffer size of each connection, with upstream's servers
	StallGrace      time.Duration // time for which a target may block other connections, with upstream's servers
	StallProbe      time.Duration // with the extension: if a target reads no data for this time, the agent checks that the client is still connected

	// Registry receives the metrics. It may be nil.
	Registry prometheus.Registerer
}

// Values of CountSource, with upstream's names.
const (
	CountDefault = "default"
	CountMax     = "max"
)

// Default returns the configuration of an agent for a server on this machine.
func Default() Config {
	return Config{
		Servers: []string{"127.0.0.1:8091"}, Streams: true, CountSource: CountDefault,
		SyncInterval: time.Second, SyncIntervalCap: 10 * time.Second, KeepaliveTime: 30 * time.Second,
		DialTimeout: 5 * time.Second, DrainTimeout: 30 * time.Second, RenewInterval: 5 * time.Minute,
		QueueBytes: 512 << 10, StallGrace: time.Second, StallProbe: 20 * time.Second,
	}
}

// Validate returns an error for each field that is not valid.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ID == "" {
		bad("--agent-id must not be empty")
	}
	if len(c.Servers) == 0 {
		bad("--proxy-server-host must name at least one server")
	}
	for _, s := range c.Servers {
		host, port, err := net.SplitHostPort(s)
		if n, bits := strconv.ParseUint(port, 10, 16); errors.Join(err, bits) != nil || host == "" || n == 0 {
			bad("--proxy-server-host must be host:port, with a port between 1 and 65535, got %q", s)
		}
	}
	for name, d := range map[string]time.Duration{
		"--sync-interval": c.SyncInterval, "--sync-interval-cap": c.SyncIntervalCap, "--keepalive-time": c.KeepaliveTime,
		"--dial-timeout": c.DialTimeout, "--token-renew-interval": c.RenewInterval, "--stall-grace": c.StallGrace, "stall probe": c.StallProbe,
	} {
		if d <= 0 {
			bad("%s must be greater than zero, got %s", name, d)
		}
	}
	if c.CountSource != CountDefault && c.CountSource != CountMax {
		bad("--server-count-source must be %s or %s, got %q", CountDefault, CountMax, c.CountSource)
	}
	if c.DrainTimeout < 0 {
		bad("--graceful-shutdown-timeout must not be negative, got %s", c.DrainTimeout)
	}
	if c.QueueBytes < 64<<10 {
		bad("--queue-bytes must be at least 65536, got %d", c.QueueBytes)
	}
	return errors.Join(errs...)
}
