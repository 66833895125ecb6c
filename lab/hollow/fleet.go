package hollow

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
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
	log    *slog.Logger
	cloud  *client.Client
	listed chan struct{}       // closed when the fleet is complete for the first time
	hear   []func(name string) // told of every change; set before run

	mu     sync.Mutex
	byName map[string]*machine
	dark   map[string]bool // zones that nothing reaches
}

func newFleet(log *slog.Logger, cloud *client.Client) *fleet {
	return &fleet{log: log, cloud: cloud, listed: make(chan struct{}), byName: map[string]*machine{}, dark: map[string]bool{}}
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

// unreachable reports whether a machine is on in a zone that is dark.
func (f *fleet) unreachable(m machine) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.on() && f.dark[m.Zone]
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
		if m.on() && !f.dark[m.Zone] {
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

// run follows the cloud until ctx ends. It lists, watches from there, and
// resumes where a watch broke; when the journal no longer reaches back it lists
// again. A cloud that does not answer is asked again within two seconds.
func (f *fleet) run(ctx context.Context) {
	var rev uint64
	complete, down := false, false
	var pause backoff
	for ctx.Err() == nil {
		err := f.catchUp(ctx, &rev, complete)
		if err == nil {
			if complete = true; down {
				f.log.Info("the cloud answers again")
				down = false
			}
			err = f.watch(ctx, &rev, &pause)
		}
		switch {
		case err == nil || ctx.Err() != nil:
			continue
		case errors.Is(err, cloudsim.Gone):
			f.log.Info("listing the instances again", "because", err)
			complete = false
		case !down:
			f.log.Warn("the cloud does not answer; trying again", "err", err)
			down = true
		}
		pause.wait(ctx)
	}
}

// catchUp makes the fleet complete, or, if it is, waits for no more than a sign
// that the cloud is there to be watched.
func (f *fleet) catchUp(ctx context.Context, rev *uint64, complete bool) error {
	if complete {
		return f.cloud.Ready(ctx)
	}
	zones, at, err := client.All(ctx, f.cloud.ListZones, cloudsim.ListOptions{}) // first: the older revision, which the watch begins at
	if err != nil {
		return err
	}
	all, _, err := client.All(ctx, f.cloud.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return err
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
	*rev = at
	select {
	case <-f.listed:
	default:
		close(f.listed)
	}
	return nil
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

// watch applies events after *rev, and moves it along, until the watch breaks.
func (f *fleet) watch(ctx context.Context, rev *uint64, pause *backoff) error {
	o := cloudsim.WatchOptions{Since: *rev, Kinds: []cloudsim.ResourceKind{cloudsim.KindInstance, cloudsim.KindZone}}
	for e, err := range f.cloud.Watch(ctx, o) {
		if err != nil {
			return err
		}
		if err := f.take(e); err != nil {
			return err
		}
		*rev = e.Rev
		pause.reset()
	}
	return nil
}

// take applies an event.
func (f *fleet) take(e cloudsim.Event) error {
	var i cloudsim.Instance
	var z cloudsim.Zone
	var into any = &i
	if e.Kind == cloudsim.KindZone {
		into = &z
	}
	if err := json.Unmarshal(e.Object, into); err != nil {
		return cloudsim.Errorf(cloudsim.Gone, "event %d of %s is not of kind %s: %w", e.Rev, e.ID, e.Kind, err)
	}
	switch {
	case e.Kind == cloudsim.KindZone:
		f.putZone(z)
	case e.Type == cloudsim.EventDelete:
		f.drop(i)
	default:
		f.put(i)
	}
	return nil
}

// backoff waits from 50 ms to 2 s, twice as long each time.
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

func (b *backoff) wait(ctx context.Context) {
	b.next = min(max(2*b.next, 50*time.Millisecond), 2*time.Second)
	t := time.NewTimer(b.next)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
