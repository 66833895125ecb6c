package h2

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Client makes streams on one connection. It does not connect again.
type Client struct {
	c         *conn
	authority string
	agent     string
	reading   sync.WaitGroup
}

// NewClient takes over nc. userAgent is who calls, authority whom.
func NewClient(nc net.Conn, conf Config, authority, userAgent string) *Client {
	c := newConn(nc, conf)
	c.role = &calling{c}
	c.pending = append(c.pending, http2.ClientPreface...)
	c.greet()
	l := &Client{c: c, authority: authority, agent: userAgent}
	l.reading.Go(func() { _ = c.serve() }) // its streams say why
	c.kick()
	return l
}

// Close ends the connection and every stream.
func (l *Client) Close() error {
	l.c.fail(errClosed)
	l.reading.Wait()
	return nil
}

var errClosed = errors.New("closed by this end")

// NewStream begins a call, which ends with ctx at the latest. Options are not
// looked at.
func (l *Client) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	c := l.c
	md, _ := metadata.FromOutgoingContext(ctx)
	c.mu.Lock()
	switch {
	case c.err != nil:
		c.mu.Unlock()
		return nil, status.Error(codes.Unavailable, c.err.Error())
	case len(c.streams) >= c.most:
		c.mu.Unlock()
		return nil, status.Errorf(codes.Unavailable, "the server takes %d streams and no more", c.most)
	case c.last >= 1<<31-3:
		c.leaving = true // after the last stream a new connection has new numbers
		c.mu.Unlock()
		return nil, status.Error(codes.Unavailable, errSpent.Error())
	}
	id := c.last + 2
	if c.last == 0 {
		id = 1
	}
	s := &clientStream{stream: c.newStream(ctx, id), known: make(chan struct{})}
	s.client = s
	for _, f := range [][2]string{
		{fieldMethod, "POST"}, {fieldScheme, "https"}, {fieldPath, method}, {fieldAuthority, l.authority},
		{fieldContentType, contentType}, {fieldTE, "trailers"}, {fieldUserAgent, l.agent},
	} {
		c.block.field(f[0], f[1])
	}
	c.block.metadata(md)
	c.fields(id, false)
	c.mu.Unlock()
	s.unbind = context.AfterFunc(ctx, func() {
		c.abort(s.stream, http2.ErrCodeCancel, status.FromContextError(ctx.Err()).Err())
		s.drop()
	})
	c.flush()
	return s, nil
}

var errSpent = errors.New("the connection has no more numbers for streams")

// calling is the role of a client's connection.
type calling struct{ conn *conn }

func (r *calling) opened(f *http2.MetaHeadersFrame) error {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	if f.StreamID > r.conn.last || f.StreamID%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // of one that we have ended
}

func (r *calling) fields(s *stream, f *http2.MetaHeadersFrame) error {
	h := head{f.Fields, f.Truncated}
	cs := s.client
	code := h.get(fieldStatus)
	switch {
	case len(code) == 3 && code[0] == '1': // RFC 9110, 15.2: there is more to come
		return nil
	case f.StreamEnded():
		md, _ := h.metadata() // the status matters more than what comes beside it
		cs.tell(nil, md)
		err := h.status().Err()
		switch {
		case err == nil && s.have > 0:
			err = errCut
		case err == nil:
			err = io.EOF
		}
		r.conn.over(s, err)
		return nil
	}
	md, err := h.metadata()
	if err != nil {
		code = err.Error()
	}
	if code != "200" || h.cut {
		r.conn.punish(s, http2.ErrCodeProtocol, status.Errorf(codes.Unknown, "the answer is none of gRPC: HTTP status %q", code))
		return nil
	}
	cs.tell(md, nil)
	return nil
}

// clientStream is a grpc.ClientStream.
type clientStream struct {
	*stream

	unbind func() bool
	once   sync.Once
	known  chan struct{} // closed when header and trailer may be read

	header  metadata.MD
	trailer metadata.MD
}

var _ grpc.ClientStream = (*clientStream)(nil)

func (s *clientStream) tell(header, trailer metadata.MD) {
	s.trailer = trailer
	s.once.Do(func() {
		s.header = header
		close(s.known)
	})
}

// Header waits for the server's. A call that ended without one has none, and
// RecvMsg tells why.
func (s *clientStream) Header() (metadata.MD, error) {
	select {
	case <-s.known:
		return s.header, nil
	case <-s.ctx.Done():
	}
	select {
	case <-s.known: // too, and so before
		return s.header, nil
	default:
		return nil, context.Cause(s.ctx)
	}
}

func (s *clientStream) Trailer() metadata.MD     { return s.trailer }
func (s *clientStream) Context() context.Context { return s.ctx }

// CloseSend says to the server that there is no more.
func (s *clientStream) CloseSend() error {
	c := s.c
	c.mu.Lock()
	if s.gone == nil && !s.local {
		_ = c.framer.WriteData(s.id, true, nil)
		s.local = true
		if s.remote {
			c.drop(s.stream)
		}
	}
	c.mu.Unlock()
	c.flush()
	return nil
}

// SendMsg returns io.EOF when the call has ended: RecvMsg tells why.
func (s *clientStream) SendMsg(m any) error {
	data, err := s.c.conf.Codec.Marshal(m)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if err := s.send(data); err != nil {
		return io.EOF
	}
	return nil
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.into(m)
	if err != nil {
		s.unbind()
	}
	return err
}
