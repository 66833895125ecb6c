package dataplane

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pooledReader reads a socket into pooled buffers. It uses no buffer while it waits for bytes.
type pooledReader struct {
	raw syscall.RawConn
	try func(fd uintptr) bool // made once, because a closure escapes to the heap
	max int
	buf *[]byte
	n   int
	err error
}

// newPooledReader returns a pooledReader that reads at most max bytes at a time.
func newPooledReader(c syscall.Conn, max int) (*pooledReader, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &pooledReader{raw: raw, max: max}
	l.try = func(fd uintptr) bool {
		l.buf = buffers.Get().(*[]byte)
		for {
			if l.n, l.err = unix.Read(int(fd), (*l.buf)[:l.max]); l.err != unix.EINTR { //nolint:errorlint // an errno, never wrapped
				break
			}
		}
		if l.err == unix.EAGAIN { //nolint:errorlint // an errno, never wrapped
			l.release()
			return false
		}
		return true
	}
	return l, nil
}

// readOnce waits for bytes and reads once. The caller may use the bytes until it calls
// pooledReader.release. At the end of a stream, or for an empty datagram, the method returns no
// bytes.
func (l *pooledReader) readOnce() ([]byte, error) {
	if err := l.raw.Read(l.try); err != nil {
		return nil, err
	}
	if l.err != nil {
		return nil, os.NewSyscallError("read", l.err)
	}
	return (*l.buf)[:l.n], nil
}

func (l *pooledReader) release() {
	if l.buf != nil {
		buffers.Put(l.buf)
		l.buf = nil
	}
}
