package ccm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/informer"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

const (
	// mirrorTrust is the time for which callers may use the mirror after the
	// last message of the watch. The cloud sends a message at least every 15
	// seconds.
	mirrorTrust = 40 * time.Second
	// mirrorRetry is the longest delay between two attempts to list and watch
	// the cloud's objects.
	mirrorRetry = 15 * time.Second
)

// mirror is a local copy of the cloud's instances and load balancers. It gets
// these objects from lists and a watch of the cloud. With the mirror, a loop
// over all nodes needs no calls to the cloud.
//
// The mirror can only confirm that an object exists. If the mirror lacks an object, or if the last
// message of the watch is too old, the caller asks the API. A mirror that is not up to date
// therefore costs an additional call, but never causes a deletion. The methods sharesNone and
// existingTargets are exceptions. If the mirror is up to date but lacks an object, they do not ask
// the API. This is safe, because their callers delete nothing.
type mirror struct {
	log *slog.Logger
	api *client.Client

	mu          sync.RWMutex
	instances   mirroredKind[cloudsim.InstanceID, cloudsim.Instance]
	balancers   mirroredKind[cloudsim.LoadBalancerID, cloudsim.LoadBalancer]
	lastContact time.Time          // time of the watch's last message; zero while no watch works
	outdated    bool               // true from a call of relist until the mirror begins to list again
	failed      error              // the error of the last watch
	cancel      context.CancelFunc // ends the current list or watch
	onChange    []func(balancer cloudsim.LoadBalancer)
	onFresh     []func()
}

func newMirror(log *slog.Logger, api *client.Client) *mirror {
	m := &mirror{log: log, api: api}
	m.instances.id = func(i cloudsim.Instance) cloudsim.InstanceID { return i.ID }
	m.balancers.id = func(lb cloudsim.LoadBalancer) cloudsim.LoadBalancerID { return lb.ID }
	return m
}

// run keeps the mirror up to date until ctx ends. After each call of relist, it
// lists all objects again.
func (m *mirror) run(ctx context.Context) {
	for ctx.Err() == nil {
		following, cancel := context.WithCancel(ctx)
		m.mu.Lock()
		m.cancel, m.outdated = cancel, false
		m.mu.Unlock()
		informer.Run(following, m.api.Watch, m, backoff.Backoff{First: 100 * time.Millisecond, Most: mirrorRetry})
		cancel()
		m.setUnusable(nil)
	}
}

// relist calls applyFn and cancels the watch, so that mirror.run lists all objects again. The
// function applyFn stores a new configuration, which may contain the URL of another cloud. relist
// holds the lock mu during the call of applyFn. So no caller can use objects of the old cloud
// together with the new configuration. Callers do not use the mirror until the new lists are
// complete, even if a late list or event of the old cloud arrives.
func (m *mirror) relist(applyFn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	applyFn()
	m.lastContact, m.failed, m.outdated = time.Time{}, nil, true
	if m.cancel != nil {
		m.cancel()
	}
}

// health returns nil if the mirror is up to date. Otherwise it returns the
// reason.
func (m *mirror) health() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case m.isFreshLocked():
		return nil
	case m.failed != nil:
		return fmt.Errorf("the watch of the cloud failed: %w", m.failed)
	}
	return errors.New("the watch of the cloud has not received an answer yet, or has received none for some time")
}

// setUnusable prevents callers from using the mirror until the watch works again. Callers then ask
// the API. If the cause is not known, reason may be nil.
func (m *mirror) setUnusable(reason error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastContact, m.failed = time.Time{}, reason
}

// OnError prevents callers from using the mirror, so that callers ask the API. The informer calls
// OnError when the watch fails. If isFirst is true, OnError also logs err. The informer sets
// isFirst for its first failure, and for the first failure after the watch has worked.
func (m *mirror) OnError(err error, isFirst bool) {
	m.setUnusable(err)
	if isFirst {
		m.log.Warn("the watch of the cloud failed; until the watch works again, the CCM calls the API for each lookup", "err", err)
	}
}

// List replaces the content of the mirror by the cloud's current instances and
// load balancers.
func (m *mirror) List(ctx context.Context) (informer.Listed, error) {
	instances, at, err := cloudsim.All(ctx, m.api.ListInstances, cloudsim.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	balancers, balancersAt, err := cloudsim.All(ctx, m.api.ListLoadBalancers, cloudsim.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.instances.reset(instances)
	m.balancers.reset(balancers)
	return informer.Listed{cloudsim.KindInstance: at, cloudsim.KindLoadBalancer: balancersAt}, nil
}

// OnSync records that the watch works. If callers could not use the mirror before, OnSync also
// calls the callbacks in onFresh. After a call of relist, OnSync does nothing until the mirror
// begins to list again, because a late message may come from the watch of the old cloud.
func (m *mirror) OnSync(bool) {
	m.mu.Lock()
	if m.outdated {
		m.mu.Unlock()
		return
	}
	was := m.isFreshLocked()
	m.lastContact = time.Now()
	tell := m.onFresh
	m.mu.Unlock()
	if was {
		return
	}
	for _, f := range tell {
		f()
	}
}

// isFreshLocked reports whether callers may use the mirror. The caller must
// hold the lock mu.
func (m *mirror) isFreshLocked() bool {
	return !m.lastContact.IsZero() && time.Since(m.lastContact) < mirrorTrust
}

func (m *mirror) isFresh() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.isFreshLocked()
}

// Take applies an event of the watch to the mirror. For an event about a load
// balancer, it also calls the callbacks in onChange.
func (m *mirror) Take(_ context.Context, e cloudsim.Event) error {
	switch e.Kind {
	case cloudsim.KindInstance:
		_, err := applyTo(m, &m.instances, e)
		return err
	case cloudsim.KindLoadBalancer:
		lb, err := applyTo(m, &m.balancers, e)
		if err != nil {
			return err
		}
		m.mu.RLock()
		tell := m.onChange
		m.mu.RUnlock()
		for _, f := range tell {
			f(lb)
		}
	}
	return nil
}

func applyTo[ID ~string, T cloudsim.Resource](m *mirror, s *mirroredKind[ID, T], e cloudsim.Event) (T, error) {
	var v T
	if err := json.Unmarshal(e.Object, &v); err != nil {
		return v, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Type == cloudsim.EventDelete {
		s.drop(ID(e.ID))
	} else {
		s.put(v)
	}
	return v, nil
}

// instance returns the instance with the given id. The second result is false
// if the mirror does not have the instance, or if callers may not use the
// mirror (see isFreshLocked).
func (m *mirror) instance(id cloudsim.InstanceID) (cloudsim.Instance, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, ok := m.instances.byID[id]
	return i, ok && m.isFreshLocked()
}

// instanceNamed returns the instance with the given name. The second result is true only if callers
// may use the mirror (see isFreshLocked) and the mirror has exactly one instance with this name.
// Names are unique only in a project. With the token of an admin, the mirror contains the instances
// of several projects.
func (m *mirror) instanceNamed(name string) (cloudsim.Instance, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, ok := m.instances.findByName(name)
	return i, ok && m.isFreshLocked()
}

// balancerNamed returns the load balancer with the given name. The second result is true only if
// callers may use the mirror (see isFreshLocked) and the mirror has exactly one load balancer with
// this name.
func (m *mirror) balancerNamed(name string) (cloudsim.LoadBalancer, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	lb, ok := m.balancers.findByName(name)
	return lb, ok && m.isFreshLocked()
}

// allBalancers returns an iterator over all load balancers. It also reports
// whether callers may use the mirror (see isFreshLocked).
func (m *mirror) allBalancers() (iter.Seq[cloudsim.LoadBalancer], bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]cloudsim.LoadBalancer, 0, len(m.balancers.byID))
	for _, lb := range m.balancers.byID {
		all = append(all, lb)
	}
	return func(yield func(cloudsim.LoadBalancer) bool) {
		for _, lb := range all {
			if !yield(lb) {
				return
			}
		}
	}, m.isFreshLocked()
}

// subscribe adds two callbacks. The mirror calls onChange for every event of the watch about a load
// balancer. It calls onFresh when callers may use the mirror again. A callback must not block,
// because the mirror handles no events while a callback runs.
func (m *mirror) subscribe(onChange func(cloudsim.LoadBalancer), onFresh func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onChange, m.onFresh = append(m.onChange, onChange), append(m.onFresh, onFresh)
}

type mirroredKind[ID ~string, T cloudsim.Resource] struct {
	id     func(T) ID
	byID   map[ID]T
	byName map[string]map[ID]bool
}

func (s *mirroredKind[ID, T]) reset(all []T) {
	s.byID, s.byName = make(map[ID]T, len(all)), make(map[string]map[ID]bool, len(all))
	for _, v := range all {
		s.put(v)
	}
}

// put stores the resource v. If the store already has a newer revision of this resource, put does
// nothing. A list may have several pages, and the watch begins at the revision of the first page.
// The watch can therefore report a change that a later page of the list already contains.
func (s *mirroredKind[ID, T]) put(v T) {
	id := s.id(v)
	if have, ok := s.byID[id]; ok {
		if have.Head().Revision > v.Head().Revision {
			return
		}
		s.drop(id)
	}
	s.byID[id] = v
	name := v.Head().Name
	if s.byName[name] == nil {
		s.byName[name] = map[ID]bool{}
	}
	s.byName[name][id] = true
}

func (s *mirroredKind[ID, T]) drop(id ID) {
	v, ok := s.byID[id]
	if !ok {
		return
	}
	delete(s.byID, id)
	ids := s.byName[v.Head().Name]
	if delete(ids, id); len(ids) == 0 {
		delete(s.byName, v.Head().Name)
	}
}

func (s *mirroredKind[ID, T]) findByName(name string) (v T, ok bool) {
	if ids := s.byName[name]; len(ids) == 1 {
		for id := range ids {
			v, ok = s.byID[id]
		}
	}
	return v, ok
}
