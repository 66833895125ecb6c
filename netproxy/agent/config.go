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

// Counter knows how many servers there are.
type Counter interface {
	// Servers is the number of servers that are alive, 0 if nobody knows.
	Servers(ctx context.Context) (int, error)
}

// Config is what an agent needs. Default has the values that nobody needs to
// think about.
type Config struct {
	// ID tells agents apart; two with the same are two ways to the same place.
	ID string
	// Identifiers say for which destinations this agent is the right one.
	Identifiers wire.Identifiers
	// Zone is where it runs; only servers of this project understand it.
	Zone string
	// Servers are host:port each. A name is resolved again and again, and each
	// of its addresses is a server, or what leads to servers.
	Servers []string
	// TLS makes the configuration of each call anew; nil sends plaintext, for
	// tests and local sockets. Without a ServerName it is the host of the server.
	TLS func() (*tls.Config, error)
	// TokenFile holds a token for the server, read anew for each call; "" for none.
	TokenFile string
	// Counter says how many servers to look for behind the addresses; nil
	// believes the servers.
	Counter Counter
	// CountSource is CountDefault, or CountMax to believe the larger of both.
	CountSource string
	// Streams offers the extension.
	Streams bool
	// DialLocal allows targets at loopback, link-local and unspecified addresses.
	// They reach every local service of the agent's machine, and metadata services.
	DialLocal bool

	SyncInterval    time.Duration // between looks whether a server is missing
	SyncIntervalCap time.Duration // the longest pause between calls that fail
	KeepaliveTime   time.Duration // of silence before the server is asked for a sign
	DialTimeout     time.Duration // for a target to answer
	DrainTimeout    time.Duration // for connections to end when the agent is told to stop
	RenewInterval   time.Duration // between showings of the token, on the extension
	QueueBytes      int           // for each connection, towards upstream's server
	StallGrace      time.Duration // how long a target may hold up others there

	// Registry takes the metrics; nil for none.
	Registry prometheus.Registerer
}

// What CountSource may be: upstream's words.
const (
	CountDefault = "default"
	CountMax     = "max"
)

// Default is an agent that calls a server on this machine.
func Default() Config {
	return Config{
		Servers: []string{"127.0.0.1:8091"}, Streams: true, CountSource: CountDefault,
		SyncInterval: time.Second, SyncIntervalCap: 10 * time.Second, KeepaliveTime: 30 * time.Second,
		DialTimeout: 5 * time.Second, DrainTimeout: 30 * time.Second, RenewInterval: 5 * time.Minute,
		QueueBytes: 512 << 10, StallGrace: time.Second,
	}
}

// Validate reports everything that is wrong with the Config at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ID == "" {
		bad("agent id must not be empty")
	}
	if len(c.Servers) == 0 {
		bad("at least one server is required")
	}
	for _, s := range c.Servers {
		host, port, err := net.SplitHostPort(s)
		if n, bits := strconv.ParseUint(port, 10, 16); errors.Join(err, bits) != nil || host == "" || n == 0 {
			bad("server must be host:port, with a port between 1 and 65535, got %q", s)
		}
	}
	for name, d := range map[string]time.Duration{
		"sync interval": c.SyncInterval, "sync interval cap": c.SyncIntervalCap, "keepalive time": c.KeepaliveTime,
		"dial timeout": c.DialTimeout, "renew interval": c.RenewInterval, "stall grace": c.StallGrace,
	} {
		if d <= 0 {
			bad("%s must be more than nothing, got %s", name, d)
		}
	}
	if c.CountSource != CountDefault && c.CountSource != CountMax {
		bad("server count source must be %s or %s, got %q", CountDefault, CountMax, c.CountSource)
	}
	if c.DrainTimeout < 0 {
		bad("drain timeout must not be negative, got %s", c.DrainTimeout)
	}
	if c.QueueBytes < 64<<10 {
		bad("queue must hold at least 64 KiB, got %d bytes", c.QueueBytes)
	}
	return errors.Join(errs...)
}
