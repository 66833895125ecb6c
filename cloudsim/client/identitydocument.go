package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// GetUserData returns the user data of an instance.
func (c *Client) GetUserData(ctx context.Context, id cloudsim.InstanceID) (cloudsim.UserData, error) {
	return call[cloudsim.UserData](ctx, c, "GET", "/v1/instances/"+seg(id)+"/user-data", nil)
}

// CreateIdentityDocument signs an identity document of an instance for one audience. It returns
// Conflict if the instance is terminating.
func (c *Client) CreateIdentityDocument(ctx context.Context, id cloudsim.InstanceID, req cloudsim.CreateIdentityDocument) (cloudsim.IdentityDocument, error) {
	return call[cloudsim.IdentityDocument](ctx, c, "POST", "/v1/instances/"+seg(id)+"/identity", req)
}

// CreateInstanceToken returns a short-lived token of an instance's service account. Two calls can
// return the same token. CreateInstanceToken returns NotFound if the instance has no service
// account, and Conflict if the instance is terminating.
func (c *Client) CreateInstanceToken(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Token, error) {
	return call[cloudsim.Token](ctx, c, "POST", "/v1/instances/"+seg(id)+"/token", nil)
}
