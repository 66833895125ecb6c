package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestNoticeActionsHappenOnTime proves that the action of a notice happens at the announced time,
// even after a restart. If a caller postpones a notice, its action happens at the new time. A
// withdrawn notice has no effect.
func TestNoticeActionsHappenOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := file(t)
		e, down := boot(t, path, instant)
		ctx := enter(t, e, "secret", "")
		doomed, rebooted, spared, stopped := mustCreate(t, e, ctx, "doomed"), mustCreate(t, e, ctx, "rebooted"), mustCreate(t, e, ctx, "spared"), mustCreate(t, e, ctx, "stopped")
		announce := func(i cloudsim.Instance, n cloudsim.NoticeType, in int64) {
			t.Helper()
			if _, err := e.AnnounceNotice(ctx, i.ID, cloudsim.CreateNotice{Type: n, InSeconds: in}); err != nil {
				t.Fatal(err)
			}
		}
		announce(doomed, "preemption", 10)
		announce(doomed, "preemption", 30) // a second announcement postpones the notice
		announce(rebooted, "maintenance", 30)
		announce(spared, "preemption", 30)
		announce(stopped, "maintenance", 30)
		if _, err := e.WithdrawNotice(ctx, spared.ID, "preemption"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.WithdrawNotice(ctx, spared.ID, "preemption"); !errors.Is(err, cloudsim.NotFound) {
			t.Errorf("second withdrawal: got error %v, want NotFound", err)
		}
		if _, err := e.StopInstance(ctx, stopped.ID); err != nil {
			t.Fatal(err)
		}
		down()
		time.Sleep(20 * time.Second)
		e, down = boot(t, path, instant)
		defer down()
		ctx = enter(t, e, "secret", "")
		synctest.Wait()
		if i, err := e.GetInstance(ctx, doomed.ID); err != nil || len(i.Notices) != 1 {
			t.Errorf("instance after the first time of a postponed notice: got %+v, error %v, want one notice", i, err)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if i, err := e.GetInstance(ctx, doomed.ID); !errors.Is(err, cloudsim.NotFound) {
			t.Errorf("instance after its preemption: got %+v, error %v, want NotFound", i, err)
		}
		i, err := e.GetInstance(ctx, rebooted.ID)
		if err != nil || i.State != cloudsim.InstanceRunning || len(i.Notices) != 0 || i.Operation == rebooted.Operation {
			t.Errorf("instance after its maintenance: got %+v, error %v, want running, with a new operation and no notice", i, err)
		}
		if i, err := e.GetInstance(ctx, spared.ID); err != nil || i.Operation != spared.Operation {
			t.Errorf("instance with a withdrawn notice: got %+v, error %v, want no new operation", i, err)
		}
		if i, err := e.GetInstance(ctx, stopped.ID); err != nil || i.State != cloudsim.InstanceStopped || len(i.Notices) != 0 {
			t.Errorf("stopped instance after the time of its maintenance: got %+v, error %v, want stopped, without a notice", i, err)
		}
	})
}

// TestUserData proves that the cloud stores the user data of an instance, and deletes the user data
// with the instance. If a repeated create call has other user data, it returns Exists.
func TestUserData(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	ctx := enter(t, e, "secret", "")
	req := cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small", UserData: "x"}
	i, err := e.CreateInstance(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if repeated, err := e.CreateInstance(ctx, req); err != nil || repeated.ID != i.ID {
		t.Errorf("repeated request: got %+v, error %v, want the first instance", repeated, err)
	}
	req.UserData = "y"
	if _, err := e.CreateInstance(ctx, req); !errors.Is(err, cloudsim.Exists) {
		t.Errorf("creation with the same name and other user data: got error %v, want Exists", err)
	}
	if d, err := e.GetUserData(ctx, i.ID); err != nil || d.UserData != "x" {
		t.Errorf("user data after a repeated create call: got %+v, error %v", d, err)
	}
	if _, err := e.DeleteInstance(ctx, i.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.GetUserData(ctx, i.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("user data of a deleted instance: got error %v", err)
	}
}

// TestMaintenanceOfACrashedInstance proves that a reboot for maintenance ends the crashed state of
// an instance, like every other reboot.
func TestMaintenanceOfACrashedInstance(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, frozen)
	defer down()
	i := mustCreate(t, e, ctx, "a")
	advance(t, e, ctx, time.Minute)
	must(e.CrashInstance(ctx, i.ID))(t)
	must(e.AnnounceNotice(ctx, i.ID, cloudsim.CreateNotice{Type: "maintenance", InSeconds: 10}))(t)
	advance(t, e, ctx, time.Minute)
	if i = must(e.GetInstance(ctx, i.ID))(t); i.State != cloudsim.InstanceRunning || i.Crashed != nil {
		t.Errorf("instance after its maintenance: got %+v", i)
	}
}
