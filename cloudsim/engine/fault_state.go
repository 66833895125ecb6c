package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Some faults are no answer to a call but a state of the cloud: a zone that is
// dark, an operation that does not end, a replica that is behind.

// Under is ctx for the work of a call that hit strikes.
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

// stuck reports whether a fault keeps an operation from settling: one that
// struck the call that began it, and is neither deleted nor over.
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

// begins puts on the due list when a fault that is a state begins and ends,
// and begins it if that is now.
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

// settledFault does what the beginning or the end of a fault's window asks for.
func (e *Engine) settledFault(tx *store.Tx, w store.Work) error {
	f, err := faults.Get(tx, w.ID)
	if errors.Is(err, cloudsim.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !f.OpenAt(tx.Now) {
		if err := e.letGoAll(tx, string(f.ID)); err != nil {
			return err
		}
	}
	return keepOutages(tx)
}

// keepOutages makes the zones say which of them are dark. It writes those that
// change, so it may be called whenever a fault may have begun or ended.
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
