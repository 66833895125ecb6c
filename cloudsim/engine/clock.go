package engine

import (
	"context"
	"math"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Now is the cloud's time, in UTC: for what needs it outside a transaction. In
// one, use tx.Now, which is the same clock read once. Never time.Now, for
// anything that a person could want to wait for: a clock that is frozen,
// offset, faster or advanced must move it.
//
// A person may set the clock back, so a duration since an earlier Now may be
// negative: who counts by it takes max(0, …). It costs a read of the store.
func (e *Engine) Now() time.Time { return e.store.Time() }

// startClock freezes the clock of a cloud that is new, if it is to be.
func (e *Engine) startClock(tx *store.Tx) error {
	if e.cfg.FrozenAt.IsZero() || tx.Revision() > 0 {
		return nil
	}
	return tx.SetClock(store.Clock{Machine: tx.Machine, Cloud: e.cfg.FrozenAt.UTC().Round(0)})
}

// clockOf is the clock as a transaction sees it.
func clockOf(tx *store.Tx) cloudsim.Clock {
	c := tx.Clock()
	k := cloudsim.Clock{Now: tx.Now, Rate: c.Rate, AheadSeconds: tx.Now.Sub(tx.Machine).Seconds()}
	switch {
	case c.Real():
		k.Mode, k.Rate = cloudsim.ClockReal, 1
	case c.Rate == 0:
		k.Mode = cloudsim.ClockFrozen
	case c.Rate == 1:
		k.Mode = cloudsim.ClockOffset
	case c.Rate > 1:
		k.Mode = cloudsim.ClockFaster
	default:
		k.Mode = cloudsim.ClockSlower
	}
	if at, ok := tx.NextDue(); ok {
		k.NextDue = &at
	}
	return k
}

// GetClock returns the cloud's time and how it passes.
func (e *Engine) GetClock(ctx context.Context) (k cloudsim.Clock, err error) {
	if _, err := callOf(ctx); err != nil {
		return k, err
	}
	err = e.store.View(func(tx *store.Tx) error { k = clockOf(tx); return nil })
	return k, err
}

// SetClock changes how time passes, durably, from when it returned. Work that
// is due by the new time settles soon after; AdvanceClock waits for it. An
// advance that is under way is waited for: it would set its own time after this.
func (e *Engine) SetClock(ctx context.Context, req cloudsim.SetClock) (k cloudsim.Clock, err error) {
	if err := req.Validate(); err != nil {
		return k, err
	}
	e.settling.Lock()
	defer e.settling.Unlock()
	if ctx.Err() != nil {
		return k, cloudsim.Errorf(cloudsim.Unavailable, "the clock was being advanced: %w", ctx.Err())
	}
	err = e.update(ctx, func(tx *store.Tx, _ Call) error {
		next := running(tx)
		switch {
		case req.Real:
			next = store.Clock{}
		case req.Time != nil:
			next.Cloud = req.Time.UTC().Round(0)
		case req.AheadSeconds != nil:
			next.Cloud = tx.Machine.Add(seconds(*req.AheadSeconds))
		}
		if req.Rate != nil {
			next.Rate = *req.Rate
		}
		if err := tx.SetClock(next); err != nil {
			return err
		}
		k = clockOf(tx)
		return nil
	})
	return k, err
}

// running is the clock as it is, said anew from this instant on.
func running(tx *store.Tx) store.Clock {
	c := store.Clock{Machine: tx.Machine, Cloud: tx.Now, Rate: 1}
	if is := tx.Clock(); !is.Real() {
		c.Rate = is.Rate
	}
	return c
}

// AdvanceClock moves the clock forward and returns when everything that fell
// due until then has settled, also what that put on the due list in turn: in
// the order it fell due, each piece with its own due time as the time of its
// transaction. (On a clock that runs meanwhile, that time may be later by what
// settling the pieces before it took.)
//
// It takes as long as the work does. When ctx ends first the clock stands
// where the work has come to, and the error says so: advance again.
func (e *Engine) AdvanceClock(ctx context.Context, req cloudsim.AdvanceClock) (k cloudsim.Clock, err error) {
	if err := req.Validate(); err != nil {
		return k, err
	}
	if _, err := callOf(ctx); err != nil {
		return k, err
	}
	e.settling.Lock()
	defer e.settling.Unlock()
	var goal store.Clock
	if err := e.store.View(func(tx *store.Tx) error {
		goal = running(tx)
		goal.Cloud = goal.Cloud.Add(seconds(req.Seconds))
		return nil
	}); err != nil {
		return k, err
	}
	if goal.Cloud.After(cloudsim.LastClockTime) {
		return k, cloudsim.InvalidField("seconds", "leads to "+goal.Cloud.Format(time.RFC3339)+"; the clock ends at "+cloudsim.LastClockTime.Format(time.RFC3339))
	}
	for done := false; !done; {
		if ctx.Err() != nil {
			return k, cloudsim.Errorf(cloudsim.Unavailable, "the clock got as far as %s: advance it again: %w", e.Now().Format(time.RFC3339), ctx.Err())
		}
		if err := e.settleIn(func(tx *store.Tx, settle func([]store.Work) error) error {
			done, err = stepTo(tx, goal, settle)
			k = clockOf(tx)
			return err
		}); err != nil {
			return k, err
		}
	}
	return k, nil
}

// stepTo moves the clock from one due time to the next and settles what is due
// there. It reports whether the clock has arrived; it stops before that when
// the transaction has grown to a batch.
func stepTo(tx *store.Tx, goal store.Clock, settle func([]store.Work) error) (arrived bool, err error) {
	for step := newStep(tx); step.goesOn(tx); {
		at, ok := tx.NextDue()
		if !ok || at.After(goal.Cloud) {
			return true, tx.SetClock(goal)
		}
		if at.After(tx.Now) {
			if err := tx.SetClock(store.Clock{Machine: tx.Machine, Cloud: at, Rate: goal.Rate}); err != nil {
				return false, err
			}
		}
		work, err := tx.TakeDue(1)
		if err != nil {
			return false, err
		}
		if err := settle(work); err != nil {
			return false, err
		}
	}
	return false, nil
}

// seconds is s as a duration, to the nanosecond where that is representable.
func seconds(s float64) time.Duration {
	return time.Duration(math.Round(s * float64(time.Second)))
}
