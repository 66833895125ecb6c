package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateNetwork makes a network. It takes subnets once it is available: see State and Operation.
func (c *Client) CreateNetwork(ctx context.Context, req cloudsim.CreateNetwork) (cloudsim.Network, error) {
	return call[cloudsim.Network](ctx, c, "POST", "/v1/networks", req)
}

// GetNetwork returns a network.
func (c *Client) GetNetwork(ctx context.Context, id cloudsim.NetworkID) (cloudsim.Network, error) {
	return call[cloudsim.Network](ctx, c, "GET", "/v1/networks/"+seg(id), nil)
}

// ListNetworks returns one page of networks.
func (c *Client) ListNetworks(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Network], error) {
	return call[cloudsim.List[cloudsim.Network]](ctx, c, "GET", "/v1/networks"+listQuery(o), nil)
}

// UpdateNetwork replaces labels and spec. A rev other than 0 makes it
// conditional: Stale if the network has changed since that revision. Conflict
// if its pod ranges would change while instances have some.
func (c *Client) UpdateNetwork(ctx context.Context, id cloudsim.NetworkID, req cloudsim.UpdateNetwork, rev uint64) (cloudsim.Network, error) {
	return call[cloudsim.Network](ctx, c, "PUT", "/v1/networks/"+seg(id), req, ifMatch(rev))
}

// DeleteNetwork begins to delete a network and returns it; Conflict while
// something is in it. Deleting one that is already being deleted returns it
// again; one that is gone is NotFound.
func (c *Client) DeleteNetwork(ctx context.Context, id cloudsim.NetworkID) (cloudsim.Network, error) {
	return call[cloudsim.Network](ctx, c, "DELETE", "/v1/networks/"+seg(id), nil)
}
