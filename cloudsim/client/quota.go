package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// ListQuotas returns the quotas of the project with their usage.
func (c *Client) ListQuotas(ctx context.Context) ([]cloudsim.Quota, error) {
	all, err := call[cloudsim.Quotas](ctx, c, "GET", "/v1/quotas", nil)
	return all.Items, err
}

// SetQuota changes the limit of one quota of the project. The caller must be an admin.
func (c *Client) SetQuota(ctx context.Context, name cloudsim.QuotaName, req cloudsim.SetQuota) (cloudsim.Quota, error) {
	return call[cloudsim.Quota](ctx, c, "PUT", "/v1/quotas/"+seg(name), req)
}
