package socket

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// Records makes the records of one write of creds' TLS cross the socket
// together. TLS by itself writes each alone, 16 KiB, and so costs a system call
// and a wake-up of the other end for each. The price is a copy, and memory for
// one write while it lasts. Nothing is held back when a write returns.
func Records(creds credentials.TransportCredentials) credentials.TransportCredentials {
	return records{creds}
}

type records struct {
	credentials.TransportCredentials
}

func (r records) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	below := &gathered{Conn: raw}
	conn, info, err := r.TransportCredentials.ClientHandshake(ctx, authority, below)
	if err != nil {
		return nil, nil, err
	}
	return &gathering{conn, below}, info, nil
}

func (r records) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	below := &gathered{Conn: raw}
	conn, info, err := r.TransportCredentials.ServerHandshake(below)
	if err != nil {
		return nil, nil, err
	}
	return &gathering{conn, below}, info, nil
}

func (r records) Clone() credentials.TransportCredentials {
	return records{r.TransportCredentials.Clone()}
}

// gathering is TLS, above a socket that gathers its records. One goroutine may
// write.
type gathering struct {
	net.Conn
	below *gathered
}

func (g *gathering) Write(p []byte) (int, error) {
	if len(p) <= oneRecord {
		return g.Conn.Write(p)
	}
	g.below.gather()
	n, err := g.Conn.Write(p)
	if e := g.below.release(); e != nil {
		return 0, e
	}
	return n, err
}

// Close does not wait for a write that stands still, as TLS does not.
func (g *gathering) Close() error {
	if !g.below.mu.TryLock() {
		return g.below.Close()
	}
	g.below.mu.Unlock()
	return g.Conn.Close()
}

const (
	// oneRecord is the most that TLS puts into a record.
	oneRecord = 16 << 10
	// gatherSize has room for 256 KiB in records.
	gatherSize = 16 * (oneRecord + 1<<10)
)

var gathers = sync.Pool{New: func() any {
	b := make([]byte, 0, gatherSize)
	return &b
}}

// gathered is the socket below TLS.
type gathered struct {
	net.Conn

	mu  sync.Mutex
	buf *[]byte // nil: what is written goes out at once
	err error   // of a write whose records TLS takes for written: the last of all
}

func (g *gathered) gather() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.buf = gathers.Get().(*[]byte)
}

// release writes what was gathered.
func (g *gathered) release() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.flush()
	*g.buf = (*g.buf)[:0]
	gathers.Put(g.buf)
	g.buf = nil
	return err
}

func (g *gathered) Write(p []byte) (int, error) {
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

func (g *gathered) flush() error {
	if g.err == nil && len(*g.buf) > 0 {
		_, g.err = g.Conn.Write(*g.buf)
		*g.buf = (*g.buf)[:0]
	}
	return g.err
}
