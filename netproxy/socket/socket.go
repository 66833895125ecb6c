// Package socket moves bytes between sockets and pooled buffers. An idle
// connection holds no buffer. It knows nothing of what the bytes mean.
package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc/mem"
)

const (
	// firstRead is for what may be little, and for what TLS gives: one record.
	firstRead = 16 << 10
	// smallRead is copied out of its buffer, which would hold 60 times as
	// much memory while it waits to be sent.
	smallRead = 1 << 10
	// datagram is the largest that UDP can carry.
	datagram = 64 << 10
)

// What a Reader reads at most. Each leaves room for the head of a message, so
// that the message fills frames of HTTP/2 and needs none more for a few bytes.
const (
	Usual = 64<<10 - 32
	// Large is for where no reader behind it minds: konnectivity-client gives one
	// message 10 seconds to be read.
	Large = 256<<10 - 32
)

// Reader reads what a socket has, as much as fits into a buffer. One goroutine
// may use it.
type Reader struct {
	conn net.Conn
	most int
	raw  syscall.RawConn // nil: conn is no plain socket, such as TLS
	try  func(fd uintptr) bool
	buf  *[]byte
	n    int
	err  error
	busy bool   // the last read brought much: more is likely to be there
	own  []byte // UDP's
}

// NewReader reads from conn, at most Usual or Large at once.
func NewReader(conn net.Conn, most int) *Reader {
	r := &Reader{conn: conn, most: most}
	switch c := conn.(type) {
	case *net.UDPConn:
		r.own = make([]byte, datagram)
	case syscall.Conn:
		if raw, err := c.SyscallConn(); err == nil {
			r.raw, r.try = raw, r.attempt
		}
	}
	return r
}

// Read waits until the socket has something and returns it: for UDP, one
// datagram. At the end it returns io.EOF.
func (r *Reader) Read() (mem.Buffer, error) {
	switch {
	case r.own != nil:
		return r.readDatagram()
	case r.raw == nil:
		return r.readThrough()
	}
	r.buf, r.n, r.err = nil, 0, nil
	if err := r.raw.Read(r.try); err != nil {
		return nil, err // closed, or past its deadline
	}
	if r.err != nil {
		return nil, r.err
	}
	return take(r.buf, r.n), nil
}

// attempt reads without waiting; false asks to be called when there is more.
func (r *Reader) attempt(fd uintptr) bool {
	size := firstRead
	if r.busy {
		size = r.most
	}
	buf := Pool.Get(size)
	for {
		n, err := syscall.Read(int(fd), *buf)
		if n > 0 {
			r.buf, r.n, r.busy = buf, n, n >= firstRead
			return true
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		Pool.Put(buf)
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		if r.err = err; err == nil {
			r.err = io.EOF
		}
		return true
	}
}

// readThrough reads from what must be given its buffer before there is
// anything to read: a small one, unless more is likely to be there.
func (r *Reader) readThrough() (mem.Buffer, error) {
	size := smallRead
	if r.busy {
		size = firstRead
	}
	buf := Pool.Get(size)
	n, err := r.conn.Read(*buf)
	r.busy = n >= smallRead
	if n > 0 {
		return take(buf, n), nil
	}
	Pool.Put(buf)
	if err == nil {
		err = io.ErrNoProgress
	}
	return nil, err
}

func (r *Reader) readDatagram() (mem.Buffer, error) {
	for {
		n, err := r.conn.Read(r.own)
		if errors.Is(err, syscall.ECONNREFUSED) {
			continue // said of an earlier datagram; UDP goes on
		}
		if err != nil {
			return nil, err
		}
		return mem.SliceBuffer(append([]byte(nil), r.own[:n]...)), nil
	}
}

func take(buf *[]byte, n int) mem.Buffer {
	if n <= smallRead {
		small := append([]byte(nil), (*buf)[:n]...)
		Pool.Put(buf)
		return mem.SliceBuffer(small)
	}
	*buf = (*buf)[:n]
	return mem.NewBuffer(buf, Pool)
}

// Writer writes buffers to a socket. One goroutine may use it.
type Writer struct {
	conn   net.Conn
	packet bool
	vec    net.Buffers

	patience time.Duration
	stalled  func() error
	armed    time.Time
}

// NewWriter writes to conn.
func NewWriter(conn net.Conn) *Writer {
	_, packet := conn.(*net.UDPConn)
	return &Writer{conn: conn, packet: packet}
}

// OnStall makes a Write that cannot go on for about patience ask f whether it
// still should. An error of f ends it. It uses conn's write deadline.
func (w *Writer) OnStall(patience time.Duration, f func() error) {
	w.patience, w.stalled = patience, f
}

// Write writes all of data, with one system call where the socket can do that,
// and frees it. For UDP, data is one datagram.
func (w *Writer) Write(data mem.BufferSlice) error {
	defer data.Free()
	if w.packet {
		_, err := w.conn.Write(data.Materialize())
		return err
	}
	all := w.vec[:0]
	for _, b := range data {
		all = append(all, b.ReadOnlyData())
	}
	w.vec = all
	defer clear(w.vec) // hold no buffer that is given back
	for {
		if err := w.arm(); err != nil {
			return err
		}
		_, err := all.WriteTo(w.conn)
		if w.stalled == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := w.stalled(); err != nil {
			return err
		}
		w.armed = time.Time{}
	}
}

// arm sets the deadline, but not at every write: that has a price.
func (w *Writer) arm() error {
	if w.stalled == nil {
		return nil
	}
	now := time.Now()
	if now.Sub(w.armed) < w.patience/2 {
		return nil
	}
	w.armed = now
	return w.conn.SetWriteDeadline(now.Add(w.patience))
}

// closeWriter is a connection that can end one direction.
type closeWriter interface{ CloseWrite() error }

// CloseWrite says to the other end that there is no more, if the connection
// has a way to say so.
func CloseWrite(conn net.Conn) error {
	if c, ok := conn.(closeWriter); ok {
		return c.CloseWrite()
	}
	return nil
}

// Abort closes conn so that the other end sees an error, and not an end, where
// the connection can do that.
func Abort(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // then it ends politely: nothing better is to be had
	}
	_ = conn.Close() // closed before is as good
}
