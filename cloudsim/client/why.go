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

// WhyRequest explains a request. The explanation contains the calls with the given request id, the
// faults that affected these calls, and the resulting operations and changes. WhyRequest returns
// NotFound if the cloud no longer knows the request.
func (c *Client) WhyRequest(ctx context.Context, id string) (cloudsim.Why, error) {
	return call[cloudsim.Why](ctx, c, "GET", "/v1/why?request="+url.QueryEscape(id), nil)
}
