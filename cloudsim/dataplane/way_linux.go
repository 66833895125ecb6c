//go:build !portable

package dataplane

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// reads are the events of a side that is read; each is told once.
	reads = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET
	// turn is how often a way moves bytes before others have theirs.
	turn = 4
)

// way is one direction of a connection. While it waits for bytes it holds
// neither a buffer nor a pipe.
type way struct {
	direction
	src, dst *side
	held     []byte // what dst did not take yet, in lent
	lent     *[]byte
	pipe     *pipe // with more of it; nil if there is none
	many     bool  // as many came last time as a buffer holds
	ended    bool  // src has
	done     bool  // and dst was told
}

func (w *way) empty() bool { return len(w.held) == 0 && w.pipe == nil }

// move moves bytes until src has none, dst takes none or a turn is over, of
// which it tells the last; and then src's end. An error is one of either side.
//
// Few bytes are read and written, many spliced: the one is fewer calls, the
// other fewer copies.
func (w *way) move(l *loop) (more bool, err error) {
	for range turn {
		if w.done {
			return false, nil
		}
		if err := w.flush(l); err != nil || !w.empty() {
			return false, err
		}
		if w.ended {
			w.done = true
			return false, unix.Shutdown(w.dst.fd, unix.SHUT_WR)
		}
		if !w.src.readable {
			return false, nil
		}
		if w.many {
			err = w.splice(l)
		} else {
			err = w.copy(l)
		}
		if err != nil {
			return false, err
		}
		w.src.conn.active = l.now
	}
	return true, nil
}

// copy reads once, and writes what it can.
func (w *way) copy(l *loop) error {
	n, err := unix.Read(w.src.fd, l.buf)
	if n, err = w.came(n, err); n == 0 {
		return err
	}
	w.many = n == len(l.buf)
	if n < len(l.buf) && !w.src.final {
		w.src.readable = false // an event tells what comes from now on
	}
	sent, err := unix.Write(w.dst.fd, l.buf[:n])
	if sent, err = w.went(l, sent, err); err == nil && sent < n {
		w.hold(l.buf[sent:n])
	}
	return err
}

// splice has the kernel move what is there, as far as a pipe holds it.
func (w *way) splice(l *loop) error {
	p := l.pipes.lend()
	if p == nil {
		w.many = false
		return nil
	}
	moved, err := unix.Splice(w.src.fd, nil, p.in, nil, pipeSize, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	n, err := w.came(int(moved), err)
	if n == 0 {
		l.pipes.giveBack(p)
		return err
	}
	w.many = n >= small
	p.holds, w.pipe = n, p
	return nil
}

// came counts what was read of src, and tells an end from there being nothing.
func (w *way) came(n int, err error) (int, error) {
	switch {
	case err == nil && n > 0:
		w.src.conn.target.bytes[w.direction].Add(uint64(n))
		return n, nil
	case err == nil:
		w.ended = true
	case errors.Is(err, syscall.EAGAIN):
		w.src.readable = false
	case errors.Is(err, syscall.EINTR):
	default:
		w.src.failed = true
		return 0, err
	}
	return 0, nil
}

// went tells a failure of dst from its taking no more for now.
func (w *way) went(l *loop, n int, err error) (int, error) {
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, syscall.EAGAIN):
		w.dst.writable = false
		return 0, w.dst.ask(l)
	case errors.Is(err, syscall.EINTR):
		return 0, nil
	}
	w.dst.failed = true
	return 0, err
}

// ask has the loop tell when s is writable. Most connections never need it.
func (s *side) ask(l *loop) error {
	if s.asks {
		return nil
	}
	s.asks = true
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, s.fd, event(s.id, reads|unix.EPOLLOUT))
}

// flush has dst take what is held.
func (w *way) flush(l *loop) error {
	for !w.empty() && w.dst.writable {
		var n int
		var err error
		if len(w.held) > 0 {
			n, err = unix.Write(w.dst.fd, w.held)
		} else {
			moved, failed := unix.Splice(w.pipe.out, nil, w.dst.fd, nil, w.pipe.holds, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
			n, err = int(moved), failed
		}
		if n, err = w.went(l, n, err); err != nil {
			return err
		}
		if len(w.held) > 0 {
			w.held = w.held[n:]
		} else {
			w.pipe.holds -= n
		}
		if len(w.held) == 0 && (w.pipe == nil || w.pipe.holds == 0) {
			w.release(l)
		}
	}
	return nil
}

// hold keeps bytes until dst takes them; there must be room.
func (w *way) hold(bytes []byte) {
	if w.lent == nil {
		w.lent = buffers.Get().(*[]byte)
		w.held = (*w.lent)[:0]
	}
	w.held = append(w.held, bytes...)
}

// release gives back what was lent, and what is in it is lost.
func (w *way) release(l *loop) {
	if w.lent != nil {
		buffers.Put(w.lent)
		w.lent, w.held = nil, nil
	}
	if w.pipe != nil {
		l.pipes.giveBack(w.pipe)
		w.pipe = nil
	}
}
