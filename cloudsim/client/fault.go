package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateFault creates a fault. A fault is a rule that, for example, delays matching calls
// or makes them fail. The fault is active when CreateFault returns. The caller must be an
// admin.
func (c *Client) CreateFault(ctx context.Context, req cloudsim.CreateFault) (cloudsim.Fault, error) {
	return call[cloudsim.Fault](ctx, c, "POST", "/v1/faults", req)
}

// GetFault returns a fault with its counters.
func (c *Client) GetFault(ctx context.Context, id cloudsim.FaultID) (cloudsim.Fault, error) {
	return call[cloudsim.Fault](ctx, c, "GET", "/v1/faults/"+seg(id), nil)
}

// ListFaults returns one page of faults with their counters.
func (c *Client) ListFaults(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Fault], error) {
	return call[cloudsim.List[cloudsim.Fault]](ctx, c, "GET", "/v1/faults"+listQuery(o), nil)
}

// DeleteFault deletes a fault. The fault does not affect calls that begin after DeleteFault
// has returned.
func (c *Client) DeleteFault(ctx context.Context, id cloudsim.FaultID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/faults/"+seg(id), nil)
	return err
}

// FaultTargets returns the operations that faults can affect.
func (c *Client) FaultTargets(ctx context.Context) ([]cloudsim.FaultTarget, error) {
	all, err := call[cloudsim.FaultTargets](ctx, c, "GET", "/v1/faults/targets", nil)
	return all.Items, err
}

// FaultPresets returns the presets that the cloud knows, least severe first. The function
// cloudsim.FaultPresets instead returns the presets of this program. The two lists can differ if
// the cloud and this program have different versions.
func (c *Client) FaultPresets(ctx context.Context) ([]cloudsim.FaultPreset, error) {
	all, err := call[cloudsim.FaultPresetList](ctx, c, "GET", "/v1/faults/presets", nil)
	return all.Items, err
}
