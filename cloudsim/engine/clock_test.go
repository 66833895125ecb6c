package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

var newYear = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func frozen(c *engine.Config) { c.FrozenAt = newYear }

func advance(t *testing.T, e *engine.Engine, ctx context.Context, d time.Duration) cloudsim.Clock {
	t.Helper()
	k, err := e.AdvanceClock(ctx, cloudsim.AdvanceClock{Seconds: d.Seconds()})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestBillOfAFrozenCloud proves that the bill of a new cloud with a stopped clock begins at the
// time of this clock.
func TestBillOfAFrozenCloud(t *testing.T) {
	e, stop := boot(t, file(t), frozen)
	defer stop()
	b := must(e.Bill(engine.AsCloud(t.Context()), cloudsim.AuditOptions{}))(t)
	if !b.From.Equal(newYear) || !b.To.Equal(newYear) {
		t.Errorf("bill of a new cloud: got %s to %s, want both %s", b.From, b.To, newYear)
	}
}

// TestAdvanceSettlesInOrder proves that AdvanceClock completes each due work item at its due time,
// in the order of the due times. AdvanceClock does not complete work that is due after the new
// time.
func TestAdvanceSettlesInOrder(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen)
	defer stop()
	var made []cloudsim.Instance
	for n := range 5 {
		made = append(made, mustCreate(t, e, ctx, fmt.Sprintf("n%d", n)))
		advance(t, e, ctx, 10*time.Second)
	}
	k := advance(t, e, ctx, 60*time.Second) // the first three instances are at least 90 s old
	if want := newYear.Add(110 * time.Second); !k.Now.Equal(want) || k.Mode != cloudsim.ClockFrozen {
		t.Errorf("clock after the advance: got %+v, want %s and frozen", k, want)
	}
	if k.NextDue == nil || !k.NextDue.Equal(newYear.Add(120*time.Second)) {
		t.Errorf("next due time: got %v", k.NextDue)
	}
	for n, i := range made {
		i, err := e.GetInstance(ctx, i.ID)
		if err != nil {
			t.Fatal(err)
		}
		settled := newYear.Add(time.Duration(10*n)*time.Second + slow.Provision)
		switch {
		case n <= 2 && (i.State != cloudsim.InstanceRunning || !i.UpdatedAt.Equal(settled)):
			t.Errorf("%s: got state %s since %s, want running since %s", i.ID, i.State, i.UpdatedAt, settled)
		case n > 2 && i.State != cloudsim.InstanceProvisioning:
			t.Errorf("%s: got state %s before its due time, want provisioning", i.ID, i.State)
		}
	}
	l, err := e.ListEvents(ctx, cloudsim.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(l.Items, func(a, b cloudsim.Event) int { return a.Time.Compare(b.Time) }) {
		t.Error("the times of the journal are not in order")
	}
}

// TestAdvanceCompletesNewWork proves that AdvanceClock also completes new work items that begin
// during the call. In this test, the end of an operation adds a work item that deletes the
// operation a day later.
func TestAdvanceCompletesNewWork(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen)
	defer stop()
	i := mustCreate(t, e, ctx, "a")
	advance(t, e, ctx, slow.Provision+24*time.Hour+time.Minute)
	if _, err := e.GetOperation(ctx, i.Operation); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("operation a day after its end: got error %v, want NotFound", err)
	}
}

// TestClockSurvivesRestart proves that the clock keeps its rate after a restart. While the cloud is
// down, a frozen clock does not move, and a running clock continues.
func TestClockSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, ctx := file(t), engine.AsCloud(t.Context())
		e, stop := boot(t, path, frozen)
		i := mustCreate(t, e, ctx, "a")
		stop()
		time.Sleep(time.Hour)
		e, stop = boot(t, path) // without the option frozen, because an existing cloud keeps its clock
		if got := e.Now(); !got.Equal(newYear) {
			t.Errorf("time after an hour: got %s, want %s", got, newYear)
		}
		if i, _ = e.GetInstance(ctx, i.ID); i.State != cloudsim.InstanceProvisioning {
			t.Errorf("the frozen clock advanced: instance is %s", i.State)
		}
		if _, err := e.SetClock(ctx, cloudsim.SetClock{Rate: new(60.0)}); err != nil {
			t.Fatal(err)
		}
		stop()
		time.Sleep(time.Minute)
		e, stop = boot(t, path)
		defer stop()
		if got, want := e.Now(), newYear.Add(time.Hour); !got.Equal(want) {
			t.Errorf("time after a minute at 60-fold speed: got %s, want %s", got, want)
		}
	})
}

// TestWorkFollowsTheClock proves that the cloud's clock determines when an operation ends. If the
// clock's rate is 90, an operation of 90 seconds ends after one second of real time. While the
// clock is frozen, the operation does not end. When a caller sets the clock past the due time, the
// operation ends at once.
func TestWorkFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, stop := boot(t, file(t))
		defer stop()
		state := func(id cloudsim.InstanceID) cloudsim.InstanceState {
			synctest.Wait()
			i, err := e.GetInstance(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			return i.State
		}
		set := func(req cloudsim.SetClock) {
			t.Helper()
			if _, err := e.SetClock(ctx, req); err != nil {
				t.Fatal(err)
			}
		}
		a := mustCreate(t, e, ctx, "a")
		set(cloudsim.SetClock{Rate: new(90.0)})
		time.Sleep(999 * time.Millisecond)
		before := state(a.ID)
		time.Sleep(2 * time.Millisecond)
		if after := state(a.ID); before != cloudsim.InstanceProvisioning || after != cloudsim.InstanceRunning {
			t.Errorf("state at 90-fold speed: got %s just before 90 s and %s after 90 s, want provisioning and running", before, after)
		}
		set(cloudsim.SetClock{Rate: new(0.0)})
		b := mustCreate(t, e, ctx, "b")
		time.Sleep(100 * time.Hour)
		if got := state(b.ID); got != cloudsim.InstanceProvisioning {
			t.Errorf("state on a frozen clock: got %s, want provisioning", got)
		}
		set(cloudsim.SetClock{Real: true})
		if got := state(b.ID); got != cloudsim.InstanceRunning {
			t.Errorf("state after the switch to the machine's time, 100 hours later: got %s, want running", got)
		}
		set(cloudsim.SetClock{AheadSeconds: new(-3600.0)})
		if k, err := e.GetClock(ctx); err != nil || k.Mode != cloudsim.ClockOffset || k.AheadSeconds != -3600 {
			t.Errorf("clock that is an hour behind: got %+v, %v", k, err)
		}
		c := mustCreate(t, e, ctx, "c")
		time.Sleep(slow.Provision)
		if got := state(c.ID); got != cloudsim.InstanceRunning {
			t.Errorf("state after its due time on a clock that is an hour behind: got %s", got)
		}
	})
}

// TestAdvanceOfARunningClock proves that AdvanceClock moves a running clock
// forward, and that the clock then continues to run.
func TestAdvanceOfARunningClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, stop := boot(t, file(t))
		defer stop()
		i, began := mustCreate(t, e, ctx, "a"), e.Now()
		advance(t, e, ctx, 10*time.Minute)
		i, err := e.GetInstance(ctx, i.ID)
		if diff := cmp.Diff(began.Add(slow.Provision), i.UpdatedAt); err != nil || i.State != cloudsim.InstanceRunning || diff != "" {
			t.Errorf("instance after the advance: got state %s, error %v, want running since its due time (-want +got):\n%s", i.State, err, diff)
		}
		time.Sleep(time.Second)
		if got, want := e.Now(), began.Add(10*time.Minute+time.Second); !got.Equal(want) {
			t.Errorf("time: got %s, want %s", got, want)
		}
	})
}

// TestCancelledAdvance calls AdvanceClock with a ctx that has ended. It proves that AdvanceClock
// returns Unavailable and does not move the clock.
func TestCancelledAdvance(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, stop := boot(t, file(t), frozen)
	defer stop()
	mustCreate(t, e, ctx, "a")
	late, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := e.AdvanceClock(late, cloudsim.AdvanceClock{Seconds: 3600}); !errors.Is(err, cloudsim.Unavailable) {
		t.Errorf("cancelled advance: got error %v, want Unavailable", err)
	}
	if got := e.Now(); !got.Equal(newYear) {
		t.Errorf("clock after the cancelled advance: got %s, want %s", got, newYear)
	}
}
