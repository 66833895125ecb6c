package dataplane

import (
	"context"
	"net"
)

// ListenWith makes a Config listen by f, for machines that this one is not.
func (c *Config) ListenWith(f func(ctx context.Context, network, address string) (net.Listener, error)) {
	c.listen = f
}
