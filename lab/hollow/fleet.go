package hollow

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/informer"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// machine holds an instance, and the state of the instance's machine since the last boot.
type machine struct {
	cloudsim.Instance
	// hasRegistered is true if the machine has had a Node since its last boot. It stays true
	// even if a client deletes this Node.
	hasRegistered bool
	// lastLogged identifies the last logged message about the machine. The hypervisor does not
	// log this message a second time.
	lastLogged string
}

func (m machine) isOn() bool { return m.State == cloudsim.InstanceRunning }

// fleet contains the machines of the cloud's instances. It finds a machine by its name. At any
// time, at most one instance of a project has a given name.
type fleet struct {
	informer.OutageLogger
	cloud  *client.Client
	listed chan struct{}       // List closes this channel after the first complete list
	hear   []func(name string) // the fleet calls these functions on every change, with the name of the machine; set before run

	mu     sync.Mutex
	byName map[string]*machine
	dark   map[string]bool // unreachable zones
}

func newFleet(log *slog.Logger, cloud *client.Client) *fleet {
	return &fleet{OutageLogger: informer.OutageLogger{Log: log}, cloud: cloud, listed: make(chan struct{}), byName: map[string]*machine{}, dark: map[string]bool{}}
}

// get returns the machine with the given name. If no machine has this name, the result is the zero
// value, which represents a machine that is off.
func (f *fleet) get(name string) machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.byName[name]; m != nil {
		return *m
	}
	return machine{}
}

// isUnreachable reports whether the cloud shows a machine as running although the machine
// has crashed or is in a dark (unreachable) zone.
func (f *fleet) isUnreachable(m machine) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.isOn() && (f.dark[m.Zone] || m.Crashed != nil)
}

// putZone stores a zone. If the zone became dark (unreachable) or reachable again, putZone notifies
// the listeners about each machine in the zone.
func (f *fleet) putZone(z cloudsim.Zone) {
	f.mu.Lock()
	var names []string
	if f.dark[z.Name] != z.Dark() {
		f.dark[z.Name] = z.Dark()
		for name, m := range f.byName {
			if m.Zone == z.Name {
				names = append(names, name)
			}
		}
	}
	f.mu.Unlock()
	for _, name := range names {
		f.tell(name)
	}
}

func (f *fleet) reachableMachines() []machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	var on []machine
	for _, m := range f.byName {
		if m.isOn() && !f.dark[m.Zone] && m.Crashed == nil {
			on = append(on, *m)
		}
	}
	return on
}

// changeMachine applies fn to a machine. oldCopy is an earlier copy of this machine.
// If the instance has booted, stopped or disappeared since the time of this copy,
// changeMachine does not call fn.
func (f *fleet) changeMachine(oldCopy machine, fn func(*machine)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.byName[oldCopy.Name]; m != nil && m.ID == oldCopy.ID && m.Operation == oldCopy.Operation && m.isOn() {
		fn(m)
	}
}

// sayOnce stores text as the last message about a machine. It reports whether text differs
// from the previous message.
func (f *fleet) sayOnce(seen machine, text string) (news bool) {
	f.changeMachine(seen, func(m *machine) { news, m.lastLogged = m.lastLogged != text, text })
	return news
}

// put stores a new version of an instance in place of the previous version. If the machine has
// started or stopped between the two versions, put resets the boot state of the machine. If the
// field Operation has changed, put also resets the boot state, because the new operation can be a
// reboot. The fleet may have missed the event about this reboot.
func (f *fleet) put(i cloudsim.Instance) {
	f.mu.Lock()
	m, now := f.byName[i.Name], machine{Instance: i}
	switch {
	case m == nil || m.ID != i.ID:
		f.byName[i.Name] = &now
	case i.Revision < m.Revision:
		f.mu.Unlock()
		return // the stored version is newer
	case m.isOn() == now.isOn() && m.Operation == i.Operation:
		m.Instance = i
	default:
		*m = now
	}
	f.mu.Unlock()
	f.tell(i.Name)
}

func (f *fleet) drop(i cloudsim.Instance) {
	f.mu.Lock()
	if m := f.byName[i.Name]; m == nil || m.ID != i.ID {
		f.mu.Unlock()
		return // a new instance already has this name
	}
	delete(f.byName, i.Name)
	f.mu.Unlock()
	f.tell(i.Name)
}

func (f *fleet) tell(name string) {
	for _, hear := range f.hear {
		hear(name)
	}
}

// run watches the cloud until ctx ends. While the cloud does not answer, the method retries at
// least every two seconds.
func (f *fleet) run(ctx context.Context) {
	informer.Run(ctx, f.cloud.Watch, f, retryBackoff())
}

func retryBackoff() backoff.Backoff {
	return backoff.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second}
}

// List reads all zones and instances, and stores them in the fleet.
func (f *fleet) List(ctx context.Context) (informer.Listed, error) {
	zones, zonesAt, err := cloudsim.All(ctx, f.cloud.ListZones, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	all, at, err := cloudsim.All(ctx, f.cloud.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, z := range zones {
		f.putZone(z)
	}
	for _, gone := range f.missingInstances(all) {
		f.drop(gone)
	}
	f.forgetRevisions()
	for _, i := range all {
		f.put(i)
	}
	select {
	case <-f.listed:
	default:
		close(f.listed)
	}
	return informer.Listed{cloudsim.KindZone: zonesAt, cloudsim.KindInstance: at}, nil
}

// forgetRevisions makes the fleet accept the next revision of each instance, even if this revision
// is lower than the known revision. The method List needs this after the cloud has loaded a saved
// state. The fleet must then take the listed instances, although they can have lower revisions.
func (f *fleet) forgetRevisions() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.byName {
		m.Revision = 0
	}
}

// missingInstances returns the instances of the fleet that are not among the listed instances. An
// instance is also missing if the list contains it with another name.
func (f *fleet) missingInstances(listed []cloudsim.Instance) []cloudsim.Instance {
	names := make(map[cloudsim.InstanceID]string, len(listed))
	for _, i := range listed {
		names[i.ID] = i.Name
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var gone []cloudsim.Instance
	for name, m := range f.byName {
		if names[m.ID] != name {
			gone = append(gone, m.Instance)
		}
	}
	return gone
}

// Take applies an event to the fleet.
func (f *fleet) Take(_ context.Context, e cloudsim.Event) error {
	if e.Kind == cloudsim.KindZone {
		var z cloudsim.Zone
		if err := json.Unmarshal(e.Object, &z); err != nil {
			return err
		}
		f.putZone(z)
		return nil
	}
	var i cloudsim.Instance
	if err := json.Unmarshal(e.Object, &i); err != nil {
		return err
	}
	if e.Type == cloudsim.EventDelete {
		f.drop(i)
	} else {
		f.put(i)
	}
	return nil
}
