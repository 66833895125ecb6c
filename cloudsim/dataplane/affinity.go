package dataplane

import (
	"container/list"
	"net/netip"
	"time"
)

// maxKept bounds the clients that a load balancer remembers: about 20 MB. The
// one that was here longest ago is forgotten first.
const maxKept = 100_000

// affinity remembers which target each client had. The zero value remembers
// nobody. It is behind the balancer's mu; every call is O(1).
type affinity struct {
	timeout  time.Duration // after which a client is forgotten; 0: nobody is remembered
	byClient map[netip.Addr]*list.Element
	recent   list.List // of kept, the latest first
}

type kept struct {
	client netip.Addr
	target *target
	until  time.Time
}

// set changes for how long clients are remembered; with 0 all are forgotten.
func (a *affinity) set(timeout time.Duration) {
	if a.timeout = timeout; timeout == 0 {
		*a = affinity{}
	}
}

// find is the target that client had, or nil.
func (a *affinity) find(client netip.Addr) *target {
	e := a.byClient[client]
	if e == nil {
		return nil
	}
	k := e.Value.(*kept)
	if time.Now().After(k.until) {
		a.forget(e)
		return nil
	}
	return k.target
}

// keep notes that client has t from now on.
func (a *affinity) keep(client netip.Addr, t *target) {
	if a.timeout == 0 {
		return
	}
	until := time.Now().Add(a.timeout)
	if e := a.byClient[client]; e != nil {
		k := e.Value.(*kept)
		k.target, k.until = t, until
		a.recent.MoveToFront(e)
		return
	}
	if a.byClient == nil {
		a.byClient = map[netip.Addr]*list.Element{}
	}
	a.byClient[client] = a.recent.PushFront(&kept{client, t, until})
	for oldest := a.recent.Back(); oldest != nil; oldest = a.recent.Back() {
		if len(a.byClient) <= maxKept && time.Now().Before(oldest.Value.(*kept).until) {
			return
		}
		a.forget(oldest)
	}
}

func (a *affinity) forget(e *list.Element) {
	delete(a.byClient, e.Value.(*kept).client)
	a.recent.Remove(e)
}
