package dataplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// fakeCloud implements dataplane.Cloud with records in memory. A test can make the calls fail
// (setError), forget the old events (compact), or delete all contents (restart).
type fakeCloud struct {
	mu        sync.Mutex
	rev       uint64
	floor     uint64 // events up to this revision are forgotten
	journal   []cloudsim.Event
	changed   chan struct{} // notification: closed by the next change
	lbs       map[cloudsim.LoadBalancerID]cloudsim.LoadBalancer
	instances map[cloudsim.InstanceID]cloudsim.Instance
	down      error // error of every call
	broken    uint64
	lists     int
	met       bool              // a call has returned the error in down
	failed    int               // number of reports that failed
	listing   func(page string) // runs before each page of load balancers
	pace      time.Duration     // pause between two events of a watch, so that each event takes effect before the next
	reports   map[cloudsim.LoadBalancerID][]cloudsim.LoadBalancerStatus
}

func newMemory() *fakeCloud {
	return &fakeCloud{
		changed:   make(chan struct{}),
		lbs:       map[cloudsim.LoadBalancerID]cloudsim.LoadBalancer{},
		instances: map[cloudsim.InstanceID]cloudsim.Instance{},
		reports:   map[cloudsim.LoadBalancerID][]cloudsim.LoadBalancerStatus{},
	}
}

func (m *fakeCloud) notify() { close(m.changed); m.changed = make(chan struct{}) }

func (m *fakeCloud) record(typ cloudsim.EventType, kind cloudsim.ResourceKind, id string, meta *cloudsim.Meta, object func() any) {
	m.rev++
	meta.Revision = m.rev
	raw, err := json.Marshal(object())
	if err != nil {
		panic(err)
	}
	m.journal = append(m.journal, cloudsim.Event{Rev: m.rev, Type: typ, Kind: kind, ID: id, Object: raw})
	m.notify()
}

// putLB stores a load balancer. If the field State of lb is empty, putLB stores the state active.
// If lb.Addresses has fewer than two items, putLB replaces lb.Addresses with a list that
// contains only lb.IP. Instead of lb.Status, it uses the stored status of each listener and target.
func (m *fakeCloud) putLB(lb cloudsim.LoadBalancer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lb.Listeners, lb.Targets = slices.Clone(lb.Listeners), slices.Clone(lb.Targets)
	if lb.State == "" {
		lb.State = cloudsim.LoadBalancerActive
	}
	if len(lb.Addresses) < 2 {
		lb.Addresses = []cloudsim.LoadBalancerAddress{{Family: cloudsim.IPv4, IP: lb.IP}}
	}
	lb.Addresses, lb.Published, lb.SourceRanges = slices.Clone(lb.Addresses), slices.Clone(lb.Published), slices.Clone(lb.SourceRanges)
	lb.Status = lb.StatusFor(m.lbs[lb.ID].Status)
	m.keepLB(lb)
}

func (m *fakeCloud) keepLB(lb cloudsim.LoadBalancer) {
	m.record(cloudsim.EventPut, cloudsim.KindLoadBalancer, string(lb.ID), &lb.Meta, func() any { return lb })
	m.lbs[lb.ID] = lb
}

func (m *fakeCloud) deleteLB(id cloudsim.LoadBalancerID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lb := m.lbs[id]
	delete(m.lbs, id)
	m.record(cloudsim.EventDelete, cloudsim.KindLoadBalancer, string(id), &lb.Meta, func() any { return lb })
}

func (m *fakeCloud) putInstance(id cloudsim.InstanceID, ip string, state cloudsim.InstanceState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := cloudsim.Instance{ID: id, State: state, Addresses: []cloudsim.InstanceAddress{{Type: cloudsim.AddressInternal, Address: ip}}}
	m.record(cloudsim.EventPut, cloudsim.KindInstance, string(id), &i.Meta, func() any { return i })
	m.instances[id] = i
}

func (m *fakeCloud) deleteInstance(id cloudsim.InstanceID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.instances[id]
	delete(m.instances, id)
	m.record(cloudsim.EventDelete, cloudsim.KindInstance, string(id), &i.Meta, func() any { return i })
}

func (m *fakeCloud) breakWatches() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken++
	m.notify()
}

func (m *fakeCloud) compact() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = m.rev
}

// restart deletes the journal and all records of the cloud. The next revision is 1.
func (m *fakeCloud) restart() {
	m.mu.Lock()
	m.rev, m.journal = 0, nil
	clear(m.lbs)
	clear(m.instances)
	clear(m.reports)
	m.mu.Unlock()
}

// setError makes every call return err. If err is nil, the calls succeed again. setError also ends
// the watches.
func (m *fakeCloud) setError(err error) {
	m.mu.Lock()
	m.down, m.met = err, false
	m.mu.Unlock()
	m.breakWatches()
}

func (m *fakeCloud) ListLoadBalancers(_ context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.LoadBalancer], error) {
	if m.listing != nil {
		m.listing(o.After)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return listPage(m, m.lbs, o)
}

func (m *fakeCloud) ListInstances(_ context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Instance], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists++
	return listPage(m, m.instances, o)
}

func (m *fakeCloud) ListZones(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.Zone], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.met = m.met || m.down != nil
	return cloudsim.List[cloudsim.Zone]{Revision: m.rev}, m.down
}

// listPage returns one page of at most two items.
func listPage[K ~string, V any](m *fakeCloud, all map[K]V, o cloudsim.ListOptions) (l cloudsim.List[V], err error) {
	l.Revision, m.met = m.rev, m.met || m.down != nil
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if string(k) <= o.After {
			continue
		}
		if len(l.Items) == 2 {
			return l, m.down
		}
		l.Items = append(l.Items, all[k])
		l.Next = string(k)
	}
	l.Next = ""
	return l, m.down
}

func (m *fakeCloud) Watch(ctx context.Context, o cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error] {
	return func(yield func(cloudsim.Event, error) bool) {
		m.mu.Lock()
		broken := m.broken
		m.mu.Unlock()
		for rev := o.Since; ; {
			m.mu.Lock()
			changed, err := m.changed, m.down
			switch {
			case err != nil:
				m.met = true
			case m.broken != broken:
				err = cloudsim.Errorf(cloudsim.Unavailable, "the connection broke")
			case rev < m.floor, rev > m.rev:
				err = cloudsim.Errorf(cloudsim.Gone, "the journal begins after %d", m.floor)
			}
			var news []cloudsim.Event
			if err == nil {
				news = m.journal[rev:]
			}
			m.mu.Unlock()
			if err != nil {
				yield(cloudsim.Event{}, err)
				return
			}
			for _, e := range news {
				rev = e.Rev
				time.Sleep(m.pace)
				if !yield(e, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

func (m *fakeCloud) ReportLoadBalancer(_ context.Context, id cloudsim.LoadBalancerID, s cloudsim.LoadBalancerStatus) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	lb, ok := m.lbs[id]
	switch {
	case m.down != nil:
		m.failed++
		return m.down
	case !ok:
		return cloudsim.Errorf(cloudsim.NotFound, "no load balancer %s", id)
	}
	m.reports[id] = append(m.reports[id], s)
	lb.Status = lb.StatusFor(s)
	m.keepLB(lb)
	return nil
}

func (m *fakeCloud) statuses(id cloudsim.LoadBalancerID) []cloudsim.LoadBalancerStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.reports[id])
}

// await waits until the status of a load balancer contains all of its listeners and targets, and
// the function check accepts the status. To accept a status, check returns "". Otherwise it returns
// the reason why the status is not acceptable.
func (m *fakeCloud) await(t testing.TB, id cloudsim.LoadBalancerID, check func(cloudsim.LoadBalancerStatus) string) cloudsim.LoadBalancerStatus {
	t.Helper()
	var last cloudsim.LoadBalancerStatus
	eventually.Empty(t, func() string {
		m.mu.Lock()
		lb := m.lbs[id]
		m.mu.Unlock()
		last = lb.Status
		return satisfies(lb, check)
	})
	return last
}

func satisfies(lb cloudsim.LoadBalancer, is func(cloudsim.LoadBalancerStatus) string) string {
	draining := 0
	for _, t := range lb.Status.Targets {
		if t.Health == cloudsim.TargetDraining {
			draining++
		}
	}
	want := 0
	for _, p := range lb.Pools() {
		want += len(p.Targets)
	}
	if !lb.Reported() || len(lb.Status.Targets)-draining != want {
		return fmt.Sprintf("%+v is not a status of all of %+v", lb.Status, lb.LoadBalancerSpec)
	}
	if why := is(lb.Status); why != "" {
		return fmt.Sprintf("%s: %+v", why, lb.Status)
	}
	return ""
}

// unreadyReason returns "" if every listener accepts connections and every target is healthy.
// Otherwise it returns the reason why the load balancer is not ready.
func unreadyReason(s cloudsim.LoadBalancerStatus) string {
	for _, l := range s.Listeners {
		if l.Endpoint == "" {
			return "listener without endpoint"
		}
	}
	return wantHealth(slices.Repeat([]cloudsim.TargetHealth{cloudsim.TargetHealthy}, len(s.Targets))...)(s)
}

// wantHealth returns a check for await. The check passes if the targets have the given health
// states, in the same order.
func wantHealth(want ...cloudsim.TargetHealth) func(cloudsim.LoadBalancerStatus) string {
	return func(s cloudsim.LoadBalancerStatus) string {
		var got []cloudsim.TargetHealth
		for _, t := range s.Targets {
			got = append(got, t.Health)
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("want targets %v", want)
		}
		return ""
	}
}
