package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// RotateSigningKey makes a new key for the purpose req.Use, and retires the previous key for this
// purpose. Signatures of the retiring key stay valid for req.OverlapSeconds. Then the cloud deletes
// the retiring key. The caller must be an admin.
func (c *Client) RotateSigningKey(ctx context.Context, req cloudsim.RotateSigningKey) (cloudsim.SigningKey, error) {
	return call[cloudsim.SigningKey](ctx, c, "POST", "/v1/signing-keys", req)
}

// GetSigningKey returns a signing key, without its private key.
func (c *Client) GetSigningKey(ctx context.Context, id cloudsim.SigningKeyID) (cloudsim.SigningKey, error) {
	return call[cloudsim.SigningKey](ctx, c, "GET", "/v1/signing-keys/"+seg(id), nil)
}

// ListSigningKeys returns one page of signing keys.
func (c *Client) ListSigningKeys(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.SigningKey], error) {
	return call[cloudsim.List[cloudsim.SigningKey]](ctx, c, "GET", "/v1/signing-keys"+listQuery(o), nil)
}

// DeleteSigningKey deletes a retiring key. All signatures of this key become invalid at once.
// DeleteSigningKey returns Conflict for an active key.
func (c *Client) DeleteSigningKey(ctx context.Context, id cloudsim.SigningKeyID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/signing-keys/"+seg(id), nil)
	return err
}

// KeySet returns the public keys of all signing keys. The call needs no token.
func (c *Client) KeySet(ctx context.Context) (cloudsim.KeySet, error) {
	return call[cloudsim.KeySet](ctx, c, "GET", "/.well-known/jwks.json", nil)
}
