package client

import (
	"context"
	"encoding/json"
)

// Do makes one call to a path of the API, for calls without a method in Client. The body in
// and the answer are JSON, and either may be nil. The path must begin with /v1 and must be
// escaped. Errors are the same as for other calls.
func (c *Client) Do(ctx context.Context, method, path string, in json.RawMessage) (json.RawMessage, error) {
	if in == nil {
		return call[json.RawMessage](ctx, c, method, path, nil)
	}
	return call[json.RawMessage](ctx, c, method, path, in)
}
