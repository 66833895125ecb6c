package h2

import (
	"encoding/binary"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/netproxy/socket"
)

// pendingOf is where the framer writes.
type pendingOf struct{ *conn }

func (p pendingOf) Write(b []byte) (int, error) {
	p.pending = append(p.pending, b...)
	return len(b), nil
}

// kick has what is pending written, by somebody else: the caller does not wait.
func (c *conn) kick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flushing || len(c.pending) == 0 {
		return
	}
	c.flushing = true
	go c.flush() // ends with its write, which ends with the connection
}

// flush writes what is pending.
func (c *conn) flush() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	c.flushing = false
	c.mu.Unlock()
	c.gather()
	c.write()
}

// gather begins a write with what is pending, and tells how large a frame may
// be. The caller holds c.writing, and adds to c.out what else there is.
func (c *conn) gather() (largest int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.pending
	c.pending, c.spare, c.answers = c.spare[:0], first, 0
	c.out = c.out[:0]
	if len(first) > 0 {
		c.out = append(c.out, first)
	}
	return c.largest
}

// write writes c.out, with one system call if the connection can do that.
func (c *conn) write() {
	if len(c.out) > 0 {
		if err := socket.WriteBuffers(c.net, c.out); err != nil {
			c.fail(err)
		}
	}
	c.out = socket.LetGo(c.out)
	if cap(c.spare) > keptBuffer {
		c.spare = nil
	}
}

// taken gives back what was taken of a stream's messages, when it is worth a
// frame.
func (c *conn) taken(s *stream, n int) {
	c.giveBack(s, n, n)
}

// giveBack gives back n bytes of a stream's window, of which up to lent may have
// been let in beside it.
func (c *conn) giveBack(s *stream, n, lent int) {
	c.mu.Lock()
	lent = min(lent, s.lent)
	s.lent -= lent
	if s.taken += n - lent; s.remote || s.gone != nil || s.taken < c.conf.Window/2 {
		c.mu.Unlock()
		return
	}
	_ = c.framer.WriteWindowUpdate(s.id, uint32(s.taken)) //nolint:gosec // at most a window
	s.left += s.taken
	s.taken = 0
	c.mu.Unlock()
	c.kick()
}

// lend lets n bytes more of a stream in than its window, until they are taken.
func (c *conn) lend(s *stream, n int) {
	c.mu.Lock()
	if s.remote || s.gone != nil {
		c.mu.Unlock()
		return
	}
	_ = c.framer.WriteWindowUpdate(s.id, uint32(n)) //nolint:gosec // at most MaxMessage
	s.left += n
	s.lent += n
	c.mu.Unlock()
	c.kick()
}

// outgoing is a message that is being sent.
type outgoing struct {
	size int // of the message
	left int // bytes to send, the message's head among them
	rest mem.BufferSlice
	at   int // bytes of the first of rest that were sent
}

// reserve waits until at least least bytes may be sent, and takes at most most.
func (s *stream) reserve(least, most int) (int, error) {
	c := s.c
	for {
		c.mu.Lock()
		if err := s.mute(); err != nil {
			c.mu.Unlock()
			return 0, err
		}
		if n := min(int(min(s.window, c.window)), most); n >= least {
			s.window -= int64(n)
			c.window -= int64(n)
			c.mu.Unlock()
			return n, nil
		}
		c.mu.Unlock()
		<-s.room
	}
}

// mute is why nothing may be sent. The caller holds c.mu.
func (s *stream) mute() error {
	if s.gone == nil && s.local {
		return status.Error(codes.Internal, "a message after the last")
	}
	return s.gone
}

// data writes n bytes of a message, in as many frames as that takes.
func (c *conn) data(id uint32, m *outgoing, n int) {
	c.writing.Lock()
	defer c.writing.Unlock()
	largest := c.gather()
	// c.out keeps parts of it, so it may not move.
	c.heads = slices.Grow(c.heads[:0], messageHead+frameHead*(n/largest+1))
	for n > 0 {
		part := min(n, largest)
		n -= part
		at := len(c.heads)
		c.heads = append(c.heads, byte(part>>16), byte(part>>8), byte(part), 0, 0)
		c.heads = binary.BigEndian.AppendUint32(c.heads, id)
		if m.left == messageHead+m.size {
			c.heads = append(c.heads, 0)
			c.heads = binary.BigEndian.AppendUint32(c.heads, uint32(m.size)) //nolint:gosec // bounded by memory
			m.left -= messageHead
			part -= messageHead
		}
		c.out = append(c.out, c.heads[at:])
		m.left -= part
		for part > 0 {
			b := m.rest[0].ReadOnlyData()[m.at:]
			if len(b) > part {
				c.out = append(c.out, b[:part])
				m.at += part
				break
			}
			c.out = append(c.out, b)
			part -= len(b)
			m.rest, m.at = m.rest[1:], 0
		}
	}
	c.write()
}
