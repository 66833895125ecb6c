package run

import (
	"net"
	"sync"
	"time"
)

// LimitSilence is ln for a server of another module, to which HTTP cannot be
// applied: a connection fails to read when nothing has arrived on it for as long as
// most. It must be longer than the longest request takes to answer.
func LimitSilence(ln net.Listener, most time.Duration) net.Listener {
	return &silenceListener{ln, most}
}

type silenceListener struct {
	net.Listener
	most time.Duration
}

func (l *silenceListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &silenceConn{Conn: c, most: l.most}, nil
}

// silenceConn reads until the server's deadline or its own, whichever is first.
type silenceConn struct {
	net.Conn
	most time.Duration

	mu       sync.Mutex
	deadline time.Time // of the server; zero for none
}

func (c *silenceConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	err := c.extend()
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *silenceConn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

func (c *silenceConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.extend()
}

// extend sets the deadline of reads from now on. Its caller holds mu.
func (c *silenceConn) extend() error {
	end := time.Now().Add(c.most)
	if !c.deadline.IsZero() && c.deadline.Before(end) {
		end = c.deadline
	}
	return c.Conn.SetReadDeadline(end)
}
