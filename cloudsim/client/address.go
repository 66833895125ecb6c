package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateAddress reserves an address.
func (c *Client) CreateAddress(ctx context.Context, req cloudsim.CreateAddress) (cloudsim.Address, error) {
	return call[cloudsim.Address](ctx, c, "POST", "/v1/addresses", req)
}

// GetAddress returns an address.
func (c *Client) GetAddress(ctx context.Context, id cloudsim.AddressID) (cloudsim.Address, error) {
	return call[cloudsim.Address](ctx, c, "GET", "/v1/addresses/"+seg(id), nil)
}

// ListAddresses returns one page of addresses.
func (c *Client) ListAddresses(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Address], error) {
	return call[cloudsim.List[cloudsim.Address]](ctx, c, "GET", "/v1/addresses"+listQuery(o), nil)
}

// DeleteAddress releases an address. It returns Conflict while a load balancer uses the address.
func (c *Client) DeleteAddress(ctx context.Context, id cloudsim.AddressID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/addresses/"+seg(id), nil)
	return err
}
