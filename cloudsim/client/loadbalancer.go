package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateLoadBalancer begins to create a load balancer and returns the load balancer with
// its address. The load balancer forwards traffic when its state is active.
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

// UpdateLoadBalancer replaces the labels and the spec of a load balancer. If rev is not 0
// and the load balancer has changed since the revision rev, UpdateLoadBalancer returns
// Stale.
func (c *Client) UpdateLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID, req cloudsim.UpdateLoadBalancer, rev uint64) (cloudsim.LoadBalancer, error) {
	return call[cloudsim.LoadBalancer](ctx, c, "PUT", "/v1/load-balancers/"+seg(id), req, ifMatch(rev))
}

// SetLoadBalancerTargets replaces the targets of a load balancer. If a listener has its own
// targets, the call does not change them.
func (c *Client) SetLoadBalancerTargets(ctx context.Context, id cloudsim.LoadBalancerID, req cloudsim.SetTargets) (cloudsim.LoadBalancer, error) {
	return call[cloudsim.LoadBalancer](ctx, c, "PUT", "/v1/load-balancers/"+seg(id)+"/targets", req)
}

// LoadBalancerStats returns the traffic counters of a load balancer. It returns Unavailable
// while no data plane forwards the connections of the load balancer.
func (c *Client) LoadBalancerStats(ctx context.Context, id cloudsim.LoadBalancerID) (cloudsim.LoadBalancerStats, error) {
	return call[cloudsim.LoadBalancerStats](ctx, c, "GET", "/v1/load-balancers/"+seg(id)+"/stats", nil)
}

// DeleteLoadBalancer begins to delete a load balancer and returns the load balancer. A second call
// during the deletion returns the load balancer again. After the deletion, a call returns NotFound.
func (c *Client) DeleteLoadBalancer(ctx context.Context, id cloudsim.LoadBalancerID) (cloudsim.LoadBalancer, error) {
	return call[cloudsim.LoadBalancer](ctx, c, "DELETE", "/v1/load-balancers/"+seg(id), nil)
}

// ListLoadBalancerStats returns the traffic counters of the load balancers of one page. It
// omits load balancers for which the data plane has no counters.
func (c *Client) ListLoadBalancerStats(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.LoadBalancerTraffic], error) {
	return call[cloudsim.List[cloudsim.LoadBalancerTraffic]](ctx, c, "GET", "/v1/load-balancers/stats"+listQuery(o), nil)
}
