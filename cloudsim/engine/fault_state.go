package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// This file implements the faults that do more than delay or fail a call: zone
// outages, operations that do not end, and stale reads.

// Under returns a context for a call that a fault has hit. The handler continues the call with this
// context. If the effect of the fault is a stale read or a stuck operation, the returned context
// makes the engine's methods apply the effect. For other effects, Under returns ctx unchanged.
func Under(ctx context.Context, hit Strike) context.Context {
	call, ok := CallOf(ctx)
	if !ok || hit.Fault == nil {
		return ctx
	}
	switch hit.Fault.Effect.Type {
	case cloudsim.FaultStaleRead:
		call.asOf = call.At.Add(-time.Duration(hit.Fault.Effect.AgeSeconds) * time.Second)
	case cloudsim.FaultStuckState:
		call.stuckBy = hit.Fault.ID
	default:
		return ctx
	}
	return context.WithValue(ctx, callKey{}, call)
}

// isStuck reports whether a fault keeps an operation unfinished. This is the case if the fault has
// hit the call that began the operation, and no caller has released the operation. The fault must
// also still exist, and its time window must be open.
func isStuck(tx *store.Tx, op cloudsim.Operation) (bool, error) {
	if op.Released || !strings.HasPrefix(op.HeldBy, faults.Prefix+"-") {
		return false, nil
	}
	f, err := faults.Get(tx, op.HeldBy)
	if errors.Is(err, cloudsim.NotFound) {
		return false, nil
	}
	return err == nil && f.OpenAt(tx.Now), err
}

// scheduleFault adds work items to the due list for the start and the end of a fault's time window.
// If the window is already open, scheduleFault also starts the zone outage of the fault.
func scheduleFault(tx *store.Tx, f cloudsim.Fault) error {
	if err := scheduleWindow(tx, f, func(at time.Time) bool { return at.After(tx.Now) }); err != nil {
		return err
	}
	return keepOutages(tx)
}

// rescheduleFaults adds work items to the due list after a caller has set the cloud's clock back.
// Before the change, the clock showed the time oldTime. The loop in Run may have removed the items
// that are due between the new time and oldTime, so rescheduleFaults adds these items again. If an
// item is still on the due list, the engine runs it twice. The second run changes nothing.
func rescheduleFaults(tx *store.Tx, oldTime time.Time) error {
	for f, err := range faults.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		if err := scheduleWindow(tx, f, func(at time.Time) bool { return at.After(tx.Now) && !at.After(oldTime) }); err != nil {
			return err
		}
	}
	return keepOutages(tx)
}

// scheduleWindow adds a work item to the due list for the start of a fault's time window, and
// another work item for the end of the window. It adds a work item only if isDue returns true for
// the time of the item.
func scheduleWindow(tx *store.Tx, f cloudsim.Fault, isDue func(time.Time) bool) error {
	from, until := f.Window()
	for _, at := range []*time.Time{&from, until} {
		if at == nil || !isDue(*at) {
			continue
		}
		if err := tx.Later(*at, store.Work{Kind: cloudsim.KindFault, ID: string(f.ID), Verb: cloudsim.Settle}); err != nil {
			return err
		}
	}
	return nil
}

// settledFault runs at the start and at the end of a fault's time window. It starts or ends the
// zone outage of the fault. At the end, it also releases the operations that the fault has blocked.
func (e *Engine) settledFault(tx *store.Tx, w store.Work) error {
	f, err := faults.Get(tx, w.ID)
	if errors.Is(err, cloudsim.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !f.OpenAt(tx.Now) {
		if err := e.releaseAll(tx, string(f.ID)); err != nil {
			return err
		}
	}
	return keepOutages(tx)
}

// keepOutages updates the outage of each zone from the faults with an open time window. It writes
// only zones that change. Callers may therefore call keepOutages after every change that may begin
// or end a zone outage.
func keepOutages(tx *store.Tx) error {
	by := map[string]cloudsim.FaultID{}
	for f, err := range faults.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		if _, dark := by[f.Match.Zone]; !dark && f.Effect.Darkens() && f.OpenAt(tx.Now) {
			by[f.Match.Zone] = f.ID
		}
	}
	var changed []cloudsim.Zone
	for z, err := range zones.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		is, was := by[z.Name], cloudsim.FaultID("")
		if z.Outage != nil {
			was = z.Outage.Fault
		}
		if is == was {
			continue
		}
		if z.Outage = nil; is != "" {
			z.Outage = &cloudsim.ZoneOutage{Fault: is, Since: tx.Now}
		}
		changed = append(changed, z)
	}
	for i := range changed {
		if err := zones.Put(tx, &changed[i]); err != nil {
			return err
		}
	}
	return nil
}
