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

// phase is where a connection is in its life:
//
//	phase       it ends when                               and then is
//	dialling    its target has answered                    forwarding
//	            no target does, or its listener goes       gone
//	forwarding  both sides have ended, one has failed,
//	            nobody speaks for too long, or it is cut   gone
type phase int

const (
	dialling phase = iota
	forwarding
	gone
)

// conn is one client's connection and its other half, to a target. It belongs
// to its loop, apart from what of its session is the balancer's.
type conn struct {
	session
	loop        *loop
	from        netip.AddrPort
	front, back side // the client's and the target's
	ways        [2]way
	phase       phase
	tried       []*target     // that could not be reached
	until       time.Duration // when the target must have answered
	active      time.Duration // when something last happened
	early       int           // bytes that the client said before
	queued      bool          // it is in the loop's busy
}

// side is one of a connection's two sockets.
type side struct {
	conn     *conn
	fd       int // -1 while there is none
	id       uint64
	readable bool // until a read has shown that there is nothing
	writable bool // likewise
	asks     bool // it is told when it is writable again
	final    bool // its peer has ended or failed: it must be read up to that
	failed   bool // its peer knows
}

// begin is the first step of a connection that a took, on the loop where it
// will stay.
func (a *acceptor) begin(fd int, from netip.AddrPort, first choice) {
	c := &conn{loop: a.home.forwarder.laziest(a.home), from: from}
	c.session = session{b: a.b, l: a.socket.l, socket: a.socket, client: from.Addr(), choice: first, cut: c.cutSoon}
	c.front = side{conn: c, fd: fd, writable: true}
	c.back = side{conn: c, fd: -1}
	c.ways = [2]way{in: {direction: in, src: &c.front, dst: &c.back}, out: {direction: out, src: &c.back, dst: &c.front}}
	c.b.work.Add(1)
	c.loop.open.Add(1)
	if c.loop == a.home {
		c.start()
		return
	}
	c.loop.do(c.start)
}

// start reads what the client said already, and dials.
func (c *conn) start() {
	c.active = c.loop.now
	if v := c.l.proxyProtocol(); v != "" {
		at, _ := syscall.Getsockname(c.front.fd)
		c.ways[in].hold(proxyHeader(v, c.from, addrPortOf(at)))
	}
	n, err := unix.Read(c.front.fd, c.loop.buf)
	if err == nil && n > 0 {
		c.early = n
		c.ways[in].hold(c.loop.buf[:n])
	}
	c.front.readable = n == 0 || n == len(c.loop.buf) // or else an event will tell
	if c.front.id, err = c.loop.watch(c.front.fd, reads, &c.front); err != nil {
		c.b.abandon(c.l, c.choice)
		c.vanish()
		return
	}
	c.dial()
}

// dial begins to connect to the target that was chosen, or to another when it
// fails at once.
func (c *conn) dial() {
	for err := c.connect(); err != nil; err = c.connect() {
		if !c.another(err) {
			return
		}
	}
}

// connect opens a socket and has the kernel begin. A target on this machine
// has answered by then; if there are bytes for it, it is not waited for.
func (c *conn) connect() error {
	at := addrPort(c.ip, c.port)
	fd, err := c.b.cfg.socketTo(c.client, at)
	if err != nil {
		return err
	}
	c.back = side{conn: c, fd: fd}
	if len(c.ways[in].held) > 0 {
		// The target's answer is acknowledged with the client's bytes: one
		// packet less. tcp(7), TCP_QUICKACK.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
	}
	if err := unix.Connect(fd, sockaddr(at)); err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		return err
	}
	c.until = c.loop.now + dialTimeout
	c.loop.due(c.until)
	var answer, events uint32 = 0, reads
	if len(c.ways[in].held) > 0 {
		answer = eventsNow(fd, unix.EPOLLOUT)
	}
	if answer == 0 {
		events |= unix.EPOLLOUT
		c.back.asks = true
	}
	if c.back.id, err = c.loop.watch(fd, events, &c.back); err == nil && answer != 0 {
		c.answered(answer)
	}
	return err
}

// another gives up the target that was dialled, and chooses another. A failed
// dial says nothing of the target's health, which is the probes' to say. If
// there is no other, the connection is gone.
func (c *conn) another(err error) bool {
	c.back.close(c.loop, true)
	c.tried = append(c.tried, c.target)
	to, ok := c.b.retry(c.l, c.client, c.choice, c.tried, err)
	if !ok {
		c.b.discharge(c.l)
		c.vanish()
		return false
	}
	c.choice = to
	return true
}

// answered takes the session up, if the target has answered and not refused.
func (c *conn) answered(events uint32) {
	var err error
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		err = failure(c.back.fd)
	}
	if err == nil && c.b.join(&c.session) {
		c.phase, c.tried = forwarding, nil
		c.back.writable = true
		c.active = c.loop.now
		c.target.bytes[in].Add(uint64(c.early)) //nolint:gosec // a length
		c.loop.due(c.deadline())
		c.run()
		return
	}
	if c.another(err) {
		c.dial()
	}
}

// ready takes in what happened to a side, and does what there is to do.
func (s *side) ready(events uint32) {
	const end = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	s.readable = s.readable || events&(unix.EPOLLIN|end) != 0
	s.writable = s.writable || events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0
	s.final = s.final || events&end != 0
	c := s.conn
	switch {
	case c.phase == forwarding:
		switch way := c.wayOf(s); {
		case events&unix.EPOLLERR == 0:
		case way.done:
			c.end(false) // nothing will be read of it that would tell
			return
		case s == &c.front && !way.empty():
			c.end(true) // nor of a client whose target takes no more
			return
		}
		c.run()
	case c.phase == dialling && s == &c.back:
		c.answered(events)
	}
}

// wayOf is the way that begins at s.
func (c *conn) wayOf(s *side) *way {
	if s == &c.front {
		return &c.ways[in]
	}
	return &c.ways[out]
}

// run moves what can be moved, both ways.
func (c *conn) run() {
	if c.phase != forwarding {
		return
	}
	more := false
	for _, d := range [...]direction{out, in} { // first what a target said before it took no more
		w := &c.ways[d]
		again, err := w.move(c.loop)
		if err != nil {
			// Who takes no more, and has said all that he had to, is no reason
			// to lose what the other has still to read of it.
			c.end(w.src.failed || !c.wayOf(w.dst).done)
			return
		}
		more = more || again
	}
	switch {
	case c.ways[in].done && c.ways[out].done:
		c.end(false)
	case more && !c.queued:
		c.queued = true
		c.loop.busy = append(c.loop.busy, c)
	}
}

// look ends what took too long. The client's side looks for both.
func (s *side) look(now time.Duration) time.Duration {
	c := s.conn
	if s != &c.front {
		return never
	}
	if c.phase == dialling {
		if now < c.until {
			return c.until
		}
		if c.another(os.ErrDeadlineExceeded) {
			c.dial()
		}
		return never // whoever dials again has said when that ends
	}
	if now < c.deadline() {
		return c.deadline()
	}
	if c.waits() {
		c.active = now
		return c.deadline()
	}
	c.end(true)
	return never
}

// deadline is when the connection was silent for too long.
func (c *conn) deadline() time.Duration {
	idle := time.Duration(c.l.idle.Load())
	if idle == 0 {
		return never
	}
	return c.active + idle
}

// waits reports whether bytes wait for a slow reader, which is not silence.
func (c *conn) waits() bool {
	return !c.ways[in].empty() || !c.ways[out].empty() || unsent(c.front.fd) || unsent(c.back.fd)
}

// cutSoon ends the connection at once; any goroutine may call it.
func (c *conn) cutSoon() {
	c.loop.do(func() {
		if c.phase == forwarding {
			c.end(true)
		}
	})
}

// forsake ends the connection if it waits for a target and s is its socket.
func (c *conn) forsake(s *socket) {
	if c.phase == dialling && c.socket == s {
		c.b.abandon(c.l, c.choice)
		c.vanish()
	}
}

// end ends a session: with a reset both peers see an error, and not an end.
func (c *conn) end(reset bool) {
	c.close(reset)
	c.b.leave(&c.session)
	c.b.work.Done()
}

// vanish ends what has no session any more.
func (c *conn) vanish() {
	c.close(true)
	c.b.work.Done()
}

func (c *conn) close(reset bool) {
	c.phase = gone
	c.front.close(c.loop, reset)
	c.back.close(c.loop, reset)
	c.ways[in].release(c.loop)
	c.ways[out].release(c.loop)
	c.loop.open.Add(-1)
}

func (s *side) close(l *loop, reset bool) {
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
