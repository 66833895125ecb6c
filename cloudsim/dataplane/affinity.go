package dataplane

import (
	"container/list"
	"net/netip"
	"time"
)

// maxKept is the maximum number of entries in the affinity of a load balancer. This number of
// entries takes about 20 MB of memory. If the affinity gets more entries, it deletes the least
// recently used entry.
const maxKept = 100_000

// affinity stores the target of each client, for each pool of targets. If the field timeout is 0,
// it stores nothing. The balancer's mu protects the affinity. Every call takes amortized constant
// time.
type affinity struct {
	timeout  time.Duration // time after which the load balancer forgets a client; 0: it remembers no client
	byClient map[clientOf]*list.Element
	recent   list.List // of *affinityEntry, latest use first
}

// clientOf is the key of an entry: the address of a client and the key of a pool. All listeners
// that use this pool share the entry.
type clientOf struct {
	netip.Addr
	pool string
}

type affinityEntry struct {
	client clientOf
	target *target
	until  time.Time
}

func (a *affinity) setTimeout(timeout time.Duration) {
	if a.timeout = timeout; timeout == 0 {
		*a = affinity{}
	}
}

// find returns the stored target of a client in a pool. It returns nil if no target is stored or
// the timeout has passed.
func (a *affinity) find(client netip.Addr, pool string) *target {
	e := a.byClient[clientOf{client, pool}]
	if e == nil {
		return nil
	}
	k := e.Value.(*affinityEntry)
	if time.Now().After(k.until) {
		a.forget(e)
		return nil
	}
	return k.target
}

func (a *affinity) keep(addr netip.Addr, pool string, t *target) {
	if a.timeout == 0 {
		return
	}
	client, until := clientOf{addr, pool}, time.Now().Add(a.timeout)
	if e := a.byClient[client]; e != nil {
		k := e.Value.(*affinityEntry)
		k.target, k.until = t, until
		a.recent.MoveToFront(e)
		return
	}
	if a.byClient == nil {
		a.byClient = map[clientOf]*list.Element{}
	}
	a.byClient[client] = a.recent.PushFront(&affinityEntry{client, t, until})
	for oldest := a.recent.Back(); oldest != nil; oldest = a.recent.Back() {
		if len(a.byClient) <= maxKept && time.Now().Before(oldest.Value.(*affinityEntry).until) {
			return
		}
		a.forget(oldest)
	}
}

func (a *affinity) forget(e *list.Element) {
	delete(a.byClient, e.Value.(*affinityEntry).client)
	a.recent.Remove(e)
}
