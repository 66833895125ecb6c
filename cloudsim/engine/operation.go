package engine

import (
	"context"
	"errors"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var operations = store.Table[cloudsim.Operation]{
	Kind: cloudsim.KindOperation, Prefix: "op",
	ID:   func(o *cloudsim.Operation) string { return string(o.ID) },
	Meta: func(o *cloudsim.Operation) *cloudsim.Meta { return &o.Meta },
}

// begin records that slow work on a resource has begun, ends the operation
// that worked on it before, and puts its settling on the due list. m is the
// resource's; the caller puts the resource afterwards.
func (e *Engine) begin(tx *store.Tx, call Call, verb cloudsim.Verb, kind cloudsim.ResourceKind, id string, m *cloudsim.Meta, takes time.Duration) error {
	if err := e.supersede(tx, m.Operation, verb); err != nil {
		return err
	}
	opID, err := operations.NextID(tx)
	if err != nil {
		return err
	}
	op := cloudsim.Operation{
		ID:   cloudsim.OperationID(opID),
		Meta: cloudsim.Meta{Name: opID, Project: m.Project},
		Verb: verb, Kind: kind, Target: id,
		State: cloudsim.OperationPending, RequestID: call.RequestID, Caller: call.Caller,
	}
	if err := op.Move(cloudsim.Start); err != nil {
		return err
	}
	m.Operation = op.ID
	if err := operations.Put(tx, &op); err != nil {
		return err
	}
	if takes <= 0 {
		return nil // the caller settles at once
	}
	return tx.Later(tx.Now.Add(takes), store.Work{Kind: kind, ID: id, Verb: cloudsim.Settle, Operation: op.ID})
}

// supersede ends an operation that a newer verb overtook.
func (e *Engine) supersede(tx *store.Tx, id cloudsim.OperationID, by cloudsim.Verb) error {
	return e.end(tx, id, cloudsim.Fail, &cloudsim.OperationError{Kind: cloudsim.Conflict, Detail: "overtaken by " + string(by)})
}

// end finishes an operation; one that is over, or forgotten, stays as it is.
func (e *Engine) end(tx *store.Tx, id cloudsim.OperationID, verb cloudsim.Verb, why *cloudsim.OperationError) error {
	if id == "" {
		return nil
	}
	op, err := operations.Get(tx, string(id))
	if errors.Is(err, cloudsim.NotFound) || err == nil && op.Over() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := op.Move(verb); err != nil {
		return err
	}
	now := tx.Now
	op.EndedAt, op.Error = &now, why
	if err := operations.Put(tx, &op); err != nil {
		return err
	}
	return tx.Later(now.Add(retention), store.Work{Kind: cloudsim.KindOperation, ID: string(id), Verb: cloudsim.Delete})
}

func (e *Engine) forgetOperation(tx *store.Tx, w store.Work) error {
	op, err := operations.Get(tx, w.ID)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return nil
	case err != nil:
		return err
	}
	return operations.Delete(tx, &op)
}

// GetOperation returns an operation.
func (e *Engine) GetOperation(ctx context.Context, id cloudsim.OperationID) (cloudsim.Operation, error) {
	return read(ctx, e, operations, string(id))
}

// ListOperations returns one page of operations. Finished ones are kept for a
// day.
func (e *Engine) ListOperations(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Operation], error) {
	return page(ctx, e, operations, o, nil)
}

// AwaitOperation returns an operation when it is over, or as it is after wait.
func (e *Engine) AwaitOperation(ctx context.Context, id cloudsim.OperationID, wait time.Duration) (cloudsim.Operation, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		bell := e.store.Bell()
		op, err := e.GetOperation(ctx, id)
		if err != nil || op.Over() {
			return op, err
		}
		select {
		case <-bell:
		case <-timer.C:
			return op, nil
		case <-ctx.Done():
			return op, ctx.Err()
		}
	}
}
