package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// GetClock returns the cloud's time and how it passes.
func (c *Client) GetClock(ctx context.Context) (cloudsim.Clock, error) {
	return call[cloudsim.Clock](ctx, c, "GET", "/v1/clock", nil)
}

// SetClock changes how time passes; admins only.
func (c *Client) SetClock(ctx context.Context, req cloudsim.SetClock) (cloudsim.Clock, error) {
	return call[cloudsim.Clock](ctx, c, "PUT", "/v1/clock", req)
}

// AdvanceClock moves the clock forward and returns when everything that fell
// due until then has settled; admins only.
func (c *Client) AdvanceClock(ctx context.Context, req cloudsim.AdvanceClock) (cloudsim.Clock, error) {
	return call[cloudsim.Clock](ctx, c.patient(), "POST", "/v1/clock/advance", req)
}

// patient is c for calls that take as long as they do.
func (c *Client) patient() *Client {
	p, hc := *c, *c.HTTP
	hc.Timeout = 0
	p.HTTP = &hc
	return &p
}
