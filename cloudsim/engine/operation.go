package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var operations = store.Table[cloudsim.Operation]{
	Kind: cloudsim.KindOperation, Prefix: "op", CoalesceEvents: true,
	ID:   func(o *cloudsim.Operation) string { return string(o.ID) },
	Meta: func(o *cloudsim.Operation) *cloudsim.Meta { return &o.Meta },
	Index: map[string]func(*cloudsim.Operation) []string{byHold: func(o *cloudsim.Operation) []string {
		if o.HeldBy == "" {
			return nil
		}
		return []string{o.HeldBy}
	}},
}

const byHold = "hold"

// begin creates an operation for work on a resource, and ends the resource's earlier operation. If
// the work takes time, begin adds the work to the due list. begin changes m, the metadata of the
// resource, and the caller must store m afterward. begin returns true if the work takes time, or
// if a hold or a fault blocks the operation. If begin returns false, the caller must complete the
// work at once.
func (e *Engine) begin(tx *store.Tx, call Call, verb cloudsim.Verb, kind cloudsim.ResourceKind, id string, m *cloudsim.Meta, profile time.Duration) (waits bool, err error) {
	if err := e.supersede(tx, m.Operation, verb); err != nil {
		return false, err
	}
	lasts, err := durationOf(tx, kind, verb, profile)
	if err != nil {
		return false, err
	}
	opID, err := operations.NextID(tx)
	if err != nil {
		return false, err
	}
	op := cloudsim.Operation{
		ID:   cloudsim.OperationID(opID),
		Meta: cloudsim.Meta{Name: opID, Project: m.Project},
		Verb: verb, Kind: kind, Target: id,
		State: cloudsim.OperationPending, RequestID: call.RequestID, Caller: call.Caller,
	}
	if err := op.Move(cloudsim.Start); err != nil {
		return false, err
	}
	m.Operation = op.ID
	op.HeldBy = string(call.stuckBy)
	if lasts > 0 {
		due := tx.Now.Add(lasts)
		op.DueAt = &due
	}
	if err := operations.Put(tx, &op); err != nil {
		return false, err
	}
	if lasts <= 0 {
		return isHeld(tx, op)
	}
	return true, tx.Later(*op.DueAt, store.Work{Kind: kind, ID: id, Verb: cloudsim.Settle, Operation: op.ID})
}

// supersede ends an operation that a newer operation replaces. The old
// operation fails with Conflict.
func (e *Engine) supersede(tx *store.Tx, id cloudsim.OperationID, by cloudsim.Verb) error {
	return e.endOperation(tx, id, cloudsim.Fail, &cloudsim.OperationError{Kind: cloudsim.Conflict, Detail: "replaced by a newer operation (" + string(by) + ")"})
}

// endOperation finishes an operation. It does nothing if the operation is over or no
// longer exists.
func (e *Engine) endOperation(tx *store.Tx, id cloudsim.OperationID, verb cloudsim.Verb, why *cloudsim.OperationError) error {
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
	op.Percent = op.PercentAt(tx.Now) // call PercentAt before op.Move, because the result of PercentAt depends on the state
	if err := op.Move(verb); err != nil {
		return err
	}
	now := tx.Now
	op.EndedAt, op.Error, op.HeldBy, op.Percent = &now, why, "", op.PercentAt(now)
	if err := operations.Put(tx, &op); err != nil {
		return err
	}
	due := now.Add(retention).Truncate(forgetEvery).Add(forgetEvery)
	return tx.LaterOnce(due, store.Work{Kind: cloudsim.KindOperation, Verb: cloudsim.Delete})
}

// forgetEvery is the interval at which the loop deletes old operations. All
// operations that end within one interval share one work item, so the due list
// stays short.
const forgetEvery = time.Minute

// forgetOperations deletes the operations that have been over for the retention
// time or longer.
func (e *Engine) forgetOperations(tx *store.Tx, w store.Work) error {
	until := tx.Now.Add(-retention)
	var old []cloudsim.Operation
	for op, err := range operations.Scan(tx, "", "") { // Scan yields the oldest operations first
		if err != nil {
			return err
		}
		if len(old) == settleBatch {
			break
		}
		if op.CreatedAt.After(tx.Now) || len(op.ID) > len("op-ffffff") && op.CreatedAt.After(until) {
			continue // skip op: a user set the clock back after its creation, or its id is longer and therefore sorts before the ids of older operations
		}
		if op.CreatedAt.After(until) {
			break
		}
		if op.EndedAt != nil && !op.EndedAt.After(until) {
			old = append(old, op)
		}
	}
	for i := range old {
		if err := operations.Delete(tx, &old[i]); err != nil {
			return err
		}
	}
	if len(old) < settleBatch {
		return nil
	}
	return tx.Later(tx.Now, w) // the next transaction deletes the remaining operations
}

// GetOperation returns an operation.
func (e *Engine) GetOperation(ctx context.Context, id cloudsim.OperationID) (cloudsim.Operation, error) {
	op, err := read(ctx, e.core, operations, string(id))
	if err == nil {
		op.Percent = op.PercentAt(e.Now())
	}
	return op, err
}

// ListOperations returns one page of operations. The cloud keeps finished
// operations for a day.
func (e *Engine) ListOperations(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Operation], error) {
	if o.State != "" && !slices.Contains(cloudsim.OperationStates(), cloudsim.OperationState(o.State)) {
		return cloudsim.List[cloudsim.Operation]{}, cloudsim.InvalidField("query.state", fmt.Sprintf("must be pending, running, done, failed or cancelled, got %q", cloudsim.Clip(o.State)))
	}
	l, err := listPage(ctx, e.core, operations, o, nil)
	now := e.Now()
	for i := range l.Items {
		l.Items[i].Percent = l.Items[i].PercentAt(now)
	}
	return l, err
}

// AwaitOperation waits until an operation is over, and returns the operation. If maxWait ends
// first, AwaitOperation returns the operation in its present state. If ctx ends first,
// AwaitOperation returns the operation and the error of ctx.
func (e *Engine) AwaitOperation(ctx context.Context, id cloudsim.OperationID, maxWait time.Duration) (cloudsim.Operation, error) {
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	for {
		changed := e.store.Changed()
		op, err := e.GetOperation(ctx, id)
		if err != nil || op.Over() {
			return op, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return op, nil
		case <-ctx.Done():
			return op, ctx.Err()
		}
	}
}
