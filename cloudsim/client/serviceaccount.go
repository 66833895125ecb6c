package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateServiceAccount makes a service account.
func (c *Client) CreateServiceAccount(ctx context.Context, req cloudsim.CreateServiceAccount) (cloudsim.ServiceAccount, error) {
	return call[cloudsim.ServiceAccount](ctx, c, "POST", "/v1/service-accounts", req)
}

// GetServiceAccount returns a service account.
func (c *Client) GetServiceAccount(ctx context.Context, id cloudsim.ServiceAccountID) (cloudsim.ServiceAccount, error) {
	return call[cloudsim.ServiceAccount](ctx, c, "GET", "/v1/service-accounts/"+seg(id), nil)
}

// ListServiceAccounts returns one page of service accounts.
func (c *Client) ListServiceAccounts(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.ServiceAccount], error) {
	return call[cloudsim.List[cloudsim.ServiceAccount]](ctx, c, "GET", "/v1/service-accounts"+listQuery(o), nil)
}

// DeleteServiceAccount removes a service account with its tokens, access keys, role bindings and
// workload trusts. The removal takes effect at once. DeleteServiceAccount returns Conflict while an
// instance uses the service account.
func (c *Client) DeleteServiceAccount(ctx context.Context, id cloudsim.ServiceAccountID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/service-accounts/"+seg(id), nil)
	return err
}
