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

// connections are the open connections of a server. Those that have not
// authenticated have a place in waiting; the one that has waited longest is at
// the front.
type connections struct {
	limits Limits

	mu            sync.Mutex
	open          map[net.Conn]*connection
	waiting       list.List // of *connection
	authenticated int
}

// connection is one that is open.
type connection struct {
	all     *connections
	conn    net.Conn
	phase   phase
	timer   *time.Timer   // closes conn; nil before StateNew
	waiting *list.Element // while anonymous
}

type phase int

const (
	starting phase = iota
	anonymous
	authenticated
	closing
)

type connectionKey struct{}

// Authenticated tells HTTP that the caller of the request with this context is
// known: its connection is no longer closed to make room for others. If too many
// connections have authenticated already, the call has no effect.
func Authenticated(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.authenticate()
	}
}

// context is http.Server.ConnContext. The server calls it before state.
func (a *connections) context(ctx context.Context, conn net.Conn) context.Context {
	c := &connection{all: a, conn: conn}
	a.mu.Lock()
	a.open[conn] = c
	a.mu.Unlock()
	return context.WithValue(ctx, connectionKey{}, c)
}

// state is http.Server.ConnState.
func (a *connections) state(conn net.Conn, state http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.open[conn]
	switch {
	case state == http.StateHijacked, state == http.StateClosed:
		c.enter(closing)
		delete(a.open, conn)
	case state == http.StateNew:
		if a.waiting.Len() >= a.limits.Anonymous {
			a.waiting.Front().Value.(*connection).close() //nolint:forcetypeassert // the list holds nothing else
		}
		c.enter(anonymous)
	case c.phase == anonymous:
		a.waiting.MoveToBack(c.waiting)
		c.timer.Reset(a.limits.AnonymousFor)
	}
}

// enter moves c to its next phase. Its caller holds mu.
func (c *connection) enter(next phase) {
	switch c.phase {
	case anonymous:
		c.timer.Stop()
		c.all.waiting.Remove(c.waiting)
	case authenticated:
		c.all.authenticated--
	}
	c.phase = next
	switch next {
	case anonymous:
		c.waiting = c.all.waiting.PushBack(c)
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

// close closes c at once. The server then reports StateClosed. It closes what is
// below TLS: the last record of TLS would wait for the client.
func (c *connection) close() {
	c.enter(closing)
	conn := c.conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close() // fails if the server closed it at the same time
}

func (c *connection) authenticate() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.phase == anonymous && c.all.authenticated < c.all.limits.Connections-c.all.limits.Anonymous {
		c.enter(authenticated)
	}
}
