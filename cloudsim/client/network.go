package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateNetwork begins to create a network and returns the network. Until the
// creation has ended, CreateSubnet returns Conflict for this network. A call of
// WaitOperation with the network's field Operation waits until the creation has ended.
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

// UpdateNetwork replaces the labels and the spec of a network. If rev is not 0 and the
// network has changed since the revision rev, UpdateNetwork returns Stale. It returns
// Conflict if the request changes pod ranges that instances use.
func (c *Client) UpdateNetwork(ctx context.Context, id cloudsim.NetworkID, req cloudsim.UpdateNetwork, rev uint64) (cloudsim.Network, error) {
	return call[cloudsim.Network](ctx, c, "PUT", "/v1/networks/"+seg(id), req, ifMatch(rev))
}

// DeleteNetwork begins to delete a network and returns the network. It returns Conflict while other
// resources use the network. It also returns Conflict for a default network. During the deletion, a
// repeated call returns the network. After the deletion, a call returns NotFound.
func (c *Client) DeleteNetwork(ctx context.Context, id cloudsim.NetworkID) (cloudsim.Network, error) {
	return call[cloudsim.Network](ctx, c, "DELETE", "/v1/networks/"+seg(id), nil)
}
