package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Some faults are not an answer to a call but a state of the cloud. Examples
// are a zone outage, an operation that does not end, and stale reads.

// Under returns the ctx with which a call runs after strike hit. The ctx
// applies stale reads and stuck operations. Other effects do not change it.
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

// stuck reports whether a fault keeps an operation from settling. The fault
// must have struck the call that began the operation. The fault must still
// exist, and its window must be open.
func stuck(tx *store.Tx, op cloudsim.Operation) (bool, error) {
	if op.Released || !strings.HasPrefix(op.HeldBy, faults.Prefix+"-") {
		return false, nil
	}
	f, err := faults.Get(tx, op.HeldBy)
	if errors.Is(err, cloudsim.NotFound) {
		return false, nil
	}
	return err == nil && f.OpenAt(tx.Now), err
}

// begins puts the begin and the end of a fault's window on the due list. If the
// window is already open, begins also starts the zone outage of the fault.
func begins(tx *store.Tx, f cloudsim.Fault) error {
	from, until := f.Window()
	for _, at := range []*time.Time{&from, until} {
		if at == nil || !at.After(tx.Now) {
			continue
		}
		if err := tx.Later(*at, store.Work{Kind: cloudsim.KindFault, ID: string(f.ID), Verb: cloudsim.Settle}); err != nil {
			return err
		}
	}
	return keepOutages(tx)
}

// settledFault applies the begin or the end of a fault's window.
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

// keepOutages sets the outage of each zone according to the open faults. It
// writes only the zones that change, so it may be called whenever a fault may
// have begun or ended.
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
