package dataplane

import (
	"context"
	"slices"
	"sync"
)

// probeSlots limits the number of concurrent probes. Each running probe has one slot. A free slot
// goes to the waiting load balancer with the fewest slots. If several waiting load balancers have
// this number of slots, the slot goes to the load balancer that has waited longest. Each grant
// takes O(waiting load balancers).
//
// A load balancer gets another slot only if it has fewer slots than the number of free slots. So
// free slots remain for another load balancer. The disadvantage is that a single load balancer gets
// only half of the slots.
type probeSlots struct {
	mu      sync.Mutex
	free    int
	waiting []*probeShare // shares with waiting calls; a share that gets a slot and has more waiting calls moves to the end
}

// probeShare is the share of the probe slots that one load balancer has. The zero value has no
// slots. The field probeSlots.mu protects a probeShare.
type probeShare struct {
	taken int
	queue []chan struct{} // one channel per waiting call of takeSlot, closed when the call gets a slot; first call first
}

// takeSlot waits for one slot for p. It reports whether it got the slot before ctx ended. If
// takeSlot returns true, the caller must later call giveSlot.
func (r *probeSlots) takeSlot(ctx context.Context, p *probeShare) bool {
	served := make(chan struct{})
	r.mu.Lock()
	if p.queue = append(p.queue, served); len(p.queue) == 1 {
		r.waiting = append(r.waiting, p)
	}
	r.serve()
	r.mu.Unlock()
	select {
	case <-served:
		return true
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(p.queue, served)
	if i < 0 {
		return true // serve granted a slot at the moment at which ctx ended
	}
	if p.queue = slices.Delete(p.queue, i, i+1); len(p.queue) == 0 {
		r.waiting = slices.DeleteFunc(r.waiting, func(w *probeShare) bool { return w == p })
	}
	return false
}

func (r *probeSlots) giveSlot(p *probeShare) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.taken--
	r.free++
	r.serve()
}

// serve grants free slots to the waiting load balancers. The caller must hold r.mu.
func (r *probeSlots) serve() {
	for len(r.waiting) > 0 {
		next := 0
		for i, p := range r.waiting {
			if p.taken < r.waiting[next].taken {
				next = i
			}
		}
		p := r.waiting[next]
		if p.taken >= r.free {
			return
		}
		p.taken++
		r.free--
		close(p.queue[0])
		p.queue = p.queue[1:]
		r.waiting = slices.Delete(r.waiting, next, next+1)
		if len(p.queue) > 0 {
			r.waiting = append(r.waiting, p)
		}
	}
}
