//go:build !linux || portable

package dataplane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudsim-dev/allinone/internal/pause"
)

// forwarder carries connections, each by two goroutines of its own.
type forwarder struct{}

func newForwarder() (*forwarder, error) { return &forwarder{}, nil }

func (*forwarder) close() {}

// look is not needed: goroutines look up often enough.
func (*forwarder) look() {}

// accept serves a socket's connections until ctx ends. It outlives a machine
// that is short of file descriptors.
func (*forwarder) accept(ctx context.Context, b *balancer, s *socket, ln net.Listener) {
	again := pause.Backoff{First: 5 * time.Millisecond, Most: time.Second}
	for {
		nc, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				reset(nc.(*net.TCPConn))
			}
			return
		case err != nil:
			b.rest(ctx, &again, "accept connections", ln.Addr(), err)
			continue
		}
		again.Reset()
		client := nc.(*net.TCPConn)
		from := client.RemoteAddr().(*net.TCPAddr).AddrPort()
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		first, why := b.begin(s.l, from.Addr(), nil)
		if why != "" {
			reset(client)
			continue
		}
		b.work.Go(func() { b.serve(ctx, s, client, from, first) })
	}
}

// dialer opens connections to targets. They have no keep-alive of their own:
// the idle timeout ends what is dead.
var dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: -1}

// conn is one client's connection and its other half, to a target.
type conn struct {
	session
	client, server *net.TCPConn

	activity atomic.Uint64 // grows with every byte and end, of both directions
}

// serve carries one client, who was taken in, from accept to close.
func (b *balancer) serve(ctx context.Context, s *socket, client *net.TCPConn, from netip.AddrPort, first choice) {
	c := b.connect(ctx, s, client, from, first)
	if c == nil {
		b.discharge(s.l)
		reset(client)
		return
	}
	c.forward(s.l)
	_ = c.client.Close()
	_ = c.server.Close()
	b.leave(&c.session)
}

// connect finds client a target that answers, or returns nil. A failed dial
// says nothing of the target's health, which is the probes' to say; another is
// tried.
func (b *balancer) connect(ctx context.Context, s *socket, client *net.TCPConn, from netip.AddrPort, to choice) *conn {
	var tried []*target
	for ok := true; ok; {
		server, err := b.cfg.dialTCP(ctx, from.Addr(), to)
		if err == nil {
			c := &conn{client: client, server: server}
			c.session = session{b: b, l: s.l, socket: s, client: from.Addr(), choice: to, cut: c.reset}
			if b.join(&c.session) {
				if err = c.introduce(from); err == nil {
					return c
				}
				b.drop(&c.session)
			}
			reset(server)
		}
		tried = append(tried, to.target)
		if ctx.Err() != nil {
			err = nil // it is our end, and not the target's
		}
		to, ok = b.retry(s.l, from.Addr(), to, tried, err)
	}
	return nil
}

// introduce tells the target who the client is, if it is to know.
func (c *conn) introduce(from netip.AddrPort) error {
	v := c.l.proxyProtocol()
	if v == "" {
		return nil
	}
	at := c.client.LocalAddr().(*net.TCPAddr).AddrPort()
	_, err := c.server.Write(proxyHeader(v, from, at))
	return err
}

// dialTCP opens a connection to a target. A source is bound only where it
// matters: a port that is chosen before the target is known is taken from the
// connections to all targets.
func (c Config) dialTCP(ctx context.Context, client netip.Addr, to choice) (*net.TCPConn, error) {
	at, d := addrPort(to.ip, to.port), dialer
	if err := c.dials.check(at.Addr()); err != nil {
		return nil, err
	}
	if from := c.source(client); from.IsValid() {
		d.Control = foreign
		return d.DialTCP(ctx, "tcp", from, at)
	}
	conn, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// drop forgets a session whose client tries another target.
func (b *balancer) drop(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.undrain()
	delete(b.sessions, s)
}

// reset ends both halves so that both peers see an error.
func (c *conn) reset() {
	reset(c.client)
	reset(c.server)
}

// forward moves bytes both ways until both ends have ended, or one fails.
func (c *conn) forward(l *listener) {
	var other sync.WaitGroup
	other.Go(func() { c.carry(in, c.server, c.client, l) })
	c.carry(out, c.client, c.server, l)
	other.Wait()
}

// carry moves bytes one way, and then the end: an end of src becomes an end of
// dst, and the other way goes on; anything else cuts both.
func (c *conn) carry(d direction, dst, src *net.TCPConn, l *listener) {
	err := c.move(d, dst, src, l)
	if err == nil {
		c.activity.Add(1)
		err = dst.CloseWrite()
	}
	if err != nil {
		c.reset()
	}
}

var errIdle = errors.New("idle for too long")

// looks is how often in a row nothing must have happened, each time for a part
// of the idle timeout, until a connection is idle. A process that was stopped
// for a long time has looked once.
const looks = 4

// move moves bytes from src to dst until src ends.
//
// With an idle timeout it looks up at every part of it, and only while it
// waits for src. What waits for a slow reader cannot be asked here: that has
// the idle timeout to take it.
func (c *conn) move(d direction, dst, src *net.TCPConn, l *listener) error {
	reads, err := newLender(src, small)
	if err != nil {
		return err
	}
	next := func() error {
		idle := time.Duration(l.idle.Load())
		if idle <= 0 {
			return nil
		}
		return src.SetReadDeadline(time.Now().Add(idle / looks))
	}
	err = next()
	var seen, nothing uint64
	for err == nil {
		var n int64
		n, err = some(dst, reads)
		c.target.bytes[d].Add(uint64(n))
		c.activity.Add(uint64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = next()
			if now := c.activity.Load(); now != seen {
				seen, nothing = now, 0
			} else if nothing++; nothing == looks {
				err = errIdle
			}
		}
	}
	return err
}

// some waits for bytes and moves them; io.EOF when there will be no more.
func some(dst io.Writer, reads *lender) (int64, error) {
	bytes, err := reads.read()
	defer reads.giveBack()
	if len(bytes) == 0 {
		if err == nil {
			err = io.EOF
		}
		return 0, err
	}
	n, err := dst.Write(bytes) // an error of the read comes again with the next one
	return int64(n), err
}

// reset closes a connection so that its peer sees an error and not an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
