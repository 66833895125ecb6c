package engine_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func fault(name, operation string, change ...func(*cloudsim.CreateFault)) cloudsim.CreateFault {
	req := cloudsim.CreateFault{Name: name, FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: operation}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError},
	}}
	for _, c := range change {
		c(&req)
	}
	return req
}

func mustFault(t *testing.T, e *engine.Engine, req cloudsim.CreateFault) cloudsim.Fault {
	t.Helper()
	f, err := e.CreateFault(enter(t, e, "secret", ""), req)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFaultMaxIsExact proves that a fault hits exactly Max calls of 64
// concurrent callers. For each hit, the journal has an event with the request
// id of the call.
func TestFaultMaxIsExact(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	const callers, each, skip, most = 64, 8, 10, 37
	f := mustFault(t, e, fault("a", "instances.get", func(r *cloudsim.CreateFault) { r.When.Skip, r.When.Max = skip, most }))
	var hits atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for n := range each {
				ctx, err := e.Authorize(t.Context(), engine.Request{ID: fmt.Sprintf("c%d-%d", c, n), Secret: "secret"})
				if err != nil {
					t.Error(err)
					return
				}
				hit, err := e.Decide(ctx, engine.Subject{Operation: "instances.get"})
				if err != nil {
					t.Error(err)
				}
				if hit.Fault != nil {
					hits.Add(1)
				}
			}
		})
	}
	wg.Wait()
	admin := enter(t, e, "secret", "")
	got, err := e.GetFault(admin, f.ID)
	if err != nil || hits.Load() != most || got.Hits != most || got.Seen != skip+most {
		t.Errorf("%d calls got the fault; the fault counts %d of %d, %v; want %d of %d", hits.Load(), got.Hits, got.Seen, err, most, skip+most)
	}
	evs, err := e.ListEvents(admin, cloudsim.WatchOptions{Kinds: []cloudsim.ResourceKind{cloudsim.KindFault}})
	if err != nil || len(evs.Items) != 1+most {
		t.Fatalf("got %d events, %v; want the creation and %d hits", len(evs.Items), err, most)
	}
	requests := map[string]bool{}
	for _, ev := range evs.Items[1:] {
		requests[ev.RequestID] = true
	}
	if len(requests) != most || requests[""] {
		t.Errorf("request ids in the events of hits: got %d different ids (one empty: %t), want %d and none empty", len(requests), requests[""], most)
	}
}

// TestFaultsRepeat proves that a fault with a seed hits the same calls in two
// clouds, even if one of the clouds restarts between the calls.
func TestFaultsRepeat(t *testing.T) {
	spec := fault("a", "*", func(r *cloudsim.CreateFault) { r.When.Probability, r.When.Seed = new(0.4), 42 })
	strike := func(e *engine.Engine, n int) (out string) {
		ctx := enter(t, e, "secret", "")
		for range n {
			hit, err := e.Decide(ctx, engine.Subject{Operation: "zones.list"})
			if err != nil {
				t.Fatal(err)
			}
			out += map[bool]string{true: "x", false: "."}[hit.Fault != nil]
		}
		return out
	}
	whole, down := boot(t, file(t), instant)
	mustFault(t, whole, spec)
	want := strike(whole, 40)
	down()

	path := file(t)
	e, down := boot(t, path, instant)
	mustFault(t, e, spec)
	got := strike(e, 17)
	down()
	e, down = boot(t, path, instant)
	defer down()
	got += strike(e, 23)
	if got != want {
		t.Errorf("hits: got %s, and with a restart %s; want the same", want, got)
	}
}

func TestFaultMatches(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	admin := enter(t, e, "secret", "default")
	ccm, err := e.CreateToken(admin, cloudsim.CreateToken{Name: "ccm", Role: cloudsim.RoleWriter})
	if err != nil {
		t.Fatal(err)
	}
	instance, err := e.CreateInstance(admin, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small", Labels: map[string]string{"app": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	get := engine.Subject{Operation: "instances.get", Target: string(instance.ID)}
	inZone := func(zone string) engine.Subject {
		return engine.Subject{Operation: "instances.create", Body: &cloudsim.CreateInstance{Name: "b", Zone: zone, Labels: map[string]string{"app": "y"}}}
	}
	match := func(change func(*cloudsim.FaultMatch)) func(*cloudsim.CreateFault) {
		return func(r *cloudsim.CreateFault) { change(&r.Match) }
	}
	for name, tc := range map[string]struct {
		change func(*cloudsim.FaultMatch)
		about  engine.Subject
		want   bool
	}{
		"no condition":                     {func(m *cloudsim.FaultMatch) {}, get, true},
		"another operation":                {func(m *cloudsim.FaultMatch) { m.Operation = "instances.list" }, get, false},
		"caller":                           {func(m *cloudsim.FaultMatch) { m.Caller = "ccm" }, get, true},
		"another caller":                   {func(m *cloudsim.FaultMatch) { m.Caller = "admin" }, get, false},
		"target":                           {func(m *cloudsim.FaultMatch) { m.Target = string(instance.ID) }, get, true},
		"another target":                   {func(m *cloudsim.FaultMatch) { m.Target = "i-000fff" }, get, false},
		"zone of the target":               {func(m *cloudsim.FaultMatch) { m.Zone = "sim-1a" }, get, true},
		"another zone":                     {func(m *cloudsim.FaultMatch) { m.Zone = "sim-1b" }, get, false},
		"labels of the target":             {func(m *cloudsim.FaultMatch) { m.Labels = map[string]string{"app": "x"} }, get, true},
		"another label":                    {func(m *cloudsim.FaultMatch) { m.Labels = map[string]string{"app": "y"} }, get, false},
		"zone of the new object":           {func(m *cloudsim.FaultMatch) { m.Zone = "sim-1b" }, inZone("sim-1b"), true},
		"another zone than the new object": {func(m *cloudsim.FaultMatch) { m.Zone = "sim-1b" }, inZone("sim-1a"), false},
		"labels of the new object":         {func(m *cloudsim.FaultMatch) { m.Labels = map[string]string{"app": "y"} }, inZone("sim-1a"), true},
		"zone of a list":                   {func(m *cloudsim.FaultMatch) { m.Zone = "sim-1a" }, engine.Subject{Operation: "instances.list"}, false},
		"zone of a missing target":         {func(m *cloudsim.FaultMatch) { m.Zone = "sim-1a" }, engine.Subject{Operation: "instances.get", Target: "i-000fff"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := mustFault(t, e, fault("a", "*", match(tc.change)))
			hit, err := e.Decide(enter(t, e, ccm.Secret, ""), tc.about)
			if err != nil || (hit.Fault != nil) != tc.want {
				t.Errorf("hit %v, %v; want %v", hit.Fault != nil, err, tc.want)
			}
			if err := e.DeleteFault(admin, f.ID); err != nil {
				t.Fatal(err)
			}
			if hit, err := e.Decide(admin, tc.about); err != nil || hit.Fault != nil {
				t.Errorf("call after the deletion of the fault: got hit %+v, error %v, want no hit", hit, err)
			}
		})
	}
}

// TestFaultsInOrder proves that the latencies of several faults add up. The first fault with an
// effect other than latency decides the outcome of the call. The faults that follow it have no
// effect on the call, and the cloud does not add the call to their counts.
func TestFaultsInOrder(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	late := func(r *cloudsim.CreateFault) {
		r.Effect = cloudsim.FaultEffect{Type: cloudsim.FaultLatency, LatencyMillis: 30}
	}
	mustFault(t, e, fault("a", "*", late))
	mustFault(t, e, fault("b", "zones.*", late))
	c := mustFault(t, e, fault("c", "*", func(r *cloudsim.CreateFault) { r.When.Max = 1 }))
	d := mustFault(t, e, fault("d", "*"))
	ctx := enter(t, e, "secret", "")
	for _, want := range []cloudsim.FaultID{c.ID, d.ID} {
		hit, err := e.Decide(ctx, engine.Subject{Operation: "zones.list"})
		if err != nil || hit.Latency != 60*time.Millisecond || hit.Fault == nil || hit.Fault.ID != want {
			t.Errorf("got hit %+v, error %v, want 60 ms and then fault %s", hit, err, want)
		}
	}
	if d, err := e.GetFault(ctx, d.ID); err != nil || d.Seen != 1 {
		t.Errorf("calls that the last fault counted: got %d, %v; want 1", d.Seen, err)
	}
}

func TestFaultWindowFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant)
		defer down()
		mustFault(t, e, fault("a", "*", func(r *cloudsim.CreateFault) { r.When.AfterSeconds, r.When.ForSeconds = 60, 60 }))
		ctx := enter(t, e, "secret", "")
		for _, want := range []bool{false, true, false} {
			if hit, err := e.Decide(ctx, engine.Subject{Operation: "zones.list"}); err != nil || (hit.Fault != nil) != want {
				t.Errorf("hit %v, %v; want %v", hit.Fault != nil, err, want)
			}
			time.Sleep(61 * time.Second)
		}
	})
}

func TestFaultsAreIdempotentByName(t *testing.T) {
	e, down := boot(t, file(t), instant)
	defer down()
	ctx := enter(t, e, "secret", "default") // faults belong to no project, even if the caller chose a project
	f := mustFault(t, e, fault("a", "zones.*", func(r *cloudsim.CreateFault) { r.When.Skip = 5 }))
	if _, err := e.Decide(ctx, engine.Subject{Operation: "zones.list"}); err != nil {
		t.Fatal(err)
	}
	repeated := mustFault(t, e, fault("a", "zones.*", func(r *cloudsim.CreateFault) { r.When.Skip = 5 }))
	if repeated.ID != f.ID || repeated.Seen != 1 {
		t.Errorf("repeated request: got fault %s, which counted %d calls; want %s and 1", repeated.ID, repeated.Seen, f.ID)
	}
	if _, err := e.CreateFault(ctx, fault("a", "zones.list")); !errors.Is(err, cloudsim.Exists) {
		t.Errorf("creation with the same name and other fields: got error %v, want Exists", err)
	}
	for name, o := range map[string]cloudsim.ListOptions{"none": {}, "name": {Name: "a"}} {
		if l, err := e.ListFaults(ctx, o); err != nil || len(l.Items) != 1 || l.Items[0].Seen != 1 {
			t.Errorf("ListFaults with filter %q: got %+v, error %v, want one fault that counted one call", name, l.Items, err)
		}
	}
}
