package hollow

import (
	"log/slog"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// If an instance stops, boots or gets a replacement, the fleet resets the field hasRegistered. The
// kubelet must then register again. Other changes of the instance keep hasRegistered.
func TestFleet(t *testing.T) {
	at := func(id cloudsim.InstanceID, state cloudsim.InstanceState, op cloudsim.OperationID, rev uint64) cloudsim.Instance {
		return cloudsim.Instance{ID: id, State: state, Meta: cloudsim.Meta{Name: "one", Operation: op, Revision: rev}}
	}
	running := at("i-1", cloudsim.InstanceRunning, "op-1", 5)
	for _, tc := range []struct {
		name       string
		then       cloudsim.Instance
		gone       bool // true if the cloud has deleted the instance
		want       cloudsim.InstanceID
		on         bool
		registered bool
	}{
		{name: "relabeled", then: at("i-1", cloudsim.InstanceRunning, "op-1", 6), want: "i-1", on: true, registered: true},
		{name: "older news", then: at("i-1", cloudsim.InstanceProvisioning, "op-1", 4), want: "i-1", on: true, registered: true},
		{name: "stopped", then: at("i-1", cloudsim.InstanceStopping, "op-2", 6), want: "i-1"},
		{name: "rebooted unseen", then: at("i-1", cloudsim.InstanceRunning, "op-3", 9), want: "i-1", on: true},
		{name: "replaced", then: at("i-2", cloudsim.InstanceRunning, "op-4", 12), want: "i-2", on: true},
		{name: "gone", then: at("i-1", cloudsim.InstanceTerminated, "op-2", 8), gone: true},
		{name: "an earlier one gone", then: at("i-0", cloudsim.InstanceTerminated, "op-0", 6), gone: true, want: "i-1", on: true, registered: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(slog.New(slog.DiscardHandler), nil)
			f.put(running)
			f.changeMachine(f.get("one"), func(m *machine) { m.hasRegistered = true })
			if tc.gone {
				f.drop(tc.then)
			} else {
				f.put(tc.then)
			}
			if m := f.get("one"); m.ID != tc.want || m.isOn() != tc.on || m.hasRegistered != tc.registered {
				t.Errorf("got %q, on %v, registered %v; want %q, %v, %v", m.ID, m.isOn(), m.hasRegistered, tc.want, tc.on, tc.registered)
			}
		})
	}
}

// The argument of changeMachine is an earlier copy of a machine. If the machine has booted since
// the time of the copy, changeMachine does not change the machine.
func TestFleetIgnoresChangeOfEarlierBoot(t *testing.T) {
	f := newFleet(slog.New(slog.DiscardHandler), nil)
	i := cloudsim.Instance{ID: "i-1", State: cloudsim.InstanceRunning, Meta: cloudsim.Meta{Name: "one", Operation: "op-1"}}
	f.put(i)
	before := f.get("one")
	i.Operation, i.Revision = "op-2", 1
	f.put(i)
	f.changeMachine(before, func(m *machine) { m.hasRegistered = true })
	if f.get("one").hasRegistered {
		t.Error("changeMachine changed a machine that has booted since the call of get")
	}
}

// TestListAfterLoadState proves that the fleet accepts the instances of a saved state, although
// their revisions are lower than the revisions that the fleet knows.
func TestListAfterLoadState(t *testing.T) {
	cloud := cloudtest.Start(t)
	f := newFleet(slog.New(slog.DiscardHandler), cloud)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	i, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "one", Zone: "sim-1a", Type: "small"})
	ok(err)
	_, err = cloud.WaitOperation(t.Context(), i.Operation)
	ok(err)
	_, err = cloud.SaveState(t.Context(), cloudsim.SaveState{Name: "s"})
	ok(err)
	i, err = cloud.StopInstance(t.Context(), i.ID)
	ok(err)
	_, err = cloud.WaitOperation(t.Context(), i.Operation)
	ok(err)
	list := func(want cloudsim.InstanceState) {
		t.Helper()
		_, err := f.List(t.Context())
		ok(err)
		if m := f.get("one"); m.State != want {
			t.Errorf("got an instance in the state %s, want %s", m.State, want)
		}
	}
	list(cloudsim.InstanceStopped)
	ok(cloud.LoadState(t.Context(), "s", cloudsim.LoadState{}))
	list(cloudsim.InstanceRunning)
	i = f.get("one").Instance
	i.Name = "two"
	if gone := f.missingInstances([]cloudsim.Instance{i}); len(gone) != 1 || gone[0].Name != "one" {
		t.Errorf("list with another name for the instance: got missing instances %v, want the instance with the old name", gone)
	}
}
