package dataplane

import (
	"container/heap"
	"net/netip"
	"slices"
)

// slot is the state of one target at one listener. It contains the number of connections that the
// listener has to the target, and the place of the target in the queue. The balancer's mu protects
// a slot.
type slot struct {
	target *target
	order  int     // order in which slots were made; decides between otherwise equal slots
	active int     // connections of this listener to the target, including those being dialed
	turn   float64 // virtual time at which the target's last turn ends
	at     int     // index in the queue; -1 while the target takes no connections
}

// queue is a heap of a listener's slots. It contains only the slots that can accept a connection.
// The balancer chooses the first slot for the next connection. The heap compares three values in
// this order: connections divided by weight, slot.turn, slot.order. When the balancer chooses a
// slot, slot.turn becomes queue.now plus 1/weight. So if slots have the same number of connections
// per weight, the balancer chooses them in proportion to their weights. To choose or release a slot
// takes O(log targets).
type queue struct {
	slots []*slot
	now   float64 // virtual time at which the turn of the last chosen slot began
}

func (q *queue) Len() int { return len(q.slots) }

func (q *queue) Less(i, j int) bool {
	a, b := q.slots[i], q.slots[j]
	// This compares a.active/a.weight with b.active/b.weight without rounding.
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

// Push and Pop implement heap.Interface.
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

// setQueued adds s to the queue if queued is true. Otherwise it removes s from the queue. If s is
// already in the queue and queued is true, setQueued moves s to its right place, because the weight
// of the target may have changed. An added slot gets a turn soon, but no extra turns for the time
// in which it was not in the queue.
func (q *queue) setQueued(s *slot, queued bool) {
	switch {
	case queued && s.at < 0:
		s.turn = max(s.turn, q.now)
		heap.Push(q, s)
	case queued:
		heap.Fix(q, s.at)
	case s.at >= 0:
		heap.Remove(q, s.at)
	}
}

// takeNext chooses the first slot with a target that the caller has not tried. It returns nil if
// the queue has no slot with an untried target.
func (q *queue) takeNext(tried []*target) *slot {
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

// use adds one connection to the connection count of s, and moves s back in the queue. If the
// target has a large weight, s moves back only a little.
func (q *queue) use(s *slot) {
	q.now = max(q.now, s.turn)
	s.turn = q.now + 1/float64(s.target.weight)
	s.active++
	heap.Fix(q, s.at)
}

// giveBack subtracts one connection from the connection count of s. If s is in the queue, giveBack
// moves s to its new place.
func (q *queue) giveBack(s *slot) {
	s.active--
	if s.at >= 0 {
		heap.Fix(q, s.at)
	}
}

// choice is a chosen target with the address and port to connect to.
type choice struct {
	*slot
	ip   string
	port int
}

// pickTarget chooses a target for a client from the targets of l that the caller has not tried.
// With affinity it prefers the client's previous target. It returns false if no target is
// available. Otherwise it counts the connection, and the caller must later call release.
func (b *balancer) pickTarget(l *listener, client netip.Addr, tried []*target) (c choice, ok bool) {
	var s *slot
	if t := b.kept.find(client, l.pool); t != nil && !slices.Contains(tried, t) {
		if had := l.slots[t]; had != nil && had.at >= 0 {
			s = had
			l.queue.use(s)
		}
	}
	if s == nil {
		if s = l.queue.takeNext(tried); s == nil {
			return c, false
		}
	}
	b.kept.keep(client, l.pool, s.target)
	s.target.active++
	return choice{slot: s, ip: s.target.machine.reach(client), port: l.spec.TargetPort}, true
}

// release decreases the connection counts that pickTarget increased.
func (b *balancer) release(l *listener, s *slot) {
	l.queue.giveBack(s)
	s.target.active--
	b.forgetIfUnused(s.target)
}

// updateSlots makes a slot for t in every listener that uses the pool of t. If t takes connections,
// updateSlots adds the slots to the queues of these listeners. Otherwise it removes the slots from
// these queues. If a listener has a slot for t, but no longer uses the pool of t, updateSlots
// removes the slot from the listener's queue. It takes O(listeners · log targets).
func (b *balancer) updateSlots(t *target) {
	for _, l := range b.listeners {
		s, member := l.slots[t], l.pool == t.key.Listener
		if s == nil {
			if !member {
				continue
			}
			b.seats++
			s = &slot{target: t, order: b.seats, at: -1}
			l.slots[t] = s
		}
		l.queue.setQueued(s, member && t.isUsable())
	}
}
