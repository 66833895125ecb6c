// Package socket moves bytes between sockets and pooled buffers. On Unix
// systems, an idle TCP or Unix socket without TLS holds no buffer. The package
// does not interpret the bytes.
package socket

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc/mem"
)

const (
	// firstRead is the buffer size for short reads. It is also the largest buffer size for a TLS
	// connection, because one read of a TLS connection returns at most one record.
	firstRead = 16 << 10
	// smallRead is the maximum number of bytes in a small read. The Reader copies the bytes of a
	// small read into a new buffer of the exact size. Without this copy, a few bytes would occupy a
	// large buffer until the caller frees the bytes.
	smallRead = 1 << 10
	// datagram is the size of the buffer for a UDP datagram. No datagram is larger.
	datagram = 64 << 10
)

// Maximum sizes of one read. Each size is 32 bytes less than a multiple of the size of an HTTP/2
// frame. The header of a message uses these 32 bytes, so that a message fills whole frames.
const (
	Usual = 64<<10 - 32
	// Large is the maximum size of a read of data from clients. A read of data from a target has
	// the smaller maximum size Usual. The reason is a limit of konnectivity-client: its caller must
	// read each message within 10 seconds. Otherwise konnectivity-client closes the stream. Even a
	// slow caller can read Usual bytes in this time.
	Large = 256<<10 - 32
)

// Reader reads bytes from a socket. One call of Read returns the available
// bytes, up to the size of a buffer. Only one goroutine at a time may use a
// Reader.
type Reader struct {
	conn net.Conn
	most int
	raw  syscall.RawConn // nil if conn is not a plain socket (for example TLS), or if the system is not Unix
	try  func(fd uintptr) bool
	buf  *[]byte
	n    int
	err  error
	busy bool   // the last read was large, so more bytes are likely
	own  []byte // buffer for UDP
}

// NewReader returns a Reader for conn. One read returns at most maxSize bytes. The value of maxSize
// must be Usual or Large.
func NewReader(conn net.Conn, maxSize int) *Reader {
	r := &Reader{conn: conn, most: maxSize}
	switch c := conn.(type) {
	case *net.UDPConn:
		r.own = make([]byte, datagram)
	case syscall.Conn:
		if raw, err := c.SyscallConn(); err == nil && canAttempt {
			r.raw, r.try = raw, r.attempt
		}
	}
	return r
}

// Read waits for bytes and returns them. For UDP it returns one datagram. After the peer has
// ended its data, Read returns io.EOF.
func (r *Reader) Read() (mem.Buffer, error) {
	switch {
	case r.own != nil:
		return r.readDatagram()
	case r.raw == nil:
		return r.readThrough()
	}
	r.buf, r.n, r.err = nil, 0, nil
	if err := r.raw.Read(r.try); err != nil {
		return nil, err // conn is closed, or its deadline has passed
	}
	if r.err != nil {
		return nil, r.err
	}
	return take(r.buf, r.n), nil
}

// readThrough reads from a connection that needs a buffer before bytes arrive,
// such as a TLS connection. An idle connection holds this buffer, so the buffer
// is small. After a large read, more bytes are likely, so the next buffer is
// larger.
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
			continue // the error is about an earlier datagram
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

// Writer writes buffers to a socket. Only one goroutine at a time may use a
// Writer.
type Writer struct {
	conn   net.Conn
	packet bool
	vec    net.Buffers

	stallLimit time.Duration
	stalled    func() error
	armed      time.Time
}

// NewWriter returns a Writer for conn.
func NewWriter(conn net.Conn) *Writer {
	_, packet := conn.(*net.UDPConn)
	return &Writer{conn: conn, packet: packet}
}

// OnStall sets the function f for blocked writes. If the peer blocks a call of Write for about
// maxBlocked, Write calls f. If f returns an error, Write returns this error. Otherwise Write
// continues. After a call of OnStall, Write controls the write deadline of conn. So no other code
// may set this deadline.
func (w *Writer) OnStall(maxBlocked time.Duration, f func() error) {
	w.stallLimit, w.stalled = maxBlocked, f
}

// writeDatagram sends one datagram. If the target refused an earlier datagram, the system returns
// the error ECONNREFUSED once, and does not send the new datagram. In this case writeDatagram
// tries again to send the new datagram.
func (w *Writer) writeDatagram(raw []byte) error {
	_, err := w.conn.Write(raw)
	if errors.Is(err, syscall.ECONNREFUSED) {
		_, err = w.conn.Write(raw)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil // the target is still away, and UDP allows the loss
	}
	return err
}

// Write sends all of data and then frees data. It uses one system call if the
// socket can write several buffers at once. For UDP, data is one datagram.
func (w *Writer) Write(data mem.BufferSlice) error {
	defer data.Free()
	if w.packet {
		return w.writeDatagram(data.Materialize())
	}
	all := w.vec[:0]
	for _, b := range data {
		all = append(all, b.ReadOnlyData())
	}
	w.vec = all
	defer clear(w.vec) // keep no reference to freed buffers
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

// arm sets the write deadline of conn. For most writes, it keeps the previous
// deadline, because setting a deadline is expensive.
func (w *Writer) arm() error {
	if w.stalled == nil {
		return nil
	}
	now := time.Now()
	if now.Sub(w.armed) < w.stallLimit/2 {
		return nil
	}
	w.armed = now
	return w.conn.SetWriteDeadline(now.Add(w.stallLimit))
}

type closeWriter interface{ CloseWrite() error }

// CloseWrite tells the peer that no more data follow. If conn cannot close only one direction,
// CloseWrite does nothing.
func CloseWrite(conn net.Conn) error {
	if c, ok := conn.(closeWriter); ok {
		return c.CloseWrite()
	}
	return nil
}

// HungUp reports whether conn is closed, has failed, or has ended in both directions. It returns
// false if the peer has ended only its own direction. It does not read from conn.
func HungUp(conn net.Conn) bool {
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	hung := false
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { hung = hungUp(fd) })
	}
	return hung || err != nil
}

// Abort closes conn. For TCP without TLS, the peer gets a reset instead of a normal end.
func Abort(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // after an error, Close ends the connection normally
	}
	_ = conn.Close() // an error means that conn is closed already
}
