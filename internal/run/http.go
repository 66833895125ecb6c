package run

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Limits holds the limits for the connections of a server, especially for
// clients that have not authenticated. If a field is zero, the server uses the
// default of the field.
type Limits struct {
	// Connections is the maximum number of open connections. The default is an
	// eighth of the process's limit of file descriptors, but at least 64.
	Connections int
	// Anonymous is the maximum number of connections without an authenticated request. If a new
	// connection exceeds this limit, the server closes the unauthenticated connection that has
	// been idle longest. The default is 512, but at most half of Connections.
	Anonymous int
	// AnonymousFor is the maximum idle time of a connection without an authenticated request. It is
	// also the maximum duration of each request on this connection. The default is 25 s.
	AnonymousFor time.Duration
	// Body limits the time for the arrival of a request's body. A handler can set
	// another read deadline. The default is 10 s.
	Body time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.Connections == 0 {
		l.Connections = max(64, Descriptors()/8)
	}
	if l.Anonymous == 0 {
		l.Anonymous = min(512, l.Connections/2)
	}
	if l.AnonymousFor == 0 {
		l.AnonymousFor = 25 * time.Second
	}
	if l.Body == 0 {
		l.Body = 10 * time.Second
	}
	return l
}

// HTTP runs srv on ln until ctx ends, and applies limits. After the end of ctx, HTTP accepts no new
// requests and waits for running requests, but not longer than the duration grace. Finally it
// closes the remaining connections. HTTP always closes ln. If srv has no timeouts or no maximum
// size of headers, HTTP sets default values. HTTP replaces srv.ConnContext and srv.ConnState.
//
// A new connection has the time limit limits.AnonymousFor. When a handler has authenticated the
// client, the handler calls Authenticated. From then on, this limit no longer applies to the
// connection.
func HTTP(ctx context.Context, srv *http.Server, ln net.Listener, grace time.Duration, limits Limits) error {
	limits = limits.withDefaults()
	setLimits(srv, limits)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := srv.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// setLimits sets the timeouts of srv and tracks its connections.
func setLimits(srv *http.Server, limits Limits) {
	if srv.ReadHeaderTimeout == 0 {
		srv.ReadHeaderTimeout = 5 * time.Second
	}
	if srv.IdleTimeout == 0 {
		srv.IdleTimeout = 2 * time.Minute
	}
	if srv.MaxHeaderBytes == 0 {
		srv.MaxHeaderBytes = 16 << 10
	}
	if srv.HTTP2 == nil {
		srv.HTTP2 = &http.HTTP2Config{}
	}
	// These three limits keep the memory for each connection small. The server
	// allocates a buffer for a frame as soon as the client announces the length
	// of the frame. The server also stores data that no handler has read. In
	// net/http, the default of each limit is 1 MiB.
	srv.HTTP2.MaxReadFrameSize = 16 << 10
	srv.HTTP2.MaxReceiveBufferPerConnection, srv.HTTP2.MaxReceiveBufferPerStream = 64<<10, 64<<10
	all := &connectionTracker{limits: limits, open: map[net.Conn]*connection{}}
	srv.ConnContext, srv.ConnState = all.context, all.state
	srv.Handler = LimitBody(srv.Handler, limits.Body)
}

// LimitBody returns a handler that limits the time for the arrival of a request's
// body. If a handler answers without reading the body, net/http first reads and
// discards the body. Without a limit, the client could delay the answer forever.
func LimitBody(next http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(most)) // fails if the connection is closed
		}
		next.ServeHTTP(w, r)
	})
}
