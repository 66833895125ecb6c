package wire

import (
	"context"
	"errors"
	"sync"
)

// Outbox sends the packets of many goroutines on one stream. Send waits until the queue has
// space, and so slows down a fast sender. Post never waits. Post is for short packets from
// goroutines that must not block.
type Outbox struct {
	packets chan *Packet
	changed chan struct{}

	mu     sync.Mutex
	posted []*Packet
	full   bool // Post had no space for a packet
}

// NewOutbox makes an empty Outbox. The Outbox sends packets only during a call of Run.
func NewOutbox() *Outbox {
	return &Outbox{packets: make(chan *Packet, 8), changed: make(chan struct{}, 1)}
}

// Send adds the packet p at the end of the queue. If ctx ends before the queue has space, Send
// frees p's data and returns context.Cause(ctx).
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

// Offer adds the packet p if there is space, and reports whether it has added p.
func (o *Outbox) Offer(p *Packet) bool {
	select {
	case o.packets <- p:
		return true
	default:
		return false
	}
}

// maxPosted is the maximum number of packets from Post that wait for Run. While Run sends these
// packets, Post can add maxPosted more packets.
const maxPosted = 1 << 16

// errFull is the error of Run if Post had no space for a packet.
var errFull = errors.New("the peer does not read its stream, and too many packets wait")

// Post adds the packet p without waiting. Run may send p before packets that earlier calls of Send
// have added. If maxPosted packets wait, Post drops p, and Run returns an error. Without this
// limit, a peer could send many packets that need an answer, and never read the answers. The
// waiting answers would use all memory.
func (o *Outbox) Post(p *Packet) {
	o.mu.Lock()
	if len(o.posted) < maxPosted {
		o.posted = append(o.posted, p)
	} else {
		o.full = true
	}
	o.mu.Unlock()
	notify(o.changed)
}

// Run calls sendFn with one packet at a time. Run returns when ctx ends, when sendFn returns an
// error, or when Post has dropped a packet.
func (o *Outbox) Run(ctx context.Context, sendFn func(*Packet) error) error {
	for {
		select {
		case p := <-o.packets:
			if err := sendFn(p); err != nil {
				return err
			}
		case <-o.changed:
			if err := o.flush(sendFn); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *Outbox) flush(send func(*Packet) error) error {
	o.mu.Lock()
	all, full := o.posted, o.full
	o.posted = nil
	o.mu.Unlock()
	if full {
		return errFull
	}
	for _, p := range all {
		if err := send(p); err != nil {
			return err
		}
	}
	return nil
}
