package server

import (
	"sync"
	"sync/atomic"
	"time"
)

// conn describes an open connection of a client. The server's metrics and its method Status use
// this description.
type conn struct {
	id      int64
	mode    Mode
	target  target
	session *session
	since   time.Time
	toward  atomic.Int64 // bytes to the target
	back    atomic.Int64 // bytes from the target
	place   *destination
}

// destination contains the counters of one target host.
type destination struct {
	host   string
	open   atomic.Int64
	opened atomic.Int64
	toward atomic.Int64
	back   atomic.Int64
}

const (
	// maxDestinations is the maximum number of hosts with separate counters. All
	// further hosts share one set of counters, under the host name otherHosts.
	maxDestinations = 500
	otherHosts      = "other"
)

type connSet struct {
	mu     sync.Mutex
	last   int64
	open   map[int64]*conn
	places map[string]*destination
}

func (c *connSet) add(mode Mode, t target, ses *session) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	n := &conn{id: c.last, mode: mode, target: t, session: ses, since: time.Now(), place: c.destination(t.host)}
	n.place.open.Add(1)
	n.place.opened.Add(1)
	c.open[n.id] = n
	return n
}

// destination returns the counters of host. Hosts beyond maxDestinations share one destination.
func (c *connSet) destination(host string) *destination {
	if c.places[host] == nil && len(c.places) >= maxDestinations {
		host = otherHosts
	}
	if c.places[host] == nil {
		c.places[host] = &destination{host: host}
	}
	return c.places[host]
}

func (c *connSet) remove(n *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, n.id)
	n.place.open.Add(-1)
}

func (c *connSet) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

func (c *connSet) list() (open []*conn, places []*destination) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.open {
		open = append(open, n)
	}
	for _, p := range c.places {
		places = append(places, p)
	}
	return open, places
}

// addConn counts a new connection. The caller must call addConn before it answers
// the client, so that Status contains the connection when the client gets the
// answer.
func (s *Server) addConn(mode Mode, t target, ses *session) *conn {
	return s.conns.add(mode, t, ses)
}

func (s *Server) removeConn(c *conn) {
	c.session.load.Add(-1)
	s.conns.remove(c)
	s.metrics.lifetime.Observe(time.Since(c.since).Seconds())
}

func (s *Server) countToward(c *conn, n int) {
	c.toward.Add(int64(n))
	c.place.toward.Add(int64(n))
	c.session.toward.Add(int64(n))
	s.metrics.toTarget.Add(float64(n))
}

func (s *Server) countBack(c *conn, n int) {
	c.back.Add(int64(n))
	c.place.back.Add(int64(n))
	c.session.back.Add(int64(n))
	s.metrics.fromTarget.Add(float64(n))
}
