package client

import (
	"context"
	"encoding/json"
)

// Do sends a request to a path of the API. Use Do for an operation of the API that has no method in
// Client. The path must begin with /v1 and must be escaped. The JSON body of the request is
// reqBody. If reqBody is nil, the request has no body. The result is the JSON answer, or nil if the
// answer has no body. Do returns the same errors as the other methods of Client.
func (c *Client) Do(ctx context.Context, method, path string, reqBody json.RawMessage) (json.RawMessage, error) {
	if reqBody == nil {
		return call[json.RawMessage](ctx, c, method, path, nil)
	}
	return call[json.RawMessage](ctx, c, method, path, reqBody)
}

// Replace sends a PUT request. Its path, body and results are like those of Do. If rev is not 0 and
// the resource has changed since the revision rev, Replace returns Stale.
func (c *Client) Replace(ctx context.Context, path string, reqBody json.RawMessage, rev uint64) (json.RawMessage, error) {
	return call[json.RawMessage](ctx, c, "PUT", path, reqBody, ifMatch(rev))
}
