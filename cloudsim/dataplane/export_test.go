package dataplane

import (
	"context"
	"net"
	"net/netip"
)

// ListenWith makes a Config listen by f, for machines that this one is not.
func (c *Config) ListenWith(f func(ctx context.Context, network, address string) (net.Listener, error)) {
	c.listen = f
}

// Source is the address that a target sees of a client; the zero one for this
// machine's.
func (c Config) Source(client netip.Addr) netip.AddrPort { return c.source(client) }
