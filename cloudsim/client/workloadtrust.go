package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateWorkloadTrust creates a workload trust. The trust lets a Kubernetes service account
// call the cloud as a service account of the cloud.
func (c *Client) CreateWorkloadTrust(ctx context.Context, req cloudsim.CreateWorkloadTrust) (cloudsim.WorkloadTrust, error) {
	return call[cloudsim.WorkloadTrust](ctx, c, "POST", "/v1/workload-trusts", req)
}

// GetWorkloadTrust returns a workload trust.
func (c *Client) GetWorkloadTrust(ctx context.Context, id cloudsim.WorkloadTrustID) (cloudsim.WorkloadTrust, error) {
	return call[cloudsim.WorkloadTrust](ctx, c, "GET", "/v1/workload-trusts/"+seg(id), nil)
}

// ListWorkloadTrusts returns one page of workload trusts.
func (c *Client) ListWorkloadTrusts(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.WorkloadTrust], error) {
	return call[cloudsim.List[cloudsim.WorkloadTrust]](ctx, c, "GET", "/v1/workload-trusts"+listQuery(o), nil)
}

// DeleteWorkloadTrust deletes a workload trust. The deletion takes effect at the next call of the
// workload.
func (c *Client) DeleteWorkloadTrust(ctx context.Context, id cloudsim.WorkloadTrustID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/workload-trusts/"+seg(id), nil)
	return err
}
