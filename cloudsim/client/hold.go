package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateHold creates a hold, which delays the end of matching work. The hold is active when
// CreateHold returns. The caller must be an admin.
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

// DeleteHold removes a hold. The work that the hold delayed can then end.
func (c *Client) DeleteHold(ctx context.Context, id cloudsim.HoldID) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/holds/"+seg(id), nil)
	return err
}

// ReleaseOperation exempts one operation from all holds, and from faults that block the operation.
// The operation then ends at its due time, or at once if this time has passed. ReleaseOperation
// returns Conflict if the operation has ended. The caller must be an admin.
func (c *Client) ReleaseOperation(ctx context.Context, id cloudsim.OperationID) (cloudsim.Operation, error) {
	return call[cloudsim.Operation](ctx, c, "POST", "/v1/operations/"+seg(id)+"/release", nil)
}

// CancelOperation cancels an operation. It returns Conflict if the operation has already ended. It
// also returns Conflict if the cloud cannot cancel operations of this type, e.g. deletions.
func (c *Client) CancelOperation(ctx context.Context, id cloudsim.OperationID) (cloudsim.Operation, error) {
	return call[cloudsim.Operation](ctx, c, "POST", "/v1/operations/"+seg(id)+"/cancel", nil)
}

// GetDurations returns the stored durations of operations. SetDurations stores them. A stored
// duration overrides the duration in the cloud's profile.
func (c *Client) GetDurations(ctx context.Context) (cloudsim.WorkDurations, error) {
	return call[cloudsim.WorkDurations](ctx, c, "GET", "/v1/durations", nil)
}

// SetDurations replaces all stored durations. The new durations apply to operations that begin
// after this call. The caller must be an admin.
func (c *Client) SetDurations(ctx context.Context, req cloudsim.WorkDurations) (cloudsim.WorkDurations, error) {
	return call[cloudsim.WorkDurations](ctx, c, "PUT", "/v1/durations", req)
}
