package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// GetClock returns the cloud's time and the mode of its clock.
func (c *Client) GetClock(ctx context.Context) (cloudsim.Clock, error) {
	return call[cloudsim.Clock](ctx, c, "GET", "/v1/clock", nil)
}

// SetClock changes the time or the speed of the cloud's clock. The caller must be an admin.
func (c *Client) SetClock(ctx context.Context, req cloudsim.SetClock) (cloudsim.Clock, error) {
	return call[cloudsim.Clock](ctx, c, "PUT", "/v1/clock", req)
}

// AdvanceClock moves the cloud's clock forward. It returns after the cloud has finished all
// work that is due at the new time. The caller must be an admin.
func (c *Client) AdvanceClock(ctx context.Context, req cloudsim.AdvanceClock) (cloudsim.Clock, error) {
	return call[cloudsim.Clock](ctx, c.withoutTimeout(), "POST", "/v1/clock/advance", req)
}

// withoutTimeout returns a copy of c without a timeout, for calls that can take long.
func (c *Client) withoutTimeout() *Client {
	p, hc := *c, *c.HTTP
	hc.Timeout = 0
	p.HTTP = &hc
	return &p
}
