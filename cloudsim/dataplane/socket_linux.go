package dataplane

import (
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lender reads a socket into lent buffers: while it waits it holds none.
type lender struct {
	raw syscall.RawConn
	try func(fd uintptr) bool // made once, because it escapes
	max int
	buf *[]byte
	n   int
	err error
}

// newLender reads at most max bytes at a time.
func newLender(c syscall.Conn, max int) (*lender, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &lender{raw: raw, max: max}
	l.try = func(fd uintptr) bool {
		l.buf = buffers.Get().(*[]byte)
		for {
			if l.n, l.err = unix.Read(int(fd), (*l.buf)[:l.max]); l.err != unix.EINTR { //nolint:errorlint // an errno, never wrapped
				break
			}
		}
		if l.err == unix.EAGAIN { //nolint:errorlint // likewise
			l.giveBack()
			return false
		}
		return true
	}
	return l, nil
}

// read waits and reads once. The bytes are the caller's until giveBack; there
// may be none: at a stream's end, or in an empty datagram.
func (l *lender) read() ([]byte, error) {
	if err := l.raw.Read(l.try); err != nil {
		return nil, err
	}
	if l.err != nil {
		return nil, os.NewSyscallError("read", l.err)
	}
	return (*l.buf)[:l.n], nil
}

func (l *lender) giveBack() {
	if l.buf != nil {
		buffers.Put(l.buf)
		l.buf = nil
	}
}

// mover moves bytes from src to dst: few by reading and writing, many by
// having the kernel splice just as many as wait. While it waits for src it
// holds neither a buffer nor a pipe.
type mover struct {
	dst, src *net.TCPConn
	few      *lender
	many     bool // as many came last time as a buffer holds
}

func newMover(dst, src *net.TCPConn) (*mover, error) {
	few, err := newLender(src, small)
	return &mover{dst: dst, src: src, few: few}, err
}

// some waits for bytes and moves them; io.EOF when src has ended.
func (m *mover) some() (int64, error) {
	if m.many {
		n, err := waiting(m.few.raw)
		if err != nil {
			return 0, err
		}
		if n >= small {
			batch := io.LimitedReader{R: m.src, N: n}
			return m.dst.ReadFrom(&batch)
		}
	}
	bytes, err := m.few.read()
	defer m.few.giveBack()
	if err != nil {
		return 0, err
	}
	if len(bytes) == 0 {
		return 0, io.EOF
	}
	m.many = len(bytes) == small
	n, err := m.dst.Write(bytes)
	return int64(n), err
}

// waiting blocks until a socket has something to read, and returns how many
// bytes that is; 1 for an end or an error, which the next read will tell.
func waiting(raw syscall.RawConn) (int64, error) {
	var n int
	err := raw.Read(func(fd uintptr) bool {
		if n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ); n > 0 {
			return true
		}
		ready, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if ready == 0 {
			return false
		}
		n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) // bytes may have come in between
		return true
	})
	return int64(max(n, 1)), err
}

// unsent reports whether bytes that were written to c still wait for its peer
// to take them.
func unsent(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return err == nil && n > 0
}
