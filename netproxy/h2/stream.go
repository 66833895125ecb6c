package h2

import (
	"context"
	"encoding/binary"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// stream is one stream of gRPC, of either end. One goroutine may send and one
// may receive.
type stream struct {
	c      *conn
	id     uint32
	ctx    context.Context
	cancel context.CancelCauseFunc
	client *clientStream // nil at a server
	refuse func(error)   // ends the call with a status; nil at a client

	// Under c.mu.
	window int64 // that we may send
	left   int   // bytes that the peer may send
	taken  int   // bytes that were taken and not given back
	lent   int   // bytes that were let in beside the window
	local  bool  // we have said all
	remote bool  // the peer has said all
	gone   error // why nothing can be sent any more
	room   chan struct{}

	// The reader's: the message that is under way.
	prefix [messageHead]byte
	have   int // bytes of prefix
	need   int // bytes of the message that are to come
	part   mem.BufferSlice
	little []byte // the last of part, if it has room for more

	mu     sync.Mutex
	queue  []mem.BufferSlice
	owed   int   // bytes to let in when the queue is empty
	over   error // what comes after the queue
	more   chan struct{}
	parked bool // recv waits
	sink   func(mem.BufferSlice) mem.BufferSlice
}

// newStream makes a stream; the caller holds c.mu.
func (c *conn) newStream(ctx context.Context, id uint32) *stream {
	s := &stream{
		c: c, id: id, window: c.initial, left: c.conf.Window,
		room: make(chan struct{}, 1), more: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	c.streams[id] = s
	c.last = id
	return s
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// send sends a message, which it frees. It returns when the connection has
// taken all of it.
func (s *stream) send(msg mem.BufferSlice) error {
	defer msg.Free()
	out := outgoing{size: msg.Len(), left: messageHead + msg.Len(), rest: msg}
	for out.left > 0 {
		least := 1
		if out.left == messageHead+out.size {
			least = messageHead
		}
		n, err := s.reserve(least, out.left)
		if err != nil {
			return err
		}
		s.c.data(s.id, &out, n)
	}
	return nil
}

// take puts together messages from p, a part of k.
func (s *stream) take(p []byte, k *chunk) error {
	for len(p) > 0 {
		if s.have < messageHead {
			if p = fill(s.prefix[:], &s.have, p); s.have < messageHead {
				return nil
			}
			if s.prefix[0] != 0 {
				return status.Error(codes.Unimplemented, "nothing compressed is understood here")
			}
			size := binary.BigEndian.Uint32(s.prefix[1:])
			if uint64(size) > uint64(s.c.conf.MaxMessage) { //nolint:gosec // a size
				return status.Errorf(codes.ResourceExhausted, "a message of %d bytes is longer than the %d that are taken here", size, s.c.conf.MaxMessage)
			}
			if s.need = int(size); s.need > s.c.conf.Window/4 {
				s.borrow()
			}
		}
		if n := min(s.need, len(p)); n > 0 {
			s.add(p[:n], k)
			s.need -= n
			p = p[n:]
		}
		if s.need == 0 {
			s.deliver(s.part)
			s.part, s.little, s.have = nil, nil, 0
		}
	}
	return nil
}

// add adds a piece to the message that is under way. Little ones share a buffer:
// a peer that sends byte by byte may not make us keep fifty for each.
func (s *stream) add(p []byte, k *chunk) {
	if len(p) > littlePiece {
		s.part, s.little = append(s.part, k.piece(p)), nil
		return
	}
	if len(p) > cap(s.little)-len(s.little) {
		s.little = make([]byte, 0, min(max(len(p), s.need), 4*littlePiece))
		s.part = append(s.part, nil)
	}
	s.little = append(s.little, p...)
	s.part[len(s.part)-1] = mem.SliceBuffer(s.little)
}

// borrow lets a message in that is longer than the window has room for, if no
// other waits to be taken; else when none does.
func (s *stream) borrow() {
	s.mu.Lock()
	now := len(s.queue) == 0
	if !now {
		s.owed = s.need
	}
	s.mu.Unlock()
	if now {
		s.c.lend(s, s.need)
	}
}

// deliver gives a message to the sink, or puts it, or what the sink has left of
// it, where recv finds it.
func (s *stream) deliver(msg mem.BufferSlice) {
	s.mu.Lock()
	if sink := s.sink; sink != nil && s.parked && s.over == nil && len(s.queue) == 0 {
		s.mu.Unlock()
		size := msg.Len()
		if msg = sink(msg); msg == nil {
			s.c.taken(s, messageHead+size)
			return
		}
		s.c.taken(s, size-msg.Len())
		s.mu.Lock()
	}
	if s.over != nil {
		s.mu.Unlock()
		msg.Free()
		return
	}
	s.queue = append(s.queue, msg)
	s.owed = 0 // it was for this one, if it is still there
	s.mu.Unlock()
	ring(s.more)
}

// recv waits for a message. After the last it returns why there is no more:
// io.EOF if the peer has said all.
func (s *stream) recv() (mem.BufferSlice, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			msg := s.queue[0]
			s.queue[0] = nil
			owed := 0
			if s.queue = s.queue[1:]; len(s.queue) == 0 {
				s.queue = nil
				owed, s.owed = s.owed, 0
			}
			s.mu.Unlock()
			s.c.taken(s, messageHead+msg.Len())
			if owed > 0 {
				s.c.lend(s, owed)
			}
			return msg, nil
		}
		err := s.over
		s.parked = err == nil
		s.mu.Unlock()
		if err != nil {
			ring(s.more) // for who else asks
			return nil, err
		}
		<-s.more
		s.mu.Lock()
		s.parked = false
		s.mu.Unlock()
	}
}

// Direct is what a stream of either end is, too.
type Direct interface {
	// Sink has the connection's reader give f each message that comes while
	// RecvMsg waits, and nothing else is to be received: so a message need not
	// wake whoever receives. f takes the message over and may not wait. It
	// returns what it has not taken, as a message that RecvMsg gets, or nil.
	Sink(f func(mem.BufferSlice) mem.BufferSlice)
}

func (s *stream) Sink(f func(mem.BufferSlice) mem.BufferSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink = f
}

// Peeker is what a stream of either end is, too.
type Peeker interface{ Waiting() bool }

// Waiting reports whether a message can be received without waiting.
func (s *stream) Waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// say sets what recv returns after the messages that wait, unless that is known.
func (s *stream) say(why error) {
	s.mu.Lock()
	if s.over == nil {
		s.over = why
	}
	s.mu.Unlock()
	ring(s.more)
}

// finish ends a stream in both directions. What waits to be taken stays, but
// after drop.
func (s *stream) finish(why error) {
	s.c.mu.Lock()
	if s.gone == nil {
		s.gone = why
	}
	s.c.mu.Unlock()
	ring(s.room)
	s.say(why)
	s.cancel(why)
}

// drop frees what waits to be taken: nobody will.
func (s *stream) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = io.EOF
	}
	for _, msg := range s.queue {
		msg.Free()
	}
	s.queue = nil
}
