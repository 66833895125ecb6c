//go:build !portable

package dataplane

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// phase is the state of a connection:
//
//	phase       end of the phase                                next phase
//	dialing     a target has answered                           forwarding
//	            no target answers, or the listener closes       gone
//	forwarding  the client and the target have ended their
//	            halves, or one of the two sockets has failed    gone
//	            the idle timeout has passed                     gone
//	            the balancer cuts the connection                gone
type phase int

const (
	dialing phase = iota
	forwarding
	gone
)

// conn contains the connection of a client and the connection to the client's target. Each conn
// belongs to one epoll loop, and only the goroutine of this loop may use the conn. As an exception,
// the balancer also uses some fields of the embedded struct session. The balancer's mu protects
// these fields.
type conn struct {
	session
	loop        *loop
	from        netip.AddrPort
	front, back endpoint // the sockets to the client and to the target
	halves      [2]halfConn
	phase       phase
	tried       []*target     // targets that could not be reached
	until       time.Duration // deadline for the answer of the target
	active      time.Duration // time of the last activity
	early       int           // number of bytes that the client sent before the target answered
	queued      bool          // the connection is in loop.busy
}

// endpoint is one of the two sockets of a connection.
type endpoint struct {
	conn           *conn
	fd             int // -1: no socket
	id             uint64
	readable       bool // true until a read returns EAGAIN
	writable       bool // true until a write returns EAGAIN
	awaitsWritable bool // epoll reports when the socket is writable again
	final          bool // the peer has ended or failed, so the loop reads until the end
	failed         bool // the socket failed, so its peer needs no reset
}

// begin makes the conn of an accepted client, chooses a loop, and starts the conn on this loop.
func (a *acceptor) begin(fd int, from netip.AddrPort, first choice) {
	c := &conn{loop: a.loop.forwarder.leastLoaded(a.loop), from: from}
	c.session = session{b: a.b, l: a.socket.l, socket: a.socket, client: from.Addr(), choice: first, cut: c.cutSoon}
	c.front = endpoint{conn: c, fd: fd, writable: true}
	c.back = endpoint{conn: c, fd: -1}
	c.halves = [2]halfConn{in: {direction: in, src: &c.front, dst: &c.back}, out: {direction: out, src: &c.back, dst: &c.front}}
	c.b.waitGroup.Add(1)
	c.loop.open.Add(1)
	if c.loop == a.loop {
		c.start()
		return
	}
	c.loop.enqueue(c.start)
}

// start prepares the PROXY header, if the listener has a PROXY protocol. It then reads the bytes
// that the client has sent already, and begins to dial.
func (c *conn) start() {
	c.active = c.loop.now
	if v := c.l.proxyProtocol(); v != "" {
		at, _ := syscall.Getsockname(c.front.fd)
		c.halves[in].hold(proxyHeader(v, c.from, addrPortOf(at)))
	}
	n, err := unix.Read(c.front.fd, c.loop.buf)
	if err == nil && n > 0 {
		c.early = n
		c.halves[in].hold(c.loop.buf[:n])
	}
	c.front.readable = n == 0 || n == len(c.loop.buf) // if more bytes come, epoll reports an event
	if c.front.id, err = c.loop.watch(c.front.fd, reads, &c.front); err != nil {
		c.b.abandon(c.l, c.client, c.choice)
		c.resetUnserved()
		return
	}
	c.dial()
}

func (c *conn) dial() {
	for err := c.connect(); err != nil; err = c.connect() {
		if !c.tryAnotherTarget(err) {
			return
		}
	}
}

// connect opens a socket and starts a connection to the target. A target on this machine usually
// answers at once. So if c already has bytes for the target (a PROXY header or bytes of the
// client), connect checks once whether the target has answered. If the target has answered, connect
// handles the answer and does not wait for epoll.
func (c *conn) connect() error {
	at := addrPort(c.ip, c.port)
	fd, err := c.b.cfg.socketTo(c.client, at)
	if err != nil {
		return err
	}
	c.back = endpoint{conn: c, fd: fd}
	if len(c.halves[in].held) > 0 {
		// With TCP_QUICKACK off, the kernel sends the acknowledgement of the target's
		// answer together with the client's bytes. This saves a packet. See
		// TCP_QUICKACK in tcp(7).
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
	}
	if err := unix.Connect(fd, sockaddr(at)); err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		return err
	}
	c.until = c.loop.now + dialTimeout
	c.loop.scheduleCheck(c.until)
	var answer, events uint32 = 0, reads
	if len(c.halves[in].held) > 0 {
		answer = eventsNow(fd, unix.EPOLLOUT)
	}
	if answer == 0 {
		events |= unix.EPOLLOUT
		c.back.awaitsWritable = true
	}
	if c.back.id, err = c.loop.watch(fd, events, &c.back); err == nil && answer != 0 {
		c.handleDialResult(answer)
	}
	return err
}

// tryAnotherTarget closes the socket to the present target and chooses another target. If no other
// target is available, or after dialAttempts attempts, the method ends the connection and returns
// false. A failed dial does not change the target's health, because only probes change the health.
func (c *conn) tryAnotherTarget(err error) bool {
	c.back.close(c.loop, true)
	c.tried = append(c.tried, c.target)
	to, ok := c.b.retry(c.l, c.client, c.choice, c.tried, err)
	if !ok {
		c.b.endUnserved(c.l, c.client)
		c.resetUnserved()
		return false
	}
	c.choice = to
	return true
}

// handleDialResult starts forwarding if the target accepted the connection and the balancer still
// allows the session. Otherwise it dials another target. If tryAnotherTarget finds no other target,
// the connection ends.
func (c *conn) handleDialResult(events uint32) {
	var err error
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		err = failure(c.back.fd)
	}
	if err == nil && c.b.join(&c.session) {
		c.phase, c.tried = forwarding, nil
		c.back.writable = true
		c.active = c.loop.now
		c.target.bytes[in].Add(uint64(c.early)) //nolint:gosec // a length
		c.loop.scheduleCheck(c.deadline())
		c.moveBytes()
		return
	}
	if c.tryAnotherTarget(err) {
		c.dial()
	}
}

func (s *endpoint) handleEvents(events uint32) {
	const end = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	s.readable = s.readable || events&(unix.EPOLLIN|end) != 0
	s.writable = s.writable || events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0
	s.final = s.final || events&end != 0
	c := s.conn
	switch {
	case c.phase == forwarding:
		switch way := c.halfOf(s); {
		case events&unix.EPOLLERR == 0:
		case way.done:
			c.endSession(false) // the loop has read s to its end, so no further read would return the error
			return
		case s == &c.front && !way.empty():
			c.endSession(true) // bytes wait for the target, so the loop does not read the client's socket, and no read would return the error
			return
		}
		c.moveBytes()
	case c.phase == dialing && s == &c.back:
		c.handleDialResult(events)
	}
}

// halfOf returns the half of the connection that carries the bytes from s.
func (c *conn) halfOf(s *endpoint) *halfConn {
	if s == &c.front {
		return &c.halves[in]
	}
	return &c.halves[out]
}

// moveBytes moves the bytes that are ready, in both directions. It ends the session after the end
// of both directions, or after an error.
func (c *conn) moveBytes() {
	if c.phase != forwarding {
		return
	}
	more := false
	for _, d := range [...]direction{out, in} { // bytes to the client first, because the target may have sent bytes before it stopped reading
		w := &c.halves[d]
		unfinished, err := w.moveBytes(c.loop)
		if err != nil {
			// An error usually requires a reset. But if the half from dst to src is done, a reset
			// could discard bytes that the peer of src has not read yet. In this case, the loop
			// sends a reset only if src failed.
			c.endSession(w.src.failed || !c.halfOf(w.dst).done)
			return
		}
		more = more || unfinished
	}
	switch {
	case c.halves[in].done && c.halves[out].done:
		c.endSession(false)
	case more && !c.queued:
		c.queued = true
		c.loop.busy = append(c.loop.busy, c)
	}
}

// checkDeadline checks the deadline of a connection, and returns the time of the next check. If no
// check is necessary, it returns the constant never. After the deadline of a dial, the method dials
// another target. After the idle timeout, the method resets the connection, unless bytes wait for a
// slow reader. Only the client's endpoint makes these checks. For the target's endpoint, the method
// only returns the constant never.
func (s *endpoint) checkDeadline(now time.Duration) time.Duration {
	c := s.conn
	if s != &c.front {
		return never
	}
	if c.phase == dialing {
		if now < c.until {
			return c.until
		}
		if c.tryAnotherTarget(os.ErrDeadlineExceeded) {
			c.dial()
		}
		return never // a new dial has set its own deadline
	}
	if now < c.deadline() {
		return c.deadline()
	}
	if c.hasWaitingBytes() {
		c.active = now
		return c.deadline()
	}
	c.endSession(true)
	return never
}

// deadline returns the time on the loop's clock at which the idle timeout ends. If the listener has
// no idle timeout, the method returns the constant never.
func (c *conn) deadline() time.Duration {
	idle := time.Duration(c.l.idle.Load())
	if idle == 0 {
		return never
	}
	return c.active + idle
}

// hasWaitingBytes reports whether bytes wait for a slow reader. A connection with waiting bytes
// does not count as idle.
func (c *conn) hasWaitingBytes() bool {
	return !c.halves[in].empty() || !c.halves[out].empty() || hasUnsent(c.front.fd) || hasUnsent(c.back.fd)
}

// cutSoon tells the loop to reset the connection, and does not wait for the loop. If the connection
// has ended before the loop resets it, the loop does nothing. Any goroutine may call cutSoon.
func (c *conn) cutSoon() {
	c.loop.enqueue(func() {
		if c.phase == forwarding {
			c.endSession(true)
		}
	})
}

// endWaiting resets c if the client of c connected to socket s and the loop still waits for a
// target's answer.
func (c *conn) endWaiting(s *socket) {
	if c.phase == dialing && c.socket == s {
		c.b.abandon(c.l, c.client, c.choice)
		c.resetUnserved()
	}
}

// endSession ends a session. If reset is true, the next read of each peer returns an error
// instead of EOF.
func (c *conn) endSession(reset bool) {
	c.close(reset)
	c.b.removeSession(&c.session)
	c.b.waitGroup.Done()
}

// resetUnserved resets a connection that has no session.
func (c *conn) resetUnserved() {
	c.close(true)
	c.b.waitGroup.Done()
}

func (c *conn) close(reset bool) {
	c.phase = gone
	c.front.close(c.loop, reset)
	c.back.close(c.loop, reset)
	c.halves[in].release(c.loop)
	c.halves[out].release(c.loop)
	c.loop.open.Add(-1)
}

func (s *endpoint) close(l *loop, reset bool) {
	if s.fd < 0 {
		return
	}
	delete(l.watched, s.id)
	if reset && !s.failed {
		resetAndClose(s.fd)
	} else {
		_ = unix.Close(s.fd)
	}
	s.fd = -1
}
