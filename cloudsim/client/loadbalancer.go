package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateLoadBalancer makes a load balancer. Its address is in the answer; it forwards when it is active.
func (c *Client) CreateLoadBalancer(ctx context.Context, req cloudsim.CreateLoadBalancer) (cloudsim.LoadBalancer, error) {
	return call[cloudsim.LoadBalancer](ctx, c, "POST", "/v1/load-balancers", req)
}

// GetLoadBalancer returns a load balancer.
func (c *Client) GetLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID) (cloudsim.LoadBalancer, error) {
	return call[cloudsim.LoadBalancer](ctx, c, "GET", "/v1/load-balancers/"+seg(id), nil)
}

// ListLoadBalancers returns one page of load balancers.
func (c *Client) ListLoadBalancers(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.LoadBalancer], error) {
	return call[cloudsim.List[cloudsim.LoadBalancer]](ctx, c, "GET", "/v1/load-balancers"+listQuery(o), nil)
}

// UpdateLoadBalancer replaces labels and spec. A rev other than 0 makes it
// conditional: Stale if the load balancer has changed since that revision.
func (c *Client) UpdateLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID, req cloudsim.UpdateLoadBalancer, rev uint64) (cloudsim.LoadBalancer, error) {
	return call[cloudsim.LoadBalancer](ctx, c, "PUT", "/v1/load-balancers/"+seg(id), req, ifMatch(rev))
}

// SetLoadBalancerTargets replaces the set of targets in one call.
func (c *Client) SetLoadBalancerTargets(ctx context.Context, id cloudsim.LoadBalancerID, req cloudsim.SetTargets) (cloudsim.LoadBalancer, error) {
	return call[cloudsim.LoadBalancer](ctx, c, "PUT", "/v1/load-balancers/"+seg(id)+"/targets", req)
}

// LoadBalancerStats returns what passed through a load balancer; Unavailable
// while nothing forwards for it.
func (c *Client) LoadBalancerStats(ctx context.Context, id cloudsim.LoadBalancerID) (cloudsim.LoadBalancerStats, error) {
	return call[cloudsim.LoadBalancerStats](ctx, c, "GET", "/v1/load-balancers/"+seg(id)+"/stats", nil)
}

// DeleteLoadBalancer begins to delete a load balancer and returns it. Deleting
// one that is already being deleted returns it again; one that is gone is
// NotFound.
func (c *Client) DeleteLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID) (cloudsim.LoadBalancer, error) {
	return call[cloudsim.LoadBalancer](ctx, c, "DELETE", "/v1/load-balancers/"+seg(id), nil)
}
