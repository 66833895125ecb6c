package engine

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var holds = store.Table[cloudsim.Hold]{
	Kind: cloudsim.KindHold, Prefix: "hold",
	ID:   func(h *cloudsim.Hold) string { return string(h.ID) },
	Meta: func(h *cloudsim.Hold) *cloudsim.Meta { return &h.Meta },
}

// mustNotSettle reports whether the engine must not complete (settle) the due work of an operation.
// This is the case if the operation is over or no longer exists, or if a hold or a fault blocks the
// operation. For work without an operation, the id is empty and the result is false.
func mustNotSettle(tx *store.Tx, id cloudsim.OperationID) (bool, error) {
	if id == "" {
		return false, nil
	}
	op, err := operations.Get(tx, string(id))
	switch {
	case errors.Is(err, cloudsim.NotFound) || err == nil && op.Over():
		return true, nil
	case err != nil:
		return false, err
	}
	return isHeld(tx, op)
}

// isHeld reports whether a hold or a fault keeps an operation unfinished. If a hold blocks the
// operation, isHeld stores the id of the hold in the operation. The engine calls isHeld at the due
// time of the operation. A hold therefore also blocks operations that began before a client created
// the hold.
func isHeld(tx *store.Tx, op cloudsim.Operation) (bool, error) {
	if is, err := isStuck(tx, op); is || err != nil {
		return is, err
	}
	for h, err := range holds.Scan(tx, "", "") {
		if err != nil {
			return false, err
		}
		if h.Holds(op) {
			op.HeldBy = string(h.ID)
			return true, operations.Put(tx, &op)
		}
	}
	return false, nil
}

// release unblocks an operation that a hold or a fault has blocked. If the operation is due,
// release completes it in the same transaction. If release left this work to the loop in Run, the
// same calls would not always write their events in the same order.
//
// If the operation is not due, release puts the operation on the due list, because the list may not
// contain it. For example, the loop in Run removes a blocked operation from the list at its due
// time. If a user then sets the clock back, the operation is no longer due.
func (e *Engine) release(tx *store.Tx, op *cloudsim.Operation) error {
	op.HeldBy = ""
	if err := operations.Put(tx, op); err != nil {
		return err
	}
	work := store.Work{Kind: op.Kind, ID: op.Target, Verb: cloudsim.Settle, Operation: op.ID}
	if op.DueAt != nil && op.DueAt.After(tx.Now) {
		return tx.Later(*op.DueAt, work)
	}
	defer func(caller, cause string) { tx.Caller, tx.Cause = caller, cause }(tx.Caller, tx.Cause) // settleOne sets other values
	return e.settleOne(tx, work)
}

// releaseAll releases the operations that the hold or fault with the id blockerID blocks. It reads
// each operation again, because the end of one operation may end other operations. For example, an
// instance that terminates ends the operations of its disks.
func (e *Engine) releaseAll(tx *store.Tx, blockerID string) error {
	kept, err := operations.Lookup(tx, byHold, blockerID)
	if err != nil {
		return err
	}
	for _, k := range kept {
		op, err := operations.Get(tx, string(k.ID))
		if errors.Is(err, cloudsim.NotFound) || err == nil && op.HeldBy != blockerID {
			continue
		}
		if err != nil {
			return err
		}
		if err := e.release(tx, &op); err != nil {
			return err
		}
	}
	return nil
}

// CreateHold creates a hold, or returns the existing hold with the same name and fields. After
// CreateHold has returned, operations that match the hold stay unfinished until a client deletes
// the hold or releases the operation.
func (e *Engine) CreateHold(ctx context.Context, req cloudsim.CreateHold) (h cloudsim.Hold, err error) {
	if err := req.Validate(); err != nil {
		return h, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		h, err = idempotent(tx, call, holds, req, func() (cloudsim.Hold, error) { return makeHold(tx, req) })
		return err
	})
	return h, err
}

func makeHold(tx *store.Tx, req cloudsim.CreateHold) (h cloudsim.Hold, err error) {
	have, err := holds.Named(tx, "", req.Name)
	switch {
	case err == nil && (have.HoldSpec != req.HoldSpec || !maps.Equal(have.Labels, req.Labels)):
		return have, errNameTaken(cloudsim.KindHold, req.Name, string(have.ID), "other fields")
	case err == nil:
		return have, nil
	case !errors.Is(err, cloudsim.NotFound):
		return h, err
	}
	id, err := holds.NextID(tx)
	if err != nil {
		return h, err
	}
	h = cloudsim.Hold{ID: cloudsim.HoldID(id), Meta: cloudsim.Meta{Name: req.Name, Labels: req.Labels}, HoldSpec: req.HoldSpec}
	return h, holds.Put(tx, &h)
}

// GetHold returns a hold.
func (e *Engine) GetHold(ctx context.Context, id cloudsim.HoldID) (cloudsim.Hold, error) {
	return read(ctx, e.core, holds, string(id))
}

// ListHolds returns one page of holds.
func (e *Engine) ListHolds(ctx context.Context, o cloudsim.ListOptions) (l cloudsim.List[cloudsim.Hold], err error) {
	if ctx, err = withoutProject(ctx); err != nil {
		return l, err
	}
	return listPage(ctx, e.core, holds, o, nil)
}

// DeleteHold deletes a hold and releases the operations that this hold blocks. If a released
// operation is due, and no other hold blocks the operation, it ends at once.
func (e *Engine) DeleteHold(ctx context.Context, id cloudsim.HoldID) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		h, err := get(tx, call, holds, string(id))
		if err != nil {
			return err
		}
		if err := holds.Delete(tx, &h); err != nil { // delete the hold before the release: the hold must not block the released operations again
			return err
		}
		return e.releaseAll(tx, string(id))
	})
}

// ReleaseOperation exempts one operation from all holds, and from faults that block it. The
// operation ends when it is due, or at once if it is already due. ReleaseOperation returns Conflict
// if the operation is over.
func (e *Engine) ReleaseOperation(ctx context.Context, id cloudsim.OperationID) (op cloudsim.Operation, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if op, err = get(tx, call, operations, string(id)); err != nil {
			return err
		}
		if op.Over() {
			return cloudsim.Errorf(cloudsim.Conflict, "operation %s is %s: there is nothing to release", id, op.State)
		}
		op.Released = true
		if op.HeldBy == "" {
			return operations.Put(tx, &op)
		}
		if err := e.release(tx, &op); err != nil {
			return err
		}
		op, err = operations.Get(tx, string(id))
		return err
	})
	return op, err
}

// workDurations stores durations that override the durations in Config.Profile. A change applies to
// work that begins after the change.
var workDurations = store.Notes[cloudsim.WorkDurations]{Name: "durations"}

const allDurations = "all"

// durationOf returns the stored duration for a kind of resource and a verb. If the store has no
// duration for them, durationOf returns profileTime.
func durationOf(tx *store.Tx, kind cloudsim.ResourceKind, verb cloudsim.Verb, profileTime time.Duration) (time.Duration, error) {
	durations, ok, err := workDurations.Get(tx, allDurations)
	if err != nil || !ok {
		return profileTime, err
	}
	for _, d := range durations.Items {
		if d.Covers(kind, verb) {
			return time.Duration(d.Millis) * time.Millisecond, nil
		}
	}
	return profileTime, nil
}

// GetDurations returns the durations that SetDurations has stored.
func (e *Engine) GetDurations(ctx context.Context) (d cloudsim.WorkDurations, err error) {
	if _, err := callOf(ctx); err != nil {
		return d, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		d, _, err = workDurations.Get(tx, allDurations)
		return err
	})
	if d.Items == nil {
		d.Items = []cloudsim.WorkDuration{}
	}
	return d, err
}

// SetDurations replaces the whole list of stored durations. The stored durations override the
// durations in Config.Profile.
func (e *Engine) SetDurations(ctx context.Context, req cloudsim.WorkDurations) (cloudsim.WorkDurations, error) {
	if err := req.Validate(); err != nil {
		return req, err
	}
	if req.Items == nil {
		req.Items = []cloudsim.WorkDuration{}
	}
	return req, e.update(ctx, func(tx *store.Tx, _ Call) error { return workDurations.Put(tx, allDurations, req) })
}
