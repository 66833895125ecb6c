package run

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Limits bound what clients hold that have not authenticated. The zero value of
// a field means its default.
type Limits struct {
	// Connections is how many connections are open at once. The default is an
	// eighth of the file descriptors that the process may have.
	Connections int
	// Anonymous is how many of them have carried no authenticated request. One
	// more closes the one that has waited longest. The default is 512, and half
	// of Connections at most.
	Anonymous int
	// AnonymousFor is how long such a connection stays open between two requests,
	// and how long one of its requests may take. The default is 25 s.
	AnonymousFor time.Duration
	// Body is how long a request's body may take to arrive, unless the handler
	// sets another read deadline. The default is 10 s.
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

// HTTP serves on ln until ctx ends, within limits. Then it takes no new requests,
// gives running ones grace to finish, and cuts off the others. It closes ln. Where
// srv sets no timeout or header size, HTTP sets one.
//
// A handler calls Authenticated when it knows the caller. Its connection may then
// be idle and busy for as long as srv allows.
func HTTP(ctx context.Context, srv *http.Server, ln net.Listener, grace time.Duration, limits Limits) error {
	limits = limits.withDefaults()
	limit(srv, limits)
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

// limit sets the timeouts of srv and counts its connections.
func limit(srv *http.Server, limits Limits) {
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
	// The server makes a buffer for a frame as soon as the client says its length,
	// and keeps what no handler has read. The defaults are 1 MiB each.
	srv.HTTP2.MaxReadFrameSize = 16 << 10
	srv.HTTP2.MaxReceiveBufferPerConnection, srv.HTTP2.MaxReceiveBufferPerStream = 64<<10, 64<<10
	all := &connections{limits: limits, open: map[net.Conn]*connection{}}
	srv.ConnContext, srv.ConnState = all.context, all.state
	srv.Handler = LimitBody(srv.Handler, limits.Body)
}

// LimitBody is next with a deadline for the arrival of a request's body. When a
// handler answers without reading the body, net/http first reads and discards it.
// Without a deadline that waits for the client, and the answer is not sent.
func LimitBody(next http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(most)) // fails where the connection is gone
		}
		next.ServeHTTP(w, r)
	})
}
