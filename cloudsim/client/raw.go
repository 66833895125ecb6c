package client

import (
	"context"
	"encoding/json"
)

// Raw makes one call in the API's own words, for what no method has: in and the
// answer are JSON, and either may be nil. path begins with /v1 and is escaped.
// Errors are those of every other call.
func (c *Client) Raw(ctx context.Context, method, path string, in json.RawMessage) (json.RawMessage, error) {
	if in == nil {
		return call[json.RawMessage](ctx, c, method, path, nil)
	}
	return call[json.RawMessage](ctx, c, method, path, in)
}
