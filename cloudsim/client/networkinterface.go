package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// AttachNetwork attaches an instance to an additional network. The instance gets its addresses in
// this network immediately.
func (c *Client) AttachNetwork(ctx context.Context, id cloudsim.InstanceID, req cloudsim.AttachNetwork) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "POST", "/v1/instances/"+seg(id)+"/attach-network", req)
}

// DetachNetwork detaches an instance from an additional network. The instance loses its addresses
// in this network immediately. DetachNetwork returns Conflict for the first network of the
// instance.
func (c *Client) DetachNetwork(ctx context.Context, id cloudsim.InstanceID, req cloudsim.DetachNetwork) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "POST", "/v1/instances/"+seg(id)+"/detach-network", req)
}
