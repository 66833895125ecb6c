package dataplane

import (
	"context"
	"net"
	"net/netip"
)

// ListenWith makes a Config open its TCP listeners with f. A test uses
// ListenWith to simulate another machine, for example a machine that denies low
// ports.
func (c *Config) ListenWith(f func(ctx context.Context, network, address string) (net.Listener, error)) {
	c.listen = f
}

// Source returns the address that a target sees as the address of the client. If the result is the
// zero value, the target sees an address of this machine.
func (c Config) Source(client, target netip.Addr) netip.AddrPort { return c.source(client, target) }
