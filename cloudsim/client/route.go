package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateRoute makes a route. Exists is a network that has another one to the
// same destination, Exhausted one that has as many as it may.
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

// DeleteRoute begins to delete a route and returns it. Deleting one that is
// already being deleted returns it again; one that is gone is NotFound.
func (c *Client) DeleteRoute(ctx context.Context, id cloudsim.RouteID) (cloudsim.Route, error) {
	return call[cloudsim.Route](ctx, c, "DELETE", "/v1/routes/"+seg(id), nil)
}
