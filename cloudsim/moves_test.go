package cloudsim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// moveTest applies every verb in every state. The transitions in allowed must
// succeed. Any other transition must return Conflict and leave the state
// unchanged.
func moveTest[S ~string](t *testing.T, states []S, allowed map[S]map[Verb]S, move func(S, Verb) (S, error)) {
	t.Helper()
	verbs := []Verb{Create, Update, Delete, Start, Stop, Reboot, Terminate, Attach, Detach, Resize, Modify, Copy, Vacate, Retire, Settle, Fail, Cancel, Lose, Regain}
	for _, from := range states {
		for _, verb := range verbs {
			t.Run(fmt.Sprintf("%s/%s", from, verb), func(t *testing.T) {
				next, legal := allowed[from][verb]
				got, err := move(from, verb)
				switch {
				case legal && (err != nil || got != next):
					t.Errorf("Move: got state %s, error %v, want state %s", got, err, next)
				case !legal && (!errors.Is(err, Conflict) || got != from):
					t.Errorf("forbidden Move: got state %s, error %v, want Conflict and the unchanged state %s", got, err, from)
				}
			})
		}
	}
}

func TestInstanceMoves(t *testing.T) {
	want := map[InstanceState]map[Verb]InstanceState{
		"provisioning": {Settle: "running", Cancel: "terminating", Terminate: "terminating"},
		"running":      {Stop: "stopping", Reboot: "rebooting", Crash: "running", Terminate: "terminating"},
		"stopping":     {Settle: "stopped", Terminate: "terminating"},
		"stopped":      {Start: "starting", Terminate: "terminating"},
		"starting":     {Settle: "running", Cancel: "stopped", Terminate: "terminating"},
		"rebooting":    {Settle: "running", Stop: "stopping", Terminate: "terminating"},
		"terminating":  {Settle: "terminated"},
		"terminated":   {},
	}
	moveTest(t, InstanceStates(), want, func(s InstanceState, v Verb) (InstanceState, error) {
		i := Instance{State: s}
		err := i.Move(v)
		return i.State, err
	})
	if len(want) != len(InstanceStates()) {
		t.Error("a state is missing here or in InstanceStates")
	}
}

func TestLoadBalancerMoves(t *testing.T) {
	want := map[LoadBalancerState]map[Verb]LoadBalancerState{
		"provisioning": {Settle: "active", Cancel: "deleting", Update: "provisioning", Delete: "deleting"},
		"active":       {Update: "updating", Delete: "deleting"},
		"updating":     {Settle: "active", Update: "updating", Delete: "deleting"},
		"deleting":     {Settle: "deleted"},
		"deleted":      {},
	}
	moveTest(t, LoadBalancerStates(), want, func(s LoadBalancerState, v Verb) (LoadBalancerState, error) {
		l := LoadBalancer{State: s}
		err := l.Move(v)
		return l.State, err
	})
}

func TestDiskMoves(t *testing.T) {
	want := map[DiskState]map[Verb]DiskState{
		"creating":  {Settle: "available", Cancel: "deleting", Copy: "copying", Delete: "deleting"},
		"copying":   {Settle: "available", Cancel: "deleting", Fail: "failed", Delete: "deleting"},
		"failed":    {Delete: "deleting"},
		"available": {Attach: "attaching", Resize: "resizing", Modify: "modifying", Delete: "deleting"},
		"attaching": {Settle: "in-use", Cancel: "in-use", Detach: "detaching"},
		"in-use":    {Attach: "attaching", Detach: "detaching", Resize: "resizing", Modify: "modifying", Vacate: "available"},
		"detaching": {Settle: "in-use", Cancel: "in-use"},
		"resizing":  {Settle: "in-use"},
		"modifying": {Settle: "in-use"},
		"deleting":  {Settle: "deleted"},
		"deleted":   {},
	}
	moveTest(t, DiskStates(), want, func(s DiskState, v Verb) (DiskState, error) {
		d := Disk{State: s}
		err := d.Move(v)
		return d.State, err
	})
	if len(want) != len(DiskStates()) {
		t.Error("a state is missing here or in DiskStates")
	}
}

func TestSnapshotMoves(t *testing.T) {
	want := map[SnapshotState]map[Verb]SnapshotState{
		"creating": {Settle: "ready", Cancel: "deleting", Copy: "copying", Delete: "deleting"},
		"copying":  {Settle: "ready", Cancel: "deleting", Fail: "failed", Delete: "deleting"},
		"ready":    {Delete: "deleting"},
		"failed":   {Delete: "deleting"},
		"deleting": {Settle: "deleted"},
		"deleted":  {},
	}
	moveTest(t, SnapshotStates(), want, func(from SnapshotState, v Verb) (SnapshotState, error) {
		s := Snapshot{State: from}
		err := s.Move(v)
		if s.ReadyToUse != (s.State == "ready") {
			t.Errorf("snapshot in state %s: got ReadyToUse %t, want %t", s.State, s.ReadyToUse, s.State == "ready")
		}
		return s.State, err
	})
	moveTest(t, SnapshotStates(), want, func(from SnapshotState, v Verb) (SnapshotState, error) {
		g := SnapshotGroup{State: from}
		err := g.Move(v)
		if g.ReadyToUse != (g.State == "ready") {
			t.Errorf("group in state %s: got ReadyToUse %t, want %t", g.State, g.ReadyToUse, g.State == "ready")
		}
		return g.State, err
	})
	if len(want) != len(SnapshotStates()) {
		t.Error("a state is missing here or in SnapshotStates")
	}
}

func TestNetworkMoves(t *testing.T) {
	want := map[NetworkState]map[Verb]NetworkState{
		"creating":  {Settle: "available", Delete: "deleting"},
		"available": {Update: "updating", Delete: "deleting"},
		"updating":  {Settle: "available", Update: "updating", Delete: "deleting"},
		"deleting":  {Settle: "deleted"},
		"deleted":   {},
	}
	moveTest(t, NetworkStates(), want, func(s NetworkState, v Verb) (NetworkState, error) {
		n := Network{State: s}
		err := n.Move(v)
		return n.State, err
	})
}

func TestRouteMoves(t *testing.T) {
	want := map[RouteState]map[Verb]RouteState{
		"creating":  {Settle: "active", Delete: "deleting"},
		"active":    {Lose: "blackhole", Delete: "deleting"},
		"blackhole": {Regain: "active", Delete: "deleting"},
		"deleting":  {Settle: "deleted"},
		"deleted":   {},
	}
	moveTest(t, RouteStates(), want, func(s RouteState, v Verb) (RouteState, error) {
		r := Route{State: s}
		err := r.Move(v)
		return r.State, err
	})
}

func TestSubnetMoves(t *testing.T) {
	want := map[SubnetState]map[Verb]SubnetState{
		"creating":  {Settle: "available", Delete: "deleting"},
		"available": {Delete: "deleting"},
		"deleting":  {Settle: "deleted"},
		"deleted":   {},
	}
	moveTest(t, SubnetStates(), want, func(s SubnetState, v Verb) (SubnetState, error) {
		n := Subnet{State: s}
		err := n.Move(v)
		return n.State, err
	})
}

func TestOperationMoves(t *testing.T) {
	want := map[OperationState]map[Verb]OperationState{
		"pending":   {Start: "running", Fail: "failed"},
		"running":   {Settle: "done", Fail: "failed", Cancel: "cancelled"},
		"done":      {},
		"failed":    {},
		"cancelled": {},
	}
	moveTest(t, slices.Sorted(maps.Keys(want)), want, func(s OperationState, v Verb) (OperationState, error) {
		o := Operation{State: s}
		err := o.Move(v)
		return o.State, err
	})
}

func TestKindToTextAndBack(t *testing.T) {
	for _, k := range Kinds() {
		raw, err := k.MarshalText()
		if err != nil || len(raw) == 0 {
			t.Fatalf("text of kind %d: got %q, error %v, want a name", k, raw, err)
		}
		var back Kind
		if err := back.UnmarshalText(raw); err != nil || back != k {
			t.Errorf("UnmarshalText(%q): got kind %s, error %v, want %s", raw, back, err, k)
		}
	}
	k := Exists
	if err := k.UnmarshalText([]byte("from_the_future")); err != nil || k != Internal {
		t.Errorf("UnmarshalText of an unknown name: got kind %v, error %v, want internal", k, err)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	err := fmt.Errorf("attach: %w", Errorf(NotFound, "no instance i-1: %w", errors.New("cause")))
	if !errors.Is(err, NotFound) || errors.Is(err, Exists) || KindOf(err) != NotFound {
		t.Errorf("error %v: got kind %v, want NotFound and not Exists", err, KindOf(err))
	}
	if KindOf(errors.New("x")) != Internal || KindOf(Gone) != Gone {
		t.Error("KindOf must return Internal for an error without a kind, and a kind for itself")
	}
}
