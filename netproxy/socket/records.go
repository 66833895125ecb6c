package socket

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// Records wraps TLS credentials so that a connection sends all TLS records of a large write
// together. Go's TLS connection writes each record of 16 KiB separately, so each record needs a
// system call and wakes the peer. With Records, the connection collects the records in a buffer and
// writes the buffer to the socket. No bytes remain in the buffer after the write.
func Records(creds credentials.TransportCredentials) credentials.TransportCredentials {
	return records{creds}
}

type records struct {
	credentials.TransportCredentials
}

func (r records) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	below := &gatheringSocket{Conn: raw}
	conn, info, err := r.TransportCredentials.ClientHandshake(ctx, authority, below)
	if err != nil {
		return nil, nil, err
	}
	return &gatheringConn{conn, below}, info, nil
}

func (r records) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	below := &gatheringSocket{Conn: raw}
	conn, info, err := r.TransportCredentials.ServerHandshake(below)
	if err != nil {
		return nil, nil, err
	}
	return &gatheringConn{conn, below}, info, nil
}

func (r records) Clone() credentials.TransportCredentials {
	return records{r.TransportCredentials.Clone()}
}

// gatheringConn is a TLS connection on a gatheringSocket. Only one goroutine at
// a time may write.
type gatheringConn struct {
	net.Conn
	below *gatheringSocket
}

func (g *gatheringConn) Write(p []byte) (int, error) {
	if len(p) <= oneRecord {
		return g.Conn.Write(p)
	}
	g.below.gather()
	n, err := g.Conn.Write(p)
	if e := g.below.writeGathered(); e != nil {
		return 0, e
	}
	return n, err
}

// Close closes the connection. If a write of TLS records is blocked, Close closes the socket at
// once and does not wait for the write. Go's TLS connection does the same for its own writes.
func (g *gatheringConn) Close() error {
	if !g.below.mu.TryLock() {
		return g.below.Close()
	}
	g.below.mu.Unlock()
	return g.Conn.Close()
}

const (
	// oneRecord is the maximum number of data bytes in a TLS record.
	oneRecord = 16 << 10
	// gatherSize is the maximum size of the TLS records for 256 KiB of data.
	gatherSize = 16 * (oneRecord + 1<<10)
)

var gathers = sync.Pool{New: func() any {
	b := make([]byte, 0, gatherSize)
	return &b
}}

// gatheringSocket is the socket to which TLS writes its records. Between the
// calls of gather and writeGathered, it collects TLS records in its buffer.
type gatheringSocket struct {
	net.Conn

	mu  sync.Mutex
	buf *[]byte // nil: writes go directly to the socket
	err error   // error of the first failed write; all later writes return this error, because TLS has counted the records as written
}

func (g *gatheringSocket) gather() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.buf = gathers.Get().(*[]byte)
}

// writeGathered writes the collected records, and stops collecting.
func (g *gatheringSocket) writeGathered() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.flush()
	*g.buf = (*g.buf)[:0]
	gathers.Put(g.buf)
	g.buf = nil
	return err
}

func (g *gatheringSocket) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return 0, g.err
	}
	if g.buf == nil {
		return g.Conn.Write(p)
	}
	if len(*g.buf)+len(p) > gatherSize {
		if err := g.flush(); err != nil {
			return 0, err
		}
	}
	*g.buf = append(*g.buf, p...)
	return len(p), nil
}

func (g *gatheringSocket) flush() error {
	if g.err == nil && len(*g.buf) > 0 {
		_, g.err = g.Conn.Write(*g.buf)
		*g.buf = (*g.buf)[:0]
	}
	return g.err
}
