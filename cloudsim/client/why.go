package client

import (
	"context"
	"net/url"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Why explains the current state of an object. The parameter ref is the id of the object, or the
// kind and the name of the object, e.g. instance/node-1. For a deleted object, the explanation
// contains the events that the journal still has.
func (c *Client) Why(ctx context.Context, ref string) (cloudsim.Why, error) {
	return call[cloudsim.Why](ctx, c, "GET", "/v1/why?object="+url.QueryEscape(ref), nil)
}

// WhyRequest explains the effects of the request with the given id: the calls, operations, changes
// and faults of this request. It returns NotFound if the cloud no longer knows the request.
func (c *Client) WhyRequest(ctx context.Context, id string) (cloudsim.Why, error) {
	return call[cloudsim.Why](ctx, c, "GET", "/v1/why?request="+url.QueryEscape(id), nil)
}
