package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateHold keeps work from settling, from when it returned; admins only.
func (c *Client) CreateHold(ctx context.Context, req cloudsim.CreateHold) (cloudsim.Hold, error) {
	return call[cloudsim.Hold](ctx, c, "POST", "/v1/holds", req)
}

// GetHold returns a hold.
func (c *Client) GetHold(ctx context.Context, id cloudsim.HoldID) (cloudsim.Hold, error) {
	return call[cloudsim.Hold](ctx, c, "GET", "/v1/holds/"+seg(id), nil)
}

// ListHolds returns one page of holds.
func (c *Client) ListHolds(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Hold], error) {
	return call[cloudsim.List[cloudsim.Hold]](ctx, c, "GET", "/v1/holds"+listQuery(o), nil)
}

// DeleteHold removes a hold; what it kept settles.
func (c *Client) DeleteHold(ctx context.Context, id cloudsim.HoldID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/holds/"+seg(id), nil)
	return err
}

// ReleaseOperation takes one operation out of the reach of all holds.
func (c *Client) ReleaseOperation(ctx context.Context, id cloudsim.OperationID) (cloudsim.Operation, error) {
	return call[cloudsim.Operation](ctx, c, "POST", "/v1/operations/"+seg(id)+"/release", nil)
}

// CancelOperation calls work off before it has settled; Conflict where that is
// not possible.
func (c *Client) CancelOperation(ctx context.Context, id cloudsim.OperationID) (cloudsim.Operation, error) {
	return call[cloudsim.Operation](ctx, c, "POST", "/v1/operations/"+seg(id)+"/cancel", nil)
}

// GetDurations returns what overrules the cloud's profile.
func (c *Client) GetDurations(ctx context.Context) (cloudsim.WorkDurations, error) {
	return call[cloudsim.WorkDurations](ctx, c, "GET", "/v1/durations", nil)
}

// SetDurations replaces what overrules the cloud's profile; admins only.
func (c *Client) SetDurations(ctx context.Context, req cloudsim.WorkDurations) (cloudsim.WorkDurations, error) {
	return call[cloudsim.WorkDurations](ctx, c, "PUT", "/v1/durations", req)
}
