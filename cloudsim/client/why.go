package client

import (
	"context"
	"net/url"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Why tells what brought an object where it is: by its id, or as kind/name. It
// also tells of what is gone, as far back as the journal reaches.
func (c *Client) Why(ctx context.Context, object string) (cloudsim.Why, error) {
	return call[cloudsim.Why](ctx, c, "GET", "/v1/why?object="+url.QueryEscape(object), nil)
}
