package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateRoute begins to create a route and returns the route. It returns Exists if another route of
// the network has the requested destination. It returns Exhausted if the network has its maximum
// number of routes.
func (c *Client) CreateRoute(ctx context.Context, req cloudsim.CreateRoute) (cloudsim.Route, error) {
	return call[cloudsim.Route](ctx, c, "POST", "/v1/routes", req)
}

// GetRoute returns a route.
func (c *Client) GetRoute(ctx context.Context, id cloudsim.RouteID) (cloudsim.Route, error) {
	return call[cloudsim.Route](ctx, c, "GET", "/v1/routes/"+seg(id), nil)
}

// ListRoutes returns one page of routes.
func (c *Client) ListRoutes(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Route], error) {
	return call[cloudsim.List[cloudsim.Route]](ctx, c, "GET", "/v1/routes"+listQuery(o), nil)
}

// DeleteRoute begins to delete a route and returns the route. A second call during the deletion
// returns the route again. After the deletion, a call returns NotFound.
func (c *Client) DeleteRoute(ctx context.Context, id cloudsim.RouteID) (cloudsim.Route, error) {
	return call[cloudsim.Route](ctx, c, "DELETE", "/v1/routes/"+seg(id), nil)
}
