package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// GetRegion returns a region.
func (c *Client) GetRegion(ctx context.Context, id string) (cloudsim.Region, error) {
	return call[cloudsim.Region](ctx, c, "GET", "/v1/regions/"+seg(id), nil)
}

// ListRegions returns one page of regions.
func (c *Client) ListRegions(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Region], error) {
	return call[cloudsim.List[cloudsim.Region]](ctx, c, "GET", "/v1/regions"+listQuery(o), nil)
}

// GetZone returns a zone.
func (c *Client) GetZone(ctx context.Context, id string) (cloudsim.Zone, error) {
	return call[cloudsim.Zone](ctx, c, "GET", "/v1/zones/"+seg(id), nil)
}

// ListZones returns one page of zones.
func (c *Client) ListZones(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Zone], error) {
	return call[cloudsim.List[cloudsim.Zone]](ctx, c, "GET", "/v1/zones"+listQuery(o), nil)
}

// GetInstanceType returns an instance type.
func (c *Client) GetInstanceType(ctx context.Context, id string) (cloudsim.InstanceType, error) {
	return call[cloudsim.InstanceType](ctx, c, "GET", "/v1/instance-types/"+seg(id), nil)
}

// ListInstanceTypes returns one page of instance types.
func (c *Client) ListInstanceTypes(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.InstanceType], error) {
	return call[cloudsim.List[cloudsim.InstanceType]](ctx, c, "GET", "/v1/instance-types"+listQuery(o), nil)
}
