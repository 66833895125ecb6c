package run

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// connectionTracker tracks the open connections of a server. The field unauthenticated lists the
// connections with the phase "anonymous". The list begins with the connection that has had no state
// change for the longest time.
type connectionTracker struct {
	limits Limits

	mu              sync.Mutex
	open            map[net.Conn]*connection
	unauthenticated list.List // the elements have the type *connection
	authenticated   int
}

type connection struct {
	all     *connectionTracker
	conn    net.Conn
	phase   phase
	timer   *time.Timer   // closes conn; nil before the server reports http.StateNew
	waiting *list.Element // position in the list while the phase is anonymous
}

type phase int

const (
	starting phase = iota
	anonymous
	authenticated
	closing
)

type connectionKey struct{}

// Authenticated marks the connection of a request as authenticated. The argument ctx is the context
// of the request. If too many clients connect, the server (see HTTP) closes only connections that
// are not authenticated. Authenticated does nothing in two cases:
//
//   - The server already has the maximum number of authenticated connections. This number is
//     Limits.Connections minus Limits.Anonymous.
//   - The function HTTP does not run the server.
func Authenticated(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.authenticate()
	}
}

// context implements http.Server.ConnContext. The server calls this method before
// connectionTracker.state.
func (a *connectionTracker) context(ctx context.Context, conn net.Conn) context.Context {
	c := &connection{all: a, conn: conn}
	a.mu.Lock()
	a.open[conn] = c
	a.mu.Unlock()
	return context.WithValue(ctx, connectionKey{}, c)
}

// state implements http.Server.ConnState.
func (a *connectionTracker) state(conn net.Conn, state http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.open[conn]
	switch {
	case state == http.StateHijacked, state == http.StateClosed:
		c.enter(closing)
		delete(a.open, conn)
	case state == http.StateNew:
		if a.unauthenticated.Len() >= a.limits.Anonymous {
			a.unauthenticated.Front().Value.(*connection).close() //nolint:forcetypeassert // the list contains only connections
		}
		c.enter(anonymous)
	case c.phase == anonymous:
		a.unauthenticated.MoveToBack(c.waiting)
		c.timer.Reset(a.limits.AnonymousFor)
	}
}

// enter moves c to newPhase. The caller must hold c.all.mu.
func (c *connection) enter(newPhase phase) {
	switch c.phase {
	case anonymous:
		c.timer.Stop()
		c.all.unauthenticated.Remove(c.waiting)
	case authenticated:
		c.all.authenticated--
	}
	c.phase = newPhase
	switch newPhase {
	case anonymous:
		c.waiting = c.all.unauthenticated.PushBack(c)
		c.timer = time.AfterFunc(c.all.limits.AnonymousFor, c.expire)
	case authenticated:
		c.all.authenticated++
	}
}

func (c *connection) expire() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.phase == anonymous {
		c.close()
	}
}

// close ends c at once. The server then reports StateClosed. If c uses TLS, the method closes only
// the TCP connection below TLS. A close of the TLS connection would first send an alert
// (close_notify) and could wait for the client. The caller must hold c.all.mu.
func (c *connection) close() {
	c.enter(closing)
	conn := c.conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close() // fails if the server closes the connection concurrently
}

func (c *connection) authenticate() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.phase == anonymous && c.all.authenticated < c.all.limits.Connections-c.all.limits.Anonymous {
		c.enter(authenticated)
	}
}
