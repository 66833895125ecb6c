package h2

import (
	"errors"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// reader reads a connection into chunks. While it waits on a plain socket it
// holds none, and on TLS a small one.
type reader struct {
	conn  net.Conn
	pool  mem.BufferPool
	chunk *chunk // what was read last is in it
	size  int    // of the next chunk

	raw syscall.RawConn // nil: conn is no plain socket, such as TLS
	try func(fd uintptr) bool
	p   []byte
	err error
}

func newReader(conn net.Conn, pool mem.BufferPool) *reader {
	r := &reader{conn: conn, pool: pool, size: small}
	switch c := conn.(type) { // others may show the socket below what they do to its bytes
	case *net.TCPConn, *net.UnixConn:
		if raw, err := c.(syscall.Conn).SyscallConn(); err == nil {
			r.raw, r.try, r.size = raw, r.attempt, large
		}
	}
	return r
}

func (r *reader) close() {
	if r.chunk != nil {
		r.chunk.Put(nil)
		r.chunk = nil
	}
}

// room is where to read to.
func (r *reader) room() []byte {
	if r.chunk != nil {
		if p := r.chunk.room(); p != nil && len(*r.chunk.buf) == r.size {
			return p
		}
		r.close()
	}
	r.chunk = newChunk(r.pool, r.size)
	return r.chunk.room()
}

// read waits for bytes, which are good until the next read.
func (r *reader) read() ([]byte, error) {
	if r.raw == nil {
		p := r.room()
		n, err := r.conn.Read(p)
		r.chunk.end += n
		if r.size = large; n < small {
			r.size = small
		}
		return p[:n], err
	}
	r.p, r.err = nil, nil
	if err := r.raw.Read(r.try); err != nil {
		return nil, err // closed, or past its deadline
	}
	return r.p, r.err
}

// attempt reads without waiting; false asks to be called when there is more.
func (r *reader) attempt(fd uintptr) bool {
	p := r.room()
	for {
		n, err := syscall.Read(int(fd), p)
		switch {
		case n > 0:
			r.chunk.end += n
			r.p = p[:n]
			return true
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			r.close()
			return false
		case err == nil:
			err = io.EOF
		}
		r.err = err
		return true
	}
}
