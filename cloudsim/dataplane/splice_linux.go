//go:build !portable

package dataplane

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// reads is the set of epoll events for reading from an endpoint. The events are edge-triggered.
	reads = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET
	// quantum is the maximum number of times in a row that a halfConn moves bytes before other
	// connections get a turn.
	quantum = 4
)

// halfConn is one direction of a connection. While it waits for bytes, it uses neither a buffer nor
// a pipe.
type halfConn struct {
	direction
	src, dst *endpoint
	held     []byte // bytes in pooled that dst has not taken yet
	pooled   *[]byte
	pipe     *pipe // holds further bytes for dst; nil if there are none
	many     bool  // the last read filled a buffer, so splice is better than copy
	ended    bool  // src has ended
	done     bool  // the end was forwarded to dst
}

func (w *halfConn) empty() bool { return len(w.held) == 0 && w.pipe == nil }

// moveBytes moves bytes until no bytes of src are ready, dst takes no more bytes, or the quantum is
// used up. The result unfinished is true only if the quantum is used up. After the end of src, the
// method also closes the write side of dst. It returns the error if src or dst fails.
//
// For small amounts, the method copies the bytes, because a splice needs more system calls. For
// large amounts, it splices the bytes, because a splice needs fewer copies in memory.
func (w *halfConn) moveBytes(l *loop) (unfinished bool, err error) {
	for range quantum {
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
			err = w.copyOnce(l)
		}
		if err != nil {
			return false, err
		}
		w.src.conn.active = l.now
	}
	return true, nil
}

// copyOnce reads once and writes as many bytes as dst takes. It holds the remaining bytes until dst
// is writable again.
func (w *halfConn) copyOnce(l *loop) error {
	n, err := unix.Read(w.src.fd, l.buf)
	if n, err = w.countRead(n, err); n == 0 {
		return err
	}
	w.many = n == len(l.buf)
	if n < len(l.buf) && !w.src.final {
		w.src.readable = false // if more bytes come, epoll reports an event
	}
	sent, err := unix.Write(w.dst.fd, l.buf[:n])
	if sent, err = w.countWritten(l, sent, err); err == nil && sent < n {
		w.hold(l.buf[sent:n])
	}
	return err
}

// splice moves bytes from src to a pipe, up to the capacity of the pipe.
func (w *halfConn) splice(l *loop) error {
	p := l.pipes.lend()
	if p == nil {
		w.many = false
		return nil
	}
	moved, err := unix.Splice(w.src.fd, nil, p.in, nil, pipeSize, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	n, err := w.countRead(int(moved), err)
	if n == 0 {
		l.pipes.giveBack(p)
		return err
	}
	w.many = n >= small
	p.holds, w.pipe = n, p
	return nil
}

// countRead counts the bytes read from src. If src had no bytes to read,
// countRead detects whether src has ended.
func (w *halfConn) countRead(n int, err error) (int, error) {
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

// countWritten returns the number of bytes that dst has taken. If dst takes no more bytes for now,
// the method makes epoll report when dst is writable again. It returns an error if dst has failed.
func (w *halfConn) countWritten(l *loop, n int, err error) (int, error) {
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, syscall.EAGAIN):
		w.dst.writable = false
		return 0, w.dst.awaitWritable(l)
	case errors.Is(err, syscall.EINTR):
		return 0, nil
	}
	w.dst.failed = true
	return 0, err
}

// awaitWritable makes epoll report when s is writable. The loop calls it only after a write has
// returned EAGAIN, because most connections never need this event.
func (s *endpoint) awaitWritable(l *loop) error {
	if s.awaitsWritable {
		return nil
	}
	s.awaitsWritable = true
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, s.fd, newEpollEvent(s.id, reads|unix.EPOLLOUT))
}

// flush writes the bytes in the buffer and in the pipe to dst.
func (w *halfConn) flush(l *loop) error {
	for !w.empty() && w.dst.writable {
		var n int
		var err error
		if len(w.held) > 0 {
			n, err = unix.Write(w.dst.fd, w.held)
		} else {
			moved, failed := unix.Splice(w.pipe.out, nil, w.dst.fd, nil, w.pipe.holds, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
			n, err = int(moved), failed
		}
		if n, err = w.countWritten(l, n, err); err != nil {
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

// hold keeps bytes until dst takes them. The pooled buffer must have space for
// these bytes.
func (w *halfConn) hold(bytes []byte) {
	if w.pooled == nil {
		w.pooled = buffers.Get().(*[]byte)
		w.held = (*w.pooled)[:0]
	}
	w.held = append(w.held, bytes...)
}

// release gives the buffer and the pipe back to their pools. Bytes in the buffer and in the
// pipe are lost.
func (w *halfConn) release(l *loop) {
	if w.pooled != nil {
		buffers.Put(w.pooled)
		w.pooled, w.held = nil, nil
	}
	if w.pipe != nil {
		l.pipes.giveBack(w.pipe)
		w.pipe = nil
	}
}
