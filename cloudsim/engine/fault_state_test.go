package engine_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

func effect(f cloudsim.FaultEffect) func(*cloudsim.CreateFault) {
	return func(r *cloudsim.CreateFault) { r.Effect = f }
}

func inZone(zone string) func(*cloudsim.CreateFault) {
	return func(r *cloudsim.CreateFault) { r.Match.Zone = zone }
}

func mustInstance(t *testing.T, e *engine.Engine, name, zone string) cloudsim.Instance {
	t.Helper()
	i, err := e.CreateInstance(enter(t, e, "secret", "default"), cloudsim.CreateInstance{Name: name, Zone: zone, Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestZoneOutageIsStateOfTheZone proves that a zone has an outage from the start of a fault's time
// window until the end of the window or the deletion of the fault. A restart of the cloud does not
// end the outage.
func TestZoneOutageIsStateOfTheZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, began := file(t), time.Now()
		e, down := boot(t, path, instant)
		admin := enter(t, e, "secret", "")
		dark := func(want cloudsim.FaultID) {
			t.Helper()
			z, err := e.GetZone(admin, "sim-1a")
			got := cloudsim.FaultID("")
			if z.Outage != nil {
				got = z.Outage.Fault
			}
			if err != nil || got != want {
				t.Fatalf("zone outage after %s: got fault %q, %v; want %q", time.Since(began), got, err, want)
			}
		}
		outage := effect(cloudsim.FaultEffect{Type: cloudsim.FaultZoneOutage, Scope: cloudsim.OutageData})
		f := mustFault(t, e, fault("a", "*", inZone("sim-1a"), outage, func(r *cloudsim.CreateFault) { r.When.AfterSeconds, r.When.ForSeconds = 60, 60 }))
		dark("")
		time.Sleep(90 * time.Second)
		dark(f.ID)
		down()
		e, down = boot(t, path, instant)
		defer down()
		admin = enter(t, e, "secret", "")
		dark(f.ID)
		time.Sleep(60 * time.Second)
		dark("")

		now := mustFault(t, e, fault("b", "*", inZone("sim-1a"), outage))
		dark(now.ID)
		both := mustFault(t, e, fault("c", "*", inZone("sim-1a"), effect(cloudsim.FaultEffect{Type: cloudsim.FaultZoneOutage})))
		if err := e.DeleteFault(admin, now.ID); err != nil {
			t.Fatal(err)
		}
		dark(both.ID)
		if err := e.DeleteFault(admin, both.ID); err != nil {
			t.Fatal(err)
		}
		dark("")
	})
}

// TestZoneOutageScopes proves that a zone outage with scope OutageAPI or
// OutageBoth hits calls about the zone. A zone outage with scope OutageData
// hits no calls.
func TestZoneOutageScopes(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	here, unaffected := mustInstance(t, e, "a", "sim-1a"), mustInstance(t, e, "b", "sim-1b")
	admin := enter(t, e, "secret", "")
	for scope, want := range map[cloudsim.ZoneOutageScope]bool{cloudsim.OutageAPI: true, cloudsim.OutageData: false, cloudsim.OutageBoth: true, "": true} {
		f := mustFault(t, e, fault("a", "*", inZone("sim-1a"), effect(cloudsim.FaultEffect{Type: cloudsim.FaultZoneOutage, Scope: scope})))
		hit, err := e.Decide(admin, engine.Subject{Operation: "instances.get", Target: string(here.ID)})
		other, err2 := e.Decide(admin, engine.Subject{Operation: "instances.get", Target: string(unaffected.ID)})
		if err != nil || (hit.Fault != nil) != want {
			t.Errorf("call about the zone of an outage with scope %q: got hit %t, error %v, want hit %t", scope, hit.Fault != nil, err, want)
		}
		if err2 != nil || other.Fault != nil {
			t.Errorf("call about another zone during an outage with scope %q: got fault %v, error %v, want no fault", scope, other.Fault, err2)
		}
		z, err := e.GetZone(admin, "sim-1a")
		if err != nil || z.Dark() != (scope != cloudsim.OutageAPI) {
			t.Errorf("zone of an outage with scope %q: got dark %t, error %v, want %t", scope, z.Dark(), err, scope != cloudsim.OutageAPI)
		}
		if err := e.DeleteFault(admin, f.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.CreateFault(admin, fault("b", "*", inZone("nowhere"), effect(cloudsim.FaultEffect{Type: cloudsim.FaultZoneOutage}))); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("outage of an unknown zone: got error %v, want Invalid", err)
	}
}

// TestStuckStateHoldsExactlyMax proves that a fault with the limit Max keeps exactly Max operations
// unfinished, even if concurrent callers begin the operations. After the deletion of the fault, all
// operations finish.
func TestStuckStateHoldsExactlyMax(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	const callers, most = 24, 9
	var all [callers]cloudsim.Instance
	for n := range all {
		all[n] = mustInstance(t, e, "i"+string(rune('a'+n)), "sim-1a")
	}
	f := mustFault(t, e, fault("a", "instances.stop", effect(cloudsim.FaultEffect{Type: cloudsim.FaultStuckState}), func(r *cloudsim.CreateFault) { r.When.Max = most }))
	var stuck atomic.Int64
	var wg sync.WaitGroup
	for _, i := range all {
		wg.Go(func() {
			ctx := enter(t, e, "secret", "default")
			hit, err := e.Decide(ctx, engine.Subject{Operation: "instances.stop", Target: string(i.ID)})
			if err != nil {
				t.Error(err)
				return
			}
			got, err := e.StopInstance(engine.Under(ctx, hit), i.ID)
			if err != nil {
				t.Error(err)
			}
			if got.State == cloudsim.InstanceStopping {
				stuck.Add(1)
				if op, err := e.GetOperation(ctx, got.Operation); err != nil || op.HeldBy != string(f.ID) {
					t.Errorf("hold of the operation: got %q, error %v, want %s", op.HeldBy, err, f.ID)
				}
			}
		})
	}
	wg.Wait()
	if stuck.Load() != most {
		t.Errorf("instances in state stopping: got %d, want %d", stuck.Load(), most)
	}
	admin := enter(t, e, "secret", "")
	if err := e.DeleteFault(admin, f.ID); err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		eventually.True(t, string(i.ID)+" is stopped", func() bool {
			got, err := e.GetInstance(admin, i.ID)
			return err == nil && got.State == cloudsim.InstanceStopped
		})
	}
}

// TestFaultsAfterTheClockGoesBack sets the clock back into the time window of two faults that have
// ended. It proves that the faults have an effect again, and end again.
func TestFaultsAfterTheClockGoesBack(t *testing.T) {
	e, down := boot(t, file(t), frozen, instant)
	defer down()
	admin := enter(t, e, "secret", "")
	minute := func(r *cloudsim.CreateFault) { r.When.ForSeconds = 60 }
	mustFault(t, e, fault("dark", "*", inZone("sim-1a"), effect(cloudsim.FaultEffect{Type: cloudsim.FaultZoneOutage}), minute))
	stuck := mustFault(t, e, fault("stuck", "instances.create", effect(cloudsim.FaultEffect{Type: cloudsim.FaultStuckState}), minute))
	isDark := func() bool {
		t.Helper()
		return must(e.ListZones(admin, cloudsim.ListOptions{Name: "sim-1a"}))(t).Items[0].Outage != nil
	}
	advance(t, e, admin, 2*time.Minute)
	if isDark() {
		t.Error("the zone is dark after the time window of the fault")
	}
	back := newYear.Add(10 * time.Second)
	must(e.SetClock(admin, cloudsim.SetClock{Time: &back}))(t)
	if !isDark() {
		t.Error("the zone is not dark in the time window of the fault")
	}
	ctx := enter(t, e, "secret", engine.DefaultProject)
	i := must(e.CreateInstance(engine.Under(ctx, engine.Strike{Fault: &stuck}), cloudsim.CreateInstance{Name: "a", Zone: "sim-1b", Type: "small"}))(t)
	if op := must(e.GetOperation(ctx, i.Operation))(t); op.HeldBy != string(stuck.ID) {
		t.Errorf("operation in the time window of the fault: got %+v, want an operation that the fault holds", op)
	}
	advance(t, e, admin, 2*time.Minute)
	if isDark() {
		t.Error("the zone is dark after the second end of the time window")
	}
	if op := must(e.GetOperation(ctx, i.Operation))(t); !op.Over() {
		t.Errorf("operation after the second end of the time window: got %+v, want an operation that is over", op)
	}
}

// TestStuckStateEndsWithItsWindow blocks an operation with a fault. The time window of the fault
// ends before the operation is due. The test proves that the operation ends at its due time, and
// not at the end of the window.
func TestStuckStateEndsWithItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), func(c *engine.Config) { c.Profile = engine.Profile{Name: "slow", Shutdown: 10 * time.Minute} })
		defer down()
		i := mustInstance(t, e, "a", "sim-1a")
		ctx := enter(t, e, "secret", "default")
		stuck := effect(cloudsim.FaultEffect{Type: cloudsim.FaultStuckState})
		mustFault(t, e, fault("a", "instances.stop", stuck, func(r *cloudsim.CreateFault) { r.When.ForSeconds = 60 }))
		hit, err := e.Decide(ctx, engine.Subject{Operation: "instances.stop", Target: string(i.ID)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.StopInstance(engine.Under(ctx, hit), i.ID); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, want := range []cloudsim.InstanceState{cloudsim.InstanceStopping, cloudsim.InstanceStopped} {
			time.Sleep(6 * time.Minute)
			synctest.Wait()
			if got, err := e.GetInstance(ctx, i.ID); err != nil || got.State != want {
				t.Errorf("instance %s after the call of StopInstance: got state %s, error %v, want %s", time.Since(began), got.State, err, want)
			}
		}
	})
}

// TestStaleReadReturnsEarlierState proves that a stale read returns the resources and the
// revision of an earlier time. It does not return resources that were created
// later. Resources that were deleted or changed later have their earlier
// values.
func TestStaleReadReturnsEarlierState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant)
		defer down()
		changed, deleted := mustInstance(t, e, "changed", "sim-1a"), mustInstance(t, e, "deleted", "sim-1a")
		ctx := enter(t, e, "secret", "default")
		then, err := e.ListInstances(ctx, cloudsim.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		made := mustInstance(t, e, "made", "sim-1a")
		if _, err := e.StopInstance(ctx, changed.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := e.DeleteInstance(ctx, deleted.ID); err != nil {
			t.Fatal(err)
		}
		mustFault(t, e, fault("a", "instances.*", effect(cloudsim.FaultEffect{Type: cloudsim.FaultStaleRead, AgeSeconds: 30})))
		ctx = enter(t, e, "secret", "default")
		if hit, err := e.Decide(ctx, engine.Subject{Operation: "instances.stop", Target: string(made.ID)}); err != nil || hit.Fault != nil {
			t.Errorf("the fault matched a write: %+v, %v", hit.Fault, err)
		}
		hit, err := e.Decide(ctx, engine.Subject{Operation: "instances.list"})
		if err != nil || hit.Fault == nil {
			t.Fatalf("read that matches the fault: got %+v, error %v, want a hit", hit, err)
		}
		stale := engine.Under(ctx, hit)
		got, err := e.ListInstances(stale, cloudsim.ListOptions{})
		if diff := cmp.Diff(then.Items, got.Items); diff != "" {
			t.Errorf("list of stale objects (-want +got):\n%s", diff)
		}
		if err != nil || got.Revision != then.Revision {
			t.Errorf("revision of the stale list: got %d, error %v, want %d", got.Revision, err, then.Revision)
		}
		if i, err := e.GetInstance(stale, deleted.ID); err != nil || i.State != cloudsim.InstanceRunning {
			t.Errorf("stale read of a later deleted instance: got state %s, error %v, want running", i.State, err)
		}
		if _, err := e.GetInstance(stale, made.ID); !errors.Is(err, cloudsim.NotFound) {
			t.Errorf("stale read of a later created instance: got error %v, want NotFound", err)
		}
		if l, err := e.ListInstances(stale, cloudsim.ListOptions{After: string(changed.ID), Limit: 1}); err != nil || len(l.Items) != 1 || l.Items[0].ID != deleted.ID {
			t.Errorf("second page: got %+v, %v", l.Items, err)
		}
	})
}

// TestStaleReadAfterALoad proves that a stale read returns the earlier value of a resource even
// after the load of a saved state. The load increases the revision of the cloud, but writes no
// event. If a stale read waited for an event with the cloud's revision, it would never end.
func TestStaleReadAfterALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant, withStates(t.TempDir()))
		defer down()
		ctx := enter(t, e, "secret", "default")
		i := mustInstance(t, e, "a", "sim-1a")
		time.Sleep(time.Minute)
		must(e.StopInstance(ctx, i.ID))(t)
		f := mustFault(t, e, fault("a", "instances.*", effect(cloudsim.FaultEffect{Type: cloudsim.FaultStaleRead, AgeSeconds: 30})))
		must(e.SaveState(ctx, cloudsim.SaveState{Name: "s"}))(t)
		if err := e.LoadState(ctx, "s", cloudsim.LoadState{}); err != nil {
			t.Fatal(err)
		}
		stale := engine.Under(enter(t, e, "secret", "default"), engine.Strike{Fault: &f})
		if got := must(e.GetInstance(stale, i.ID))(t); got.State != cloudsim.InstanceRunning {
			t.Errorf("instance 30 s ago: got state %s, want running", got.State)
		}
	})
}

// TestStaleListOfAProject proves that a stale list of tokens contains only the tokens of the call's
// project. Tokens that belong to no project are not in the list.
func TestStaleListOfAProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant)
		defer down()
		mine := must(e.CreateToken(enter(t, e, "secret", "default"), cloudsim.CreateToken{Name: "mine", Role: cloudsim.RoleWriter}))(t)
		f := mustFault(t, e, fault("a", "tokens.*", effect(cloudsim.FaultEffect{Type: cloudsim.FaultStaleRead, AgeSeconds: 1})))
		time.Sleep(time.Minute)
		stale := engine.Under(enter(t, e, mine.Secret, ""), engine.Strike{Fault: &f})
		if l := must(e.ListTokens(stale, cloudsim.ListOptions{}))(t); len(l.Items) != 1 || l.Items[0].ID != mine.ID {
			t.Errorf("got %+v, want only token %s", l.Items, mine.ID)
		}
	})
}

// TestFaultIsActiveBeforeItsCreation creates a fault without a start time, and then sets the clock
// back to a time before the creation. It proves that the fault is still active.
func TestFaultIsActiveBeforeItsCreation(t *testing.T) {
	e, down := boot(t, file(t), frozen, instant)
	defer down()
	admin := enter(t, e, "secret", "")
	advance(t, e, admin, time.Hour)
	mustFault(t, e, fault("dark", "*", inZone("sim-1a"), effect(cloudsim.FaultEffect{Type: cloudsim.FaultZoneOutage})))
	must(e.SetClock(admin, cloudsim.SetClock{Time: &newYear}))(t)
	if z := must(e.GetZone(admin, "sim-1a"))(t); z.Outage == nil {
		t.Errorf("zone: got %+v, want an outage", z)
	}
}
