package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateAccessKey makes an access key of a service account. Only the answer of this call contains
// the key's Secret.
func (c *Client) CreateAccessKey(ctx context.Context, req cloudsim.CreateAccessKey) (cloudsim.AccessKey, error) {
	return call[cloudsim.AccessKey](ctx, c, "POST", "/v1/access-keys", req)
}

// GetAccessKey returns an access key without its secret.
func (c *Client) GetAccessKey(ctx context.Context, id cloudsim.AccessKeyID) (cloudsim.AccessKey, error) {
	return call[cloudsim.AccessKey](ctx, c, "GET", "/v1/access-keys/"+seg(id), nil)
}

// ListAccessKeys returns one page of access keys, without their secrets.
func (c *Client) ListAccessKeys(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.AccessKey], error) {
	return call[cloudsim.List[cloudsim.AccessKey]](ctx, c, "GET", "/v1/access-keys"+listQuery(o), nil)
}

// DeleteAccessKey revokes an access key at once.
func (c *Client) DeleteAccessKey(ctx context.Context, id cloudsim.AccessKeyID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/access-keys/"+seg(id), nil)
	return err
}
