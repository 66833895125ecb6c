package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateSubnet begins to create a subnet and returns the subnet. Until the
// creation has ended, CreateInstance returns Conflict for this subnet. A call of
// WaitOperation with the subnet's field Operation waits until the creation has ended.
func (c *Client) CreateSubnet(ctx context.Context, req cloudsim.CreateSubnet) (cloudsim.Subnet, error) {
	return call[cloudsim.Subnet](ctx, c, "POST", "/v1/subnets", req)
}

// GetSubnet returns a subnet.
func (c *Client) GetSubnet(ctx context.Context, id cloudsim.SubnetID) (cloudsim.Subnet, error) {
	return call[cloudsim.Subnet](ctx, c, "GET", "/v1/subnets/"+seg(id), nil)
}

// ListSubnets returns one page of subnets.
func (c *Client) ListSubnets(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Subnet], error) {
	return call[cloudsim.List[cloudsim.Subnet]](ctx, c, "GET", "/v1/subnets"+listQuery(o), nil)
}

// DeleteSubnet begins to delete a subnet and returns the subnet. It returns Conflict while
// instances use the subnet. It also returns Conflict for a subnet of a default network. During the
// deletion, a repeated call returns the subnet. After the deletion, a call returns NotFound.
func (c *Client) DeleteSubnet(ctx context.Context, id cloudsim.SubnetID) (cloudsim.Subnet, error) {
	return call[cloudsim.Subnet](ctx, c, "DELETE", "/v1/subnets/"+seg(id), nil)
}
