package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// GetOperation returns an operation.
func (c *Client) GetOperation(ctx context.Context, id cloudsim.OperationID) (cloudsim.Operation, error) {
	return call[cloudsim.Operation](ctx, c, "GET", "/v1/operations/"+seg(id), nil)
}

// ListOperations returns one page of operations.
func (c *Client) ListOperations(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Operation], error) {
	return call[cloudsim.List[cloudsim.Operation]](ctx, c, "GET", "/v1/operations"+listQuery(o), nil)
}

// WaitOperation waits until an operation has ended, and returns the operation. If ctx ends first,
// it returns the error of ctx. WaitOperation repeats its request until the operation has ended.
// While the operation runs, the cloud delays each answer for up to 10 s. HTTP.Timeout must
// therefore be longer than 10 s, or 0 for no timeout. Otherwise the call can return Unavailable.
func (c *Client) WaitOperation(ctx context.Context, id cloudsim.OperationID) (cloudsim.Operation, error) {
	for {
		op, err := call[cloudsim.Operation](ctx, c, "GET", "/v1/operations/"+seg(id)+"?waitSeconds=10", nil)
		if err != nil || op.Over() {
			return op, err
		}
	}
}
