package dataplane

import (
	"container/heap"
	"net/netip"
	"slices"
)

// slot is a target's place with one listener: how busy this listener keeps it
// and when it is next. All of it is behind the balancer's mu.
type slot struct {
	target *target
	order  int     // of slots, breaks ties
	active int     // connections of this listener to it, also those being dialled
	turn   float64 // when it was last chosen, in the queue's time
	at     int     // place in the queue; -1 while it takes no connections
}

// queue is who may be chosen, the next first: the fewest connections for its
// weight, and among equals the one whose turn is longest ago, where a turn is
// longer the lighter the target is. Choosing and giving back is O(log targets).
type queue struct {
	slots []*slot
	now   float64 // the turn of the last one chosen
}

func (q *queue) Len() int { return len(q.slots) }

func (q *queue) Less(i, j int) bool {
	a, b := q.slots[i], q.slots[j]
	// a.active/a.weight < b.active/b.weight, without rounding
	if x, y := a.active*b.target.weight, b.active*a.target.weight; x != y {
		return x < y
	}
	if a.turn != b.turn {
		return a.turn < b.turn
	}
	return a.order < b.order
}

func (q *queue) Swap(i, j int) {
	q.slots[i], q.slots[j] = q.slots[j], q.slots[i]
	q.slots[i].at, q.slots[j].at = i, j
}

// Push and Pop are for container/heap.
func (q *queue) Push(x any) {
	s := x.(*slot)
	s.at = len(q.slots)
	q.slots = append(q.slots, s)
}

func (q *queue) Pop() any {
	last := len(q.slots) - 1
	s := q.slots[last]
	q.slots[last] = nil
	q.slots = q.slots[:last]
	s.at = -1
	return s
}

// set puts s in or out, and in its right place after its target changed. One
// that comes in is as if it had just had its turn to come: it need not wait a
// round, and does not get the turns that it missed.
func (q *queue) set(s *slot, in bool) {
	switch {
	case in && s.at < 0:
		s.turn = max(s.turn, q.now)
		heap.Push(q, s)
	case in:
		heap.Fix(q, s.at)
	case s.at >= 0:
		heap.Remove(q, s.at)
	}
}

// take chooses the next besides those that were tried; nil if there is none.
func (q *queue) take(tried []*target) *slot {
	var aside []*slot
	for len(q.slots) > 0 && slices.Contains(tried, q.slots[0].target) {
		aside = append(aside, heap.Pop(q).(*slot))
	}
	var s *slot
	if len(q.slots) > 0 {
		s = q.slots[0]
		q.use(s)
	}
	for _, a := range aside {
		heap.Push(q, a)
	}
	return s
}

// use gives s a turn.
func (q *queue) use(s *slot) {
	q.now = max(q.now, s.turn)
	s.turn = q.now + 1/float64(s.target.weight)
	s.active++
	heap.Fix(q, s.at)
}

// giveBack ends one connection of s.
func (q *queue) giveBack(s *slot) {
	s.active--
	if s.at >= 0 {
		heap.Fix(q, s.at)
	}
}

// choice is a target that a connection may go to, and where that is.
type choice struct {
	*slot
	ip   string
	port int
}

// pick chooses a target of l for a client, besides those that were tried: the
// one it had before, if clients keep theirs, or else the next. It counts the
// connection: whoever picks must release.
func (b *balancer) pick(l *listener, client netip.Addr, tried []*target) (c choice, ok bool) {
	var s *slot
	if t := b.kept.find(client); t != nil && !slices.Contains(tried, t) {
		if had := l.slots[t]; had != nil && had.at >= 0 {
			s = had
			l.queue.use(s)
		}
	}
	if s == nil {
		if s = l.queue.take(tried); s == nil {
			return c, false
		}
	}
	b.kept.keep(client, s.target)
	s.target.active++
	return choice{slot: s, ip: s.target.machine.reach(client), port: l.spec.TargetPort}, true
}

// release takes back what pick counted.
func (b *balancer) release(l *listener, s *slot) {
	l.queue.giveBack(s)
	s.target.active--
	b.forgetIfUnused(s.target)
}

// seat gives t its slot with every listener, and puts it in or out of the
// queues as it takes connections or not. O(listeners · log targets).
func (b *balancer) seat(t *target) {
	for _, l := range b.listeners {
		s := l.slots[t]
		if s == nil {
			b.seats++
			s = &slot{target: t, order: b.seats, at: -1}
			l.slots[t] = s
		}
		l.queue.set(s, t.takes())
	}
}
