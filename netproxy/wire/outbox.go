package wire

import (
	"context"
	"sync"
)

// Outbox puts the packets of many goroutines on one stream, one after the
// other. Send waits for its turn, and so slows whoever sends; Post never waits,
// and is for short packets of those who may not.
type Outbox struct {
	packets chan *Packet
	bell    chan struct{}

	mu     sync.Mutex
	posted []*Packet
}

// NewOutbox makes an empty Outbox; nothing leaves it before Run.
func NewOutbox() *Outbox {
	return &Outbox{packets: make(chan *Packet, 8), bell: make(chan struct{}, 1)}
}

// Send adds p in its turn, unless ctx ends first: then it frees p's data.
func (o *Outbox) Send(ctx context.Context, p *Packet) error {
	if o.Offer(p) {
		return nil
	}
	select {
	case o.packets <- p:
		return nil
	case <-ctx.Done():
		p.Data.Free()
		return context.Cause(ctx)
	}
}

// Offer adds p if that can be done at once.
func (o *Outbox) Offer(p *Packet) bool {
	select {
	case o.packets <- p:
		return true
	default:
		return false
	}
}

// Post adds p without waiting; it may overtake packets that were sent before.
func (o *Outbox) Post(p *Packet) {
	o.mu.Lock()
	o.posted = append(o.posted, p)
	o.mu.Unlock()
	ring(o.bell)
}

// Run gives packets to send, one at a time, until ctx ends or send fails.
func (o *Outbox) Run(ctx context.Context, send func(*Packet) error) error {
	for {
		select {
		case p := <-o.packets:
			if err := send(p); err != nil {
				return err
			}
		case <-o.bell:
			if err := o.flush(send); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *Outbox) flush(send func(*Packet) error) error {
	o.mu.Lock()
	all := o.posted
	o.posted = nil
	o.mu.Unlock()
	for _, p := range all {
		if err := send(p); err != nil {
			return err
		}
	}
	return nil
}
