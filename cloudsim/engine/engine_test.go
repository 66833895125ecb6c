package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var slow = engine.Profile{Name: "slow", Provision: 90 * time.Second, Boot: 30 * time.Second, Shutdown: 30 * time.Second, LoadBalancer: 60 * time.Second}

// boot starts an engine on the store file at path. The returned function stops the engine, checks
// the file with Engine.Check, and closes the store.
func boot(t testing.TB, path string, change ...func(*engine.Config)) (*engine.Engine, func()) {
	t.Helper()
	st, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Default()
	cfg.Profile = slow
	for _, c := range change {
		c(&cfg)
	}
	e := engine.New(slog.New(slog.DiscardHandler), st, cfg)
	if err := errors.Join(e.Prepare(), e.EnsureAdmin("secret")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	return e, func() {
		stop()
		if err := errors.Join(<-done, e.Check(), st.Close()); err != nil {
			t.Errorf("stopping: %v", err)
		}
	}
}

func instant(c *engine.Config) { c.Profile = engine.Instant }

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "cloud.db") }

func mustCreate(t *testing.T, e *engine.Engine, ctx context.Context, name string) cloudsim.Instance {
	t.Helper()
	i, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestSettlesAfterRestart proves that an instance starts on time even if the cloud restarts during
// the creation of the instance.
func TestSettlesAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, ctx := file(t), engine.AsCloud(t.Context())
		e, down := boot(t, path)
		i := mustCreate(t, e, ctx, "a")
		time.Sleep(30 * time.Second)
		down()

		e, down = boot(t, path)
		defer func() { down() }()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if i, _ = e.GetInstance(ctx, i.ID); i.State != cloudsim.InstanceProvisioning {
			t.Fatalf("instance 89 s after its creation: got state %s, want provisioning", i.State)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if i, _ = e.GetInstance(ctx, i.ID); i.State != cloudsim.InstanceRunning {
			t.Fatalf("instance 91 s after its creation: got state %s, want running", i.State)
		}
		if op, err := e.GetOperation(ctx, i.Operation); err != nil || op.State != cloudsim.OperationDone || op.Verb != cloudsim.Create {
			t.Fatalf("operation of the creation: got %+v, error %v, want verb create and state done", op, err)
		}
	})
}

// TestReplacedOperationDoesNotSettle proves that a newer operation on an instance replaces the
// earlier operation. At the due time of the earlier operation, the newer operation does not end.
func TestReplacedOperationDoesNotSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t))
		defer down()
		made := mustCreate(t, e, ctx, "a") // the creation would end at 90 s
		time.Sleep(80 * time.Second)
		i, err := e.DeleteInstance(ctx, made.ID) // the deletion ends at 110 s
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if i, err = e.GetInstance(ctx, i.ID); err != nil || i.State != cloudsim.InstanceTerminating {
			t.Fatalf("instance at 100 s: got state %s, error %v, want terminating", i.State, err)
		}
		if op, err := e.GetOperation(ctx, made.Operation); err != nil || op.State != cloudsim.OperationFailed || op.Error.Kind != cloudsim.Conflict {
			t.Errorf("operation that a later request replaced: got %+v, error %v, want state failed and kind Conflict", op, err)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if _, err := e.GetInstance(ctx, i.ID); !errors.Is(err, cloudsim.NotFound) {
			t.Fatalf("GetInstance at 111 s: got error %v, want NotFound", err)
		}
	})
}

// TestInstanceLife proves that an instance keeps its address when the instance
// stops and starts again. After the termination of the instance, another
// instance can get the address, but not the id.
func TestInstanceLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t))
		defer down()
		i := mustCreate(t, e, ctx, "a")
		ip := i.InternalIP()
		for _, step := range []struct {
			act   func(context.Context, cloudsim.InstanceID) (cloudsim.Instance, error)
			via   cloudsim.InstanceState
			state cloudsim.InstanceState
		}{
			{e.GetInstance, cloudsim.InstanceProvisioning, cloudsim.InstanceRunning},
			{e.StopInstance, cloudsim.InstanceStopping, cloudsim.InstanceStopped},
			{e.StartInstance, cloudsim.InstanceStarting, cloudsim.InstanceRunning},
			{e.RebootInstance, cloudsim.InstanceRebooting, cloudsim.InstanceRunning},
		} {
			got, err := step.act(ctx, i.ID)
			if err != nil || got.State != step.via {
				t.Fatalf("instance directly after the call: got state %s, error %v, want %s", got.State, err, step.via)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if got, err = e.GetInstance(ctx, i.ID); err != nil || got.State != step.state || got.InternalIP() != ip {
				t.Fatalf("instance two minutes after the call: got state %s with address %s, error %v, want %s with address %s", got.State, got.InternalIP(), err, step.state, ip)
			}
		}
		if _, err := e.StartInstance(ctx, i.ID); !errors.Is(err, cloudsim.Conflict) {
			t.Errorf("start of a running instance: got error %v, want Conflict", err)
		}
		if _, err := e.DeleteInstance(ctx, i.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"}); !errors.Is(err, cloudsim.Conflict) {
			t.Errorf("new instance with the name of a terminating instance: got error %v, want Conflict", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		next := mustCreate(t, e, ctx, "a")
		if next.InternalIP() != ip || next.ID == i.ID {
			t.Errorf("next instance: got %s at %s, want a new id at %s", next.ID, next.InternalIP(), ip)
		}
	})
}

// TestCrash proves that a crashed instance stays in state running until a client reboots it, and
// that only a running instance can crash.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t))
		defer down()
		i := mustCreate(t, e, ctx, "a")
		if _, err := e.CrashInstance(ctx, i.ID); !errors.Is(err, cloudsim.Conflict) {
			t.Errorf("crash of an instance that is not running yet: got error %v, want Conflict", err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		crashed, err := e.CrashInstance(ctx, i.ID)
		if err != nil || crashed.State != cloudsim.InstanceRunning || crashed.Crashed == nil {
			t.Fatalf("crash: got %+v, error %v, want a running instance with a crash time", crashed, err)
		}
		if second, err := e.CrashInstance(ctx, i.ID); err != nil || second.Revision != crashed.Revision {
			t.Errorf("second crash: got %+v, error %v, want no change", second, err)
		}
		if i, err = e.RebootInstance(ctx, i.ID); err != nil || i.Crashed != nil {
			t.Errorf("instance after the reboot: got %+v, error %v, want no crash time", i, err)
		}
	})
}

func TestCreateIsIdempotentByName(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	a := mustCreate(t, e, ctx, "a")
	if repeated := mustCreate(t, e, ctx, "a"); repeated.ID != a.ID || repeated.Revision != a.Revision {
		t.Errorf("repeated request: got %s at revision %d, want %s at %d", repeated.ID, repeated.Revision, a.ID, a.Revision)
	}
	if _, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1b", Type: "small"}); !errors.Is(err, cloudsim.Exists) {
		t.Errorf("creation with the same name in another zone: got error %v, want Exists", err)
	}
	if _, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "b", Zone: "nope", Type: "small"}); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("unknown zone: got error %v", err)
	}
}

func loadBalancer(name string, targets ...cloudsim.InstanceID) cloudsim.CreateLoadBalancer {
	req := cloudsim.CreateLoadBalancer{Name: name, Region: "sim-1", LoadBalancerSpec: cloudsim.LoadBalancerSpec{
		Listeners:   []cloudsim.Listener{{Protocol: cloudsim.TCP, Port: 80, TargetPort: 30080}},
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP},
	}}
	for _, id := range targets {
		req.Targets = append(req.Targets, cloudsim.Target{Instance: id})
	}
	return req
}

func TestLoadBalancer(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	a, b := mustCreate(t, e, ctx, "a"), mustCreate(t, e, ctx, "b")
	lb, err := e.CreateLoadBalancer(ctx, loadBalancer("shop", a.ID, b.ID))
	if err != nil || lb.State != cloudsim.LoadBalancerActive || lb.IP != "127.65.0.1" {
		t.Fatalf("new load balancer: got %+v, error %v", lb, err)
	}
	same, err := e.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{Targets: lb.Targets}, 0)
	if err != nil || same.Revision != lb.Revision {
		t.Errorf("same targets again: got revision %d, %v", same.Revision, err)
	}
	if _, err := e.UpdateLoadBalancer(ctx, lb.ID, cloudsim.UpdateLoadBalancer{LoadBalancerSpec: loadBalancer("", a.ID).LoadBalancerSpec}, lb.Revision-1); !errors.Is(err, cloudsim.Stale) {
		t.Errorf("update of an old revision: got error %v", err)
	}
	if _, err := e.SetLoadBalancerTargets(ctx, lb.ID, cloudsim.SetTargets{Targets: []cloudsim.Target{{Instance: a.ID}, {Instance: "i-ffffff"}}}, 0); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("unknown target: got error %v", err)
	}
	status := cloudsim.LoadBalancerStatus{Targets: []cloudsim.TargetStatus{{Instance: a.ID, Health: cloudsim.TargetHealthy}, {Instance: b.ID, Health: cloudsim.TargetHealthy}}}
	if err := e.ReportLoadBalancer(ctx, lb.ID, status); err != nil {
		t.Fatal(err)
	}
	reported, _ := e.GetLoadBalancer(ctx, lb.ID)
	if err := e.ReportLoadBalancer(ctx, lb.ID, status); err != nil {
		t.Fatal(err)
	}
	if second, _ := e.GetLoadBalancer(ctx, lb.ID); len(second.Status.Targets) != 2 || second.Revision != reported.Revision {
		t.Errorf("same report again: got revision %d after %d", second.Revision, reported.Revision)
	}
	// When a client deletes an instance, the cloud removes the instance from the targets of all
	// load balancers.
	if _, err := e.DeleteInstance(ctx, a.ID); err != nil {
		t.Fatal(err)
	}
	if got, _ := e.GetLoadBalancer(ctx, lb.ID); len(got.Targets) != 1 || got.Targets[0].Instance != b.ID || len(got.Status.Targets) != 1 {
		t.Errorf("targets after the deletion: got %+v, %+v", got.Targets, got.Status.Targets)
	}
	if _, err := e.DeleteLoadBalancer(ctx, lb.ID); err != nil {
		t.Fatal(err)
	}
	if left, err := e.ListAddresses(ctx, cloudsim.ListOptions{}); err != nil || len(left.Items) != 0 {
		t.Errorf("remaining addresses: got %+v, %v", left.Items, err)
	}
}

func TestStaticAddress(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant)
	defer down()
	addr, err := e.CreateAddress(ctx, cloudsim.CreateAddress{Name: "front"})
	if err != nil {
		t.Fatal(err)
	}
	req := loadBalancer("shop")
	req.Addresses = []string{"127.65.0.77"}
	if _, err := e.CreateLoadBalancer(ctx, req); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("address that is not reserved: got error %v", err)
	}
	req.Addresses = []string{addr.IP}
	lb, err := e.CreateLoadBalancer(ctx, req)
	if err != nil || lb.IP != addr.IP {
		t.Fatalf("load balancer with a static address: got %+v, error %v", lb, err)
	}
	six, err := e.CreateAddress(ctx, cloudsim.CreateAddress{Name: "six", Family: cloudsim.IPv6})
	if err != nil {
		t.Fatal(err)
	}
	both := loadBalancer("both")
	both.Addresses = []string{strings.ToUpper(netip.MustParseAddr(six.IP).StringExpanded())}
	for range 2 { // in the second round the load balancer exists already
		if lb, err := e.CreateLoadBalancer(ctx, both); err != nil || lb.Addresses[0].IP != six.IP {
			t.Fatalf("load balancer with an IPv6 address in another spelling: got %+v, error %v", lb, err)
		}
	}
	req.Name = "other"
	if _, err := e.CreateLoadBalancer(ctx, req); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("second load balancer with an address in use: got error %v, want Conflict", err)
	}
	if err := e.DeleteAddress(ctx, addr.ID); !errors.Is(err, cloudsim.Conflict) {
		t.Errorf("deletion of an address in use: got error %v, want Conflict", err)
	}
	if _, err := e.DeleteLoadBalancer(ctx, lb.ID); err != nil {
		t.Fatal(err)
	}
	if a, err := e.GetAddress(ctx, addr.ID); err != nil || a.UsedBy != "" || a.IP != addr.IP {
		t.Errorf("address after the deletion of the load balancer: got %+v, %v", a, err)
	}
	if err := e.DeleteAddress(ctx, addr.ID); err != nil {
		t.Error(err)
	}
}

// TestAddressRangeEnds proves that the cloud can assign all addresses of a range, and that it
// assigns a released address again.
func TestAddressRangeEnds(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, func(c *engine.Config) { c.Instances = prefix(t, "127.64.0.0/30") })
	defer down()
	mustCreate(t, e, ctx, "a")
	b := mustCreate(t, e, ctx, "b")
	if _, err := e.CreateInstance(ctx, cloudsim.CreateInstance{Name: "c", Zone: "sim-1a", Type: "small"}); !errors.Is(err, cloudsim.Exhausted) {
		t.Errorf("third instance in a range of two addresses: got error %v, want Exhausted", err)
	}
	if _, err := e.DeleteInstance(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	if c := mustCreate(t, e, ctx, "c"); c.InternalIP() != b.InternalIP() {
		t.Errorf("address of the new instance: got %s, want the released address %s", c.InternalIP(), b.InternalIP())
	}
}

func TestJournalIsCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), instant, func(c *engine.Config) { c.JournalKeep = 40 })
		defer down()
		for range 30 {
			i := mustCreate(t, e, ctx, "a")
			if _, err := e.DeleteInstance(ctx, i.ID); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if _, err := e.ListEvents(ctx, cloudsim.WatchOptions{Since: 1}); !errors.Is(err, cloudsim.Gone) {
			t.Fatalf("events after revision 1: got error %v, want Gone", err)
		}
		if evs, err := e.ListEvents(ctx, cloudsim.WatchOptions{}); err != nil || len(evs.Items) < 40 {
			t.Fatalf("all events: got %d, %v; want at least 40", len(evs.Items), err)
		}
		l, err := e.ListInstances(ctx, cloudsim.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		evs, err := e.ListEvents(ctx, cloudsim.WatchOptions{Since: l.Revision - 40})
		if err != nil || len(evs.Items) != 40 {
			t.Fatalf("last 40 events: got %d, %v", len(evs.Items), err)
		}
	})
}

// TestJournalBytesLimitsEvents proves that the journal keeps fewer than JournalKeep events while
// the used part of the store's file is larger than JournalBytes.
func TestJournalBytesLimitsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), instant, func(c *engine.Config) { c.JournalBytes = 256 << 10 })
		defer down()
		for range 1500 {
			a, err := e.CreateAddress(ctx, cloudsim.CreateAddress{Name: "a"})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.DeleteAddress(ctx, a.ID); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		n, l := 0, cloudsim.List[cloudsim.Event]{}
		for {
			var err error
			if l, err = e.ListEvents(ctx, cloudsim.WatchOptions{Since: l.Revision}); err != nil {
				t.Fatal(err)
			}
			if len(l.Items) == 0 {
				break
			}
			n += len(l.Items)
		}
		if n < 1000 || n > 1250 {
			t.Errorf("journal: got %d of 3000 events, want 1000 to 1250", n)
		}
	})
}

// TestOperationsAreForgotten proves that the cloud deletes a finished operation
// after a day.
func TestOperationsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), instant)
		defer down()
		i := mustCreate(t, e, ctx, "a")
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		if _, err := e.GetOperation(ctx, i.Operation); err != nil {
			t.Fatalf("operation 23 h after its end: got error %v, want it to exist", err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if _, err := e.GetOperation(ctx, i.Operation); !errors.Is(err, cloudsim.NotFound) {
			t.Fatalf("operation 25 h after its end: got error %v, want NotFound", err)
		}
	})
}

// TestManyOperationsAreForgotten creates 600 operations that end in the same minute. It proves that
// the cloud deletes all these operations after a day. If a cloudsim.Hold still blocks an operation,
// the cloud keeps the operation, even if it is more than a day old.
func TestManyOperationsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), instant)
		defer down()
		stuck := mustCreate(t, e, ctx, "stuck")
		if _, err := e.CreateHold(ctx, cloudsim.CreateHold{Name: "stop", HoldSpec: cloudsim.HoldSpec{Transition: cloudsim.Transition{Kind: cloudsim.KindInstance, Verb: cloudsim.Stop}}}); err != nil {
			t.Fatal(err)
		}
		stuck, err := e.StopInstance(ctx, stuck.ID)
		if err != nil {
			t.Fatal(err)
		}
		const many = 600
		for n := range many {
			mustCreate(t, e, ctx, fmt.Sprint("i", n))
		}
		time.Sleep(23 * time.Hour)
		late := mustCreate(t, e, ctx, "late")
		ops, _, err := cloudsim.All(ctx, e.ListOperations, cloudsim.ListOptions{})
		if err != nil || len(ops) != many+3 {
			t.Fatalf("operations after 23 h: got %d, %v", len(ops), err)
		}
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		ops, _, err = cloudsim.All(ctx, e.ListOperations, cloudsim.ListOptions{})
		if err != nil || len(ops) != 2 || ops[0].ID != stuck.Operation || ops[1].ID != late.Operation {
			t.Errorf("operations after 24 h: got %+v, %v", ops, err)
		}
	})
}

// TestOperationsOfAClockSetBack proves that the cloud deletes an operation a day after its end,
// even if a user has set the clock back. The test sets the clock ahead by a year, and an operation
// ends. Then the test sets the clock back, and a second operation ends. The cloud must delete the
// second operation after a day, although the first operation ended at a later time.
func TestOperationsOfAClockSetBack(t *testing.T) {
	ctx := engine.AsCloud(t.Context())
	e, down := boot(t, file(t), instant, frozen)
	defer down()
	set := func(at time.Time) {
		if _, err := e.SetClock(ctx, cloudsim.SetClock{Time: &at}); err != nil {
			t.Fatal(err)
		}
	}
	begin := e.Now()
	set(begin.AddDate(1, 0, 0))
	mustCreate(t, e, ctx, "later")
	set(begin)
	early := mustCreate(t, e, ctx, "early")
	advance(t, e, ctx, 25*time.Hour)
	if _, err := e.GetOperation(ctx, early.Operation); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("operation a day after its end: got error %v, want NotFound", err)
	}
}

func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := engine.AsCloud(t.Context())
		e, down := boot(t, file(t), instant)
		defer down()
		mustCreate(t, e, ctx, "a")
		l, _ := e.ListInstances(ctx, cloudsim.ListOptions{})
		began, after := time.Now(), time.Duration(0) // the watch yields the first bookmark at once, and then a bookmark every minute
		for ev, err := range e.Watch(ctx, cloudsim.WatchOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindAddress}, Bookmark: time.Minute}) {
			if err != nil || ev.Type != cloudsim.EventBookmark || ev.Rev != l.Revision || time.Since(began) != after {
				t.Fatalf("got %+v, %v after %s; want a bookmark at revision %d after %s", ev, err, time.Since(began), l.Revision, after)
			}
			if after += time.Minute; after > 2*time.Minute {
				break
			}
		}
	})
}

// TestRangesAreKeptWhileInUse proves that the configured address range for instances cannot change
// while an instance has an address of the range. If the range could change, the cloud could assign
// an address twice.
func TestRangesAreKeptWhileInUse(t *testing.T) {
	path, ctx := file(t), engine.AsCloud(t.Context())
	with := func(p string) func(*engine.Config) {
		return func(c *engine.Config) { instant(c); c.Instances = prefix(t, p) }
	}
	e, down := boot(t, path, with("127.64.0.0/16"))
	i := mustCreate(t, e, ctx, "a")
	down()

	st, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Default()
	cfg.Instances = prefix(t, "127.64.0.0/17")
	if err := engine.New(slog.New(slog.DiscardHandler), st, cfg).Prepare(); err == nil || !strings.Contains(err.Error(), "127.64.0.0/16") {
		t.Errorf("start with a new range that overlaps the address of an instance: got error %v, want it to name 127.64.0.0/16", err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}

	e, down = boot(t, path, with("127.64.0.0/16"))
	if _, err := e.DeleteInstance(ctx, i.ID); err != nil {
		t.Fatal(err)
	}
	down()
	_, down = boot(t, path, with("127.64.0.0/17"))
	down()
}

// TestBadWorkIsDropped proves that the engine drops a work item that fails, and
// continues with other work.
func TestBadWorkIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, ctx := file(t), engine.AsCloud(t.Context())
		e, down := boot(t, path)
		i := mustCreate(t, e, ctx, "a")
		down()
		st, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Update("", func(tx *store.Tx) error {
			return tx.Later(tx.Now, store.Work{Kind: "unicorn", ID: "u-1", Verb: cloudsim.Settle})
		}); err != nil {
			t.Fatal(err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * slow.Provision) // both work items are due at the start
		e, down = boot(t, path)
		defer down()
		synctest.Wait()
		if i, err = e.GetInstance(ctx, i.ID); err != nil || i.State != cloudsim.InstanceRunning {
			t.Errorf("instance after a failed work item: got state %s, error %v, want running", i.State, err)
		}
	})
}
