package engine

import (
	"context"
	"math"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Now returns the cloud's time in UTC. Use Now outside of transactions. Inside a transaction use
// tx.Now, which is the cloud's time at the start of the transaction. Do not use time.Now for times
// that users can observe, because users can stop the cloud's clock or change its time and rate.
//
// A user may set the clock back, so the duration since an earlier call of Now can be negative. A
// caller that measures a duration must therefore use max(0, duration). Each call of Now reads the
// store.
func (c *core) Now() time.Time { return c.store.Time() }

// startClock sets the clock of a new cloud to the configured time FrozenAt, and stops the clock. It
// does nothing if FrozenAt is zero. It also does nothing if the store already has events, because
// then the cloud is not new.
func (e *Engine) startClock(tx *store.Tx) error {
	if e.cfg.FrozenAt.IsZero() || tx.Revision() > 0 {
		return nil
	}
	return tx.SetClock(store.Clock{Machine: tx.Machine, Cloud: e.cfg.FrozenAt.UTC().Round(0)})
}

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

// GetClock returns the cloud's time and the rate of its clock.
func (e *Engine) GetClock(ctx context.Context) (k cloudsim.Clock, err error) {
	if _, err := callOf(ctx); err != nil {
		return k, err
	}
	err = e.store.View(func(tx *store.Tx) error { k = clockOf(tx); return nil })
	return k, err
}

// SetClock changes the time or the rate of the cloud's clock, or both. The change is effective when
// SetClock returns. Soon afterward, the loop in Run completes the work that is due at the new
// time. Unlike AdvanceClock, SetClock does not wait for this work. SetClock waits until a running
// AdvanceClock ends, because AdvanceClock would overwrite the new time.
//
// If SetClock sets the clock back, it also fills the rate limit bucket of each caller and each
// project. An empty bucket would get no tokens until the clock shows its earlier time again.
func (e *Engine) SetClock(ctx context.Context, req cloudsim.SetClock) (k cloudsim.Clock, err error) {
	if err := req.Validate(); err != nil {
		return k, err
	}
	e.settling.Lock()
	defer e.settling.Unlock()
	if ctx.Err() != nil {
		return k, cloudsim.Errorf(cloudsim.Unavailable, "the clock is unchanged, because another call was advancing the clock: %w", ctx.Err())
	}
	wentBack := false
	err = e.update(ctx, func(tx *store.Tx, _ Call) error {
		next := runningClock(tx)
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
		before := tx.Now
		if err := tx.SetClock(next); err != nil {
			return err
		}
		if wentBack = tx.Now.Before(before); wentBack {
			if err := rescheduleFaults(tx, before); err != nil {
				return err
			}
		}
		k = clockOf(tx)
		return nil
	})
	if err != nil || !wentBack {
		return k, err
	}
	return k, e.loadRates() // an old empty bucket would get no tokens until the clock shows its earlier time again
}

// runningClock returns a clock that begins at the present time of the cloud
// and has the present rate.
func runningClock(tx *store.Tx) store.Clock {
	c := store.Clock{Machine: tx.Machine, Cloud: tx.Now, Rate: 1}
	if is := tx.Clock(); !is.Real() {
		c.Rate = is.Rate
	}
	return c
}

// AdvanceClock moves the clock forward. It returns when the engine has completed all work that is
// due at the new time or earlier. This includes work that begins during the call. The engine
// completes the work in the order of the due times. While the engine completes a work item, a
// stopped clock shows the due time of this item. A running clock can show a later time, because the
// engine needs some time for the earlier work.
//
// AdvanceClock has no time limit of its own. If ctx ends before the clock has reached the new time,
// AdvanceClock returns Unavailable. A stopped clock then shows the due time of the last completed
// work item. If no work item is complete, the clock still shows its old time. The caller can call
// AdvanceClock again.
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
		goal = runningClock(tx)
		goal.Cloud = goal.Cloud.Add(seconds(req.Seconds))
		return nil
	}); err != nil {
		return k, err
	}
	if goal.Cloud.After(cloudsim.LastClockTime) {
		return k, cloudsim.InvalidField("seconds", "would move the clock to "+goal.Cloud.Format(time.RFC3339)+", after the last possible time "+cloudsim.LastClockTime.Format(time.RFC3339))
	}
	for done := false; !done; {
		if ctx.Err() != nil {
			return k, cloudsim.Errorf(cloudsim.Unavailable, "the clock was advanced only to %s (%w): advance the clock again", e.Now().Format(time.RFC3339), ctx.Err())
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

// stepTo moves the clock from one due time to the next. At each due time it completes the due work.
// It reports whether the clock has reached goal. The clock does not reach goal if the transaction
// first reaches its maximum size (see stepLimit).
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

// seconds returns a duration of s seconds, rounded to the nanosecond.
func seconds(s float64) time.Duration {
	return time.Duration(math.Round(s * float64(time.Second)))
}
