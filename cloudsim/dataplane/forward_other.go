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

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// forwarder uses two goroutines to forward each connection.
type forwarder struct{}

func newForwarder() (*forwarder, error) { return &forwarder{}, nil }

func (*forwarder) close() {}

// checkDeadlines does nothing, because each goroutine reads the idle timeout of the listener at
// each of its checks (see idleChecks).
func (*forwarder) checkDeadlines() {}

// accept serves the connections of a socket until ctx ends. After an error, for example if the
// process has no free file descriptors, the method waits and tries again.
func (*forwarder) accept(ctx context.Context, b *balancer, s *socket, ln net.Listener) {
	retry := backoff.Backoff{First: 5 * time.Millisecond, Most: time.Second}
	for {
		nc, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				resetConn(nc.(*net.TCPConn))
			}
			return
		case err != nil:
			b.waitRetry(ctx, &retry, "accept connections", ln.Addr(), err)
			continue
		}
		retry.Reset()
		client := nc.(*net.TCPConn)
		from := client.RemoteAddr().(*net.TCPAddr).AddrPort()
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		first, why := b.begin(s.l, from.Addr(), nil)
		if why != "" {
			resetConn(client)
			continue
		}
		b.waitGroup.Go(func() { b.serve(ctx, s, client, from, first) })
	}
}

// dialer opens connections to targets. Keep-alive is off, because the idle timeout ends dead
// connections.
var dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: -1}

// conn contains the connection of a client and the connection to the client's target.
type conn struct {
	session
	client, server *net.TCPConn

	activity atomic.Uint64 // grows with every byte and with the end of each direction
}

// serve forwards the connection of one accepted client until the connection is
// closed.
func (b *balancer) serve(ctx context.Context, s *socket, client *net.TCPConn, from netip.AddrPort, first choice) {
	c := b.connectTarget(ctx, s, client, from, first)
	if c == nil {
		b.endUnserved(s.l, from.Addr())
		resetConn(client)
		return
	}
	c.forward(s.l)
	_ = c.client.Close()
	_ = c.server.Close()
	b.removeSession(&c.session)
}

// connectTarget connects to a target, and returns nil if no target answers. If a dial fails, the
// method tries another target, up to dialAttempts targets. A failed dial does not change the
// target's health, because only probes change the health.
func (b *balancer) connectTarget(ctx context.Context, s *socket, client *net.TCPConn, from netip.AddrPort, chosen choice) *conn {
	var tried []*target
	for ok := true; ok; {
		server, err := b.cfg.dialTCP(ctx, from.Addr(), chosen)
		if err == nil {
			c := &conn{client: client, server: server}
			c.session = session{b: b, l: s.l, socket: s, client: from.Addr(), choice: chosen, cut: c.resetBoth}
			if b.join(&c.session) {
				if err = c.introduce(from); err == nil {
					return c
				}
				b.drop(&c.session)
			}
			resetConn(server)
		}
		tried = append(tried, chosen.target)
		if ctx.Err() != nil {
			err = nil // the data plane ended the dial, so the target did not cause the error
		}
		chosen, ok = b.retry(s.l, from.Addr(), chosen, tried, err)
	}
	return nil
}

// introduce sends the PROXY header to the target, if the listener has a PROXY protocol.
func (c *conn) introduce(from netip.AddrPort) error {
	v := c.l.proxyProtocol()
	if v == "" {
		return nil
	}
	at := c.client.LocalAddr().(*net.TCPAddr).AddrPort()
	_, err := c.server.Write(proxyHeader(v, from, at))
	return err
}

// dialTCP opens a connection to a target. It binds a source address only if the target should see
// the client's address. Otherwise the system chooses the source address and the source port when it
// connects. The system then knows the target, so connections to different targets can have the same
// source port.
func (c Config) dialTCP(ctx context.Context, client netip.Addr, chosen choice) (*net.TCPConn, error) {
	address, d := addrPort(chosen.ip, chosen.port), dialer
	if err := c.dials.check(address.Addr()); err != nil {
		return nil, err
	}
	if from := c.source(client, address.Addr()); from.IsValid() {
		d.Control = allowForeign
		return d.DialTCP(ctx, "tcp", from, address)
	}
	conn, err := d.DialContext(ctx, "tcp", address.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// drop removes the session of a failed attempt from b, so that the data plane can try another
// target.
func (b *balancer) drop(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.undrain()
	delete(b.sessions, s)
}

// resetBoth closes both sockets with a TCP reset, so that the next read of each peer returns
// an error.
func (c *conn) resetBoth() {
	resetConn(c.client)
	resetConn(c.server)
}

// forward moves bytes in both directions, until both directions have ended or one direction has
// failed.
func (c *conn) forward(l *listener) {
	var other sync.WaitGroup
	other.Go(func() { c.carry(in, c.server, c.client, l) })
	c.carry(out, c.client, c.server, l)
	other.Wait()
}

// carry moves the bytes of one direction. If src ends, the method closes the write side of dst, and
// the opposite direction continues. After an error, the method resets both connections.
func (c *conn) carry(d direction, dst, src *net.TCPConn, l *listener) {
	err := c.moveBytes(d, dst, src, l)
	if err == nil {
		c.activity.Add(1)
		err = dst.CloseWrite()
	}
	if err != nil {
		c.resetBoth()
	}
}

var errIdle = errors.New("idle for too long")

// idleChecks is the number of checks during an idle timeout of at most 40 s. If the timeout is
// longer, the time between two checks is 10 s. A connection is idle if the checks find no activity
// for the whole timeout. Each check adds the planned interval to the idle time, even if the real
// interval was longer. So the idle time does not grow while the process is stopped.
const idleChecks = 4

// moveBytes moves bytes from src to dst until src ends.
//
// While moveBytes waits for src, it checks the idle timeout. If no bytes have moved in both
// directions for the idle timeout, it returns errIdle, and the data plane resets the connection.
// This happens even if bytes of the opposite direction wait for a slow reader. Only the version
// with epoll detects these bytes and keeps the connection open.
func (c *conn) moveBytes(d direction, dst, src *net.TCPConn, l *listener) error {
	reads, err := newPooledReader(src, small)
	if err != nil {
		return err
	}
	var idle, wait, silent time.Duration
	next := func() error {
		idle, wait = time.Duration(l.idle.Load()), maxIdleCheck
		if idle > 0 {
			wait = min(wait, idle/idleChecks)
		}
		return src.SetReadDeadline(time.Now().Add(wait))
	}
	err = next()
	var seen uint64
	for err == nil {
		var n int64
		n, err = copySome(dst, reads)
		c.target.bytes[d].Add(uint64(n))
		c.activity.Add(uint64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			silent += wait
			if now := c.activity.Load(); now != seen {
				seen, silent = now, 0
			}
			if err = next(); idle > 0 && silent >= idle {
				err = errIdle
			}
		}
	}
	return err
}

// copySome waits for bytes and writes them to dst. It returns io.EOF after the last
// byte.
func copySome(dst io.Writer, reads *pooledReader) (int64, error) {
	bytes, err := reads.readOnce()
	defer reads.release()
	if len(bytes) == 0 {
		if err == nil {
			err = io.EOF
		}
		return 0, err
	}
	n, err := dst.Write(bytes) // if the read failed, the next read returns its error again
	return int64(n), err
}

// resetConn closes a connection with a TCP reset, so that the next read of the peer
// returns an error instead of EOF.
func resetConn(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
