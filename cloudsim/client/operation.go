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
// it returns the error of ctx. HTTP.Timeout must be longer than 10 s, or 0 for no timeout, because
// the cloud may delay each answer for 10 s. With a shorter timeout, WaitOperation can return
// Unavailable.
func (c *Client) WaitOperation(ctx context.Context, id cloudsim.OperationID) (cloudsim.Operation, error) {
	for {
		op, err := call[cloudsim.Operation](ctx, c, "GET", "/v1/operations/"+seg(id)+"?waitSeconds=10", nil)
		if err != nil || op.Over() {
			return op, err
		}
	}
}
