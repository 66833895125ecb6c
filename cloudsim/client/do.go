package client

import (
	"context"
	"encoding/json"
)

// Do sends a request to a path of the API. Use Do for an operation of the API that has no
// method in Client. The parameter named in contains the JSON body of the request, or nil.
// The result is the JSON answer, or nil. The path must begin with /v1 and must be escaped.
// Do returns the same errors as the other methods of Client.
func (c *Client) Do(ctx context.Context, method, path string, in json.RawMessage) (json.RawMessage, error) {
	if in == nil {
		return call[json.RawMessage](ctx, c, method, path, nil)
	}
	return call[json.RawMessage](ctx, c, method, path, in)
}
