package dataplane

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialTimeout  = 2 * time.Second
	dialAttempts = 3 // targets that a connection tries before it is given up
)

// conn is one client's connection and its other half, to a target.
type conn struct {
	client, target *net.TCPConn
	at             string // the listener's address
	to             *target
	port           int // of the target

	end   *time.Timer // cuts it at until; nil unless it drains. Behind the balancer's mu
	until time.Time

	activity atomic.Uint64 // grows with every byte and end, of both directions
}

// direction is a way through a conn.
type direction int

const (
	in  direction = iota // from client to target
	out                  // from target to client
)

func (d direction) String() string { return [...]string{"in", "out"}[d] }

// admit counts a connection in, or refuses one too many.
func (b *balancer) admit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open >= b.cfg.MaxConnections {
		return false
	}
	b.open++
	return true
}

func (b *balancer) discharge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
}

func (b *balancer) refuse(client *net.TCPConn, why refusal) {
	b.metrics.refused.WithLabelValues(string(b.id), string(why)).Inc()
	reset(client)
}

// serve carries one client from accept to close.
func (b *balancer) serve(ctx context.Context, l *listener, client *net.TCPConn) {
	c, why := b.connect(ctx, l, client)
	if c == nil {
		b.refuse(client, why)
		return
	}
	defer b.leave(c)
	c.forward(b.cfg.IdleTimeout)
}

// connect finds client a target that answers. A failed dial says nothing of
// the target's health, which is the probes' to say; the next one is tried.
func (b *balancer) connect(ctx context.Context, l *listener, client *net.TCPConn) (*conn, refusal) {
	dialer := net.Dialer{Timeout: dialTimeout}
	var tried []*target
	for len(tried) < dialAttempts {
		t, ip, port := b.pick(l, tried)
		if t == nil {
			break
		}
		tried = append(tried, t)
		other, err := dialer.DialContext(ctx, "tcp", hostPort(ip, port))
		if err != nil {
			if ctx.Err() == nil {
				t.stats.dialFailures.Inc()
			}
			b.giveUp(t)
			continue
		}
		c := &conn{client: client, target: other.(*net.TCPConn), at: hostPort(l.ip, l.port), to: t, port: port}
		if b.join(c) {
			return c, ""
		}
		reset(c.target) // it left while it was dialled
		b.giveUp(t)
	}
	if len(tried) == 0 {
		return nil, refusedNoTarget
	}
	return nil, refusedDial
}

func (b *balancer) giveUp(t *target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(t)
}

// join takes a connection up, unless the rules no longer allow it.
func (b *balancer) join(c *conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || b.fate(c) != keep {
		return false
	}
	b.conns[c] = struct{}{}
	c.to.stats.connections.Inc()
	c.to.stats.active.Inc()
	return true
}

// leave closes a connection and forgets it.
func (b *balancer) leave(c *conn) {
	_ = c.client.Close()
	_ = c.target.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	c.undrain()
	delete(b.conns, c)
	c.to.stats.active.Dec()
	b.release(c.to)
}

// fate is what becomes of a connection by the rules of now.
type fate int

const (
	keep  fate = iota
	drain      // it may finish, for a while
	cut        // the other end is no more
)

func (b *balancer) fate(c *conn) fate {
	l := b.listeners[c.at]
	switch {
	case !c.to.machine.keeps():
		return cut
	case c.to.stopProbe == nil: // not wanted, or not running
		return drain
	case l == nil, l.targetPort != c.port:
		return drain
	}
	return keep
}

// settleAll gives every connection its fate. O(connections).
func (b *balancer) settleAll() {
	for c := range b.conns {
		switch b.fate(c) {
		case keep:
			c.undrain()
		case drain:
			c.drain(b.cfg.DrainTimeout)
		case cut:
			c.cut()
		}
	}
}

// drain cuts the connection after d, unless undrain is called before. One that
// drains already keeps the earlier of its ends.
func (c *conn) drain(d time.Duration) {
	if d <= 0 {
		c.cut()
		return
	}
	until := time.Now().Add(d)
	if c.end != nil && until.After(c.until) {
		return
	}
	c.undrain()
	c.end, c.until = time.AfterFunc(d, c.cut), until
}

func (c *conn) undrain() {
	if c.end != nil {
		c.end.Stop()
		c.end = nil
	}
}

// cut resets both ends, which ends forward. It may be called at any time, and
// again.
func (c *conn) cut() {
	reset(c.client)
	reset(c.target)
}

// forward moves bytes both ways until both ends have ended, or one fails.
func (c *conn) forward(idle time.Duration) {
	var other sync.WaitGroup
	other.Go(func() { c.carry(in, c.target, c.client, idle) })
	c.carry(out, c.client, c.target, idle)
	other.Wait()
}

// carry moves bytes one way, and then the end: an end of src becomes an end of
// dst, and the other way goes on; anything else cuts both.
func (c *conn) carry(d direction, dst, src *net.TCPConn, idle time.Duration) {
	err := c.move(d, dst, src, idle)
	if err == nil {
		c.activity.Add(1)
		err = dst.CloseWrite()
	}
	if err != nil {
		c.cut()
	}
}

var errIdle = errors.New("idle for too long")

// looks is how often in a row nothing must have happened, each time for a part
// of the idle timeout, until a connection is idle. A process that was stopped
// for a long time has looked once.
const looks = 4

// move moves bytes from src to dst until src ends. On Linux it asks how many
// bytes wait and has the kernel splice just these: no pipe is held while there
// are none.
//
// With an idle timeout it looks up at every part of it, and only while it
// waits for src: a deadline on dst could lose the bytes that are in a pipe.
func (c *conn) move(d direction, dst, src *net.TCPConn, idle time.Duration) error {
	raw, err := src.SyscallConn()
	if err != nil {
		return err
	}
	next := func() error { return nil }
	if idle > 0 {
		next = func() error { return src.SetReadDeadline(time.Now().Add(idle / looks)) }
	}
	err = next()
	bytes, batch := c.to.stats.bytes[d], io.LimitedReader{R: src}
	var seen, nothing uint64
	for err == nil {
		batch.N, err = waiting(raw)
		if err == nil {
			var n int64
			n, err = dst.ReadFrom(&batch)
			bytes.Add(float64(n))
			c.activity.Add(uint64(n))
			if err == nil && batch.N > 0 {
				return nil // src ended
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = next()
			if now := c.activity.Load(); now != seen || unsent(c.client) || unsent(c.target) {
				seen, nothing = now, 0
			} else if nothing++; nothing == looks {
				err = errIdle
			}
		}
	}
	return err
}

// reset closes a connection so that its peer sees an error and not an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
