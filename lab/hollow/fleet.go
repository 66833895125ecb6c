package hollow

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/follow"
	"github.com/cloudsim-dev/allinone/internal/pause"
)

// machine is the hardware of an instance, and what runs on it since it booted.
type machine struct {
	cloudsim.Instance
	// registered says that the kubelet of this boot has a Node, or had one.
	registered bool
	// said is the last thing that was logged about it while it waits.
	said string
}

func (m machine) on() bool { return m.State == cloudsim.InstanceRunning }

// fleet is the cloud's instances as machines, by name: a project has one
// instance of a name at a time.
type fleet struct {
	follow.Teller
	cloud  *client.Client
	listed chan struct{}       // closed when the fleet is complete for the first time
	hear   []func(name string) // told of every change; set before run

	mu     sync.Mutex
	byName map[string]*machine
	dark   map[string]bool // zones that nothing reaches
}

func newFleet(log *slog.Logger, cloud *client.Client) *fleet {
	return &fleet{Teller: follow.Teller{Log: log}, cloud: cloud, listed: make(chan struct{}), byName: map[string]*machine{}, dark: map[string]bool{}}
}

// get returns what is known of a name; the zero machine is off.
func (f *fleet) get(name string) machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.byName[name]; m != nil {
		return *m
	}
	return machine{}
}

// unreachable reports whether a machine that the cloud calls running is in a
// zone that is dark, or crashed.
func (f *fleet) unreachable(m machine) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.on() && (f.dark[m.Zone] || m.Crashed != nil)
}

// putZone takes a zone as the cloud now has it, and tells of its machines if it
// went dark or came back.
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

// powered returns the machines that are on, where they can be reached.
func (f *fleet) powered() []machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	var on []machine
	for _, m := range f.byName {
		if m.on() && !f.dark[m.Zone] && m.Crashed == nil {
			on = append(on, *m)
		}
	}
	return on
}

// change applies fn to a machine if it still is what the caller saw: the same
// boot of the same instance.
func (f *fleet) change(seen machine, fn func(*machine)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.byName[seen.Name]; m != nil && m.ID == seen.ID && m.Operation == seen.Operation && m.on() {
		fn(m)
	}
}

// sayOnce reports whether text is news about a machine.
func (f *fleet) sayOnce(seen machine, text string) (news bool) {
	f.change(seen, func(m *machine) { news, m.said = m.said != text, text })
	return news
}

// put takes an instance as the cloud now has it. What ran on the machine is
// over when it was switched on or off; or when another operation worked on it
// while it is on, because that is a reboot, of which we may have missed the
// middle.
func (f *fleet) put(i cloudsim.Instance) {
	f.mu.Lock()
	m, now := f.byName[i.Name], machine{Instance: i}
	switch {
	case m == nil || m.ID != i.ID:
		f.byName[i.Name] = &now
	case i.Revision < m.Revision:
		f.mu.Unlock()
		return // the list was newer
	case m.on() == now.on() && m.Operation == i.Operation:
		m.Instance = i
	default:
		*m = now
	}
	f.mu.Unlock()
	f.tell(i.Name)
}

// drop takes note that an instance is gone.
func (f *fleet) drop(i cloudsim.Instance) {
	f.mu.Lock()
	if m := f.byName[i.Name]; m == nil || m.ID != i.ID {
		f.mu.Unlock()
		return // another has its name already
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

// run follows the cloud until ctx ends, and asks one that does not answer again
// within two seconds.
func (f *fleet) run(ctx context.Context) {
	follow.Run(ctx, f.cloud.Watch, f, retry())
}

// retry is the pause between two tries.
func retry() pause.Backoff { return pause.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second} }

// List makes the fleet complete.
func (f *fleet) List(ctx context.Context) (follow.Listed, error) {
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
	for _, gone := range f.missing(all) {
		f.drop(gone)
	}
	for _, i := range all {
		f.put(i)
	}
	select {
	case <-f.listed:
	default:
		close(f.listed)
	}
	return follow.Listed{cloudsim.KindZone: zonesAt, cloudsim.KindInstance: at}, nil
}

// missing returns what we have and all has not.
func (f *fleet) missing(all []cloudsim.Instance) []cloudsim.Instance {
	there := make(map[cloudsim.InstanceID]bool, len(all))
	for _, i := range all {
		there[i.ID] = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var gone []cloudsim.Instance
	for _, m := range f.byName {
		if !there[m.ID] {
			gone = append(gone, m.Instance)
		}
	}
	return gone
}

// Take applies an event.
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
