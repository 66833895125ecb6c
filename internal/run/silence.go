package run

import (
	"net"
	"sync"
	"time"
)

// LimitSilence returns a listener for a server that the function HTTP cannot
// run, for example a server of another module. A read of an accepted connection
// fails if no data arrives within timeout. The timeout must be longer than the
// longest request. Otherwise the server may cancel a running request, because
// its client sends no data while it waits for the answer.
func LimitSilence(ln net.Listener, timeout time.Duration) net.Listener {
	return &silenceListener{ln, timeout}
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

// silenceConn is a connection that limits the time of each read to silenceConn.most. If the server
// sets an earlier deadline, the read ends at this deadline.
type silenceConn struct {
	net.Conn
	most time.Duration

	mu       sync.Mutex
	deadline time.Time // deadline that the server set; zero means none
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

// extend sets the deadline of the next reads. The caller must hold mu.
func (c *silenceConn) extend() error {
	end := time.Now().Add(c.most)
	if !c.deadline.IsZero() && c.deadline.Before(end) {
		end = c.deadline
	}
	return c.Conn.SetReadDeadline(end)
}
