package dataplane

import (
	"context"
	"slices"
	"sync"
)

// ration bounds what load balancers do at once, and shares it out: one may have
// more while it has fewer than are free. So n that keep theirs for long leave an
// equal share, the n+1st of all, to whoever comes; the price is that one alone
// has half. What is given back goes to whoever waits and has the fewest, and among
// equals to the one whose turn is longest ago. O(load balancers that wait).
type ration struct {
	mu      sync.Mutex
	free    int
	waiting []*portion // each once, the one whose turn is longest ago first; none has fewer than are free
}

// portion is one load balancer's part of a ration; the zero value has nothing.
// It is behind the ration's mu.
type portion struct {
	taken int
	queue []chan struct{} // closed when it is served, the first first
}

// take waits for one more for p, and reports whether it got that before ctx
// ended. Whoever did must give it back.
func (r *ration) take(ctx context.Context, p *portion) bool {
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
		return true // it was served in the same moment
	}
	if p.queue = slices.Delete(p.queue, i, i+1); len(p.queue) == 0 {
		r.waiting = slices.DeleteFunc(r.waiting, func(w *portion) bool { return w == p })
	}
	return false
}

// give gives back one of p's.
func (r *ration) give(p *portion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.taken--
	r.free++
	r.serve()
}

// serve gives away what may be given.
func (r *ration) serve() {
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
