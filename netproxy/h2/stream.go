package h2

import (
	"context"
	"encoding/binary"
	"io"
	"net"
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

	// Under c.mu.
	window int64 // that we may send
	left   int   // bytes that the peer may send
	taken  int   // bytes that were taken and not given back
	local  bool  // we have said all
	remote bool  // the peer has said all
	gone   error // why nothing can be sent any more
	room   chan struct{}

	// The sender's.
	vec net.Buffers

	// The reader's: the message that is under way.
	prefix [messageHead]byte
	have   int // bytes of prefix
	need   int // bytes of the message that are to come
	part   mem.BufferSlice

	mu    sync.Mutex
	queue []mem.BufferSlice
	over  error // what comes after the queue
	more  chan struct{}
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
	size := msg.Len()
	rest := append(s.vec[:0], nil) // for the heads
	for _, b := range msg {
		rest = append(rest, b.ReadOnlyData())
	}
	s.vec = rest
	defer clear(s.vec)
	total := messageHead + size
	for first := true; total > 0; first = false {
		least := 1
		if first {
			least = messageHead
		}
		n, err := s.reserve(least, total)
		if err != nil {
			return err
		}
		total -= n
		rest = s.c.data(s.id, rest, n, size, first)
	}
	return nil
}

// reserve waits until at least least bytes may be sent, and takes at most most.
func (s *stream) reserve(least, most int) (int, error) {
	c := s.c
	for {
		c.mu.Lock()
		if s.gone != nil {
			c.mu.Unlock()
			return 0, s.gone
		}
		if n := min(int(min(s.window, c.window)), most, c.largest); n >= least {
			s.window -= int64(n)
			c.window -= int64(n)
			c.mu.Unlock()
			return n, nil
		}
		c.mu.Unlock()
		<-s.room
	}
}

// data writes a frame of n bytes of rest, whose first buffer is free for heads,
// and returns what is left of it, beginning with such a one.
func (c *conn) data(id uint32, rest net.Buffers, n, size int, first bool) net.Buffers {
	c.writing.Lock()
	defer c.writing.Unlock()
	h := c.head[:frameHead]
	h[0], h[1], h[2], h[3], h[4] = byte(n>>16), byte(n>>8), byte(n), 0, 0
	binary.BigEndian.PutUint32(h[5:], id)
	if first {
		h = c.head[:]
		h[frameHead] = 0
		binary.BigEndian.PutUint32(h[frameHead+1:], uint32(size)) //nolint:gosec // at most half a window
		n -= messageHead
	}
	rest[0] = h
	end := 1
	for ; n > 0 && n >= len(rest[end]); end++ {
		n -= len(rest[end])
	}
	if n == 0 {
		c.write(rest[:end])
		rest[end-1] = nil
		return rest[end-1:]
	}
	whole := rest[end]
	rest[end] = whole[:n]
	c.write(rest[:end+1])
	rest[end-1], rest[end] = nil, whole[n:]
	return rest[end-1:]
}

// take puts together messages from p, a part of k.
func (s *stream) take(p []byte, k *chunk) error {
	for len(p) > 0 {
		if s.have < messageHead {
			n := copy(s.prefix[s.have:], p)
			s.have += n
			p = p[n:]
			if s.have < messageHead {
				return nil
			}
			if s.prefix[0] != 0 {
				return status.Error(codes.Unimplemented, "nothing compressed is understood here")
			}
			size := binary.BigEndian.Uint32(s.prefix[1:])
			if uint64(size)+messageHead > uint64(s.c.conf.Window/2) { //nolint:gosec // a size
				return status.Errorf(codes.ResourceExhausted, "a message of %d bytes is too long", size)
			}
			s.need = int(size)
		}
		if n := min(s.need, len(p)); n > 0 {
			s.part = append(s.part, k.piece(p[:n]))
			s.need -= n
			p = p[n:]
		}
		if s.need == 0 {
			s.deliver(s.part)
			s.part, s.have = nil, 0
		}
	}
	return nil
}

// deliver puts a message where recv finds it.
func (s *stream) deliver(msg mem.BufferSlice) {
	s.mu.Lock()
	if s.over != nil {
		s.mu.Unlock()
		msg.Free()
		return
	}
	s.queue = append(s.queue, msg)
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
			if s.queue = s.queue[1:]; len(s.queue) == 0 {
				s.queue = nil
			}
			s.mu.Unlock()
			s.c.taken(s, messageHead+msg.Len())
			return msg, nil
		}
		err := s.over
		s.mu.Unlock()
		if err != nil {
			ring(s.more) // for who else asks
			return nil, err
		}
		<-s.more
	}
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
