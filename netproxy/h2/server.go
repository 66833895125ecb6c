package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// prefaceTimeout is for a client to say that it speaks HTTP/2.
const prefaceTimeout = 10 * time.Second

// Server serves streams to connections that somebody else has accepted.
type Server struct {
	conf    Config
	methods map[string]method
	work    sync.WaitGroup // connections and handlers

	mu      sync.Mutex
	conns   map[*conn]bool
	stopped bool
}

type method struct {
	service any
	handler grpc.StreamHandler
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// NewServer makes a Server that knows no method yet.
func NewServer(conf Config) *Server {
	return &Server{conf: conf, methods: map[string]method{}, conns: map[*conn]bool{}}
}

// RegisterService adds the streams of a service. It may not run beside Serve.
func (s *Server) RegisterService(d *grpc.ServiceDesc, service any) {
	for _, m := range d.Streams {
		s.methods["/"+d.ServiceName+"/"+m.StreamName] = method{service, m.Handler}
	}
}

// Serve serves nc until it ends, closes it, and returns why. info is what its
// handshake has found.
func (s *Server) Serve(nc net.Conn, info credentials.AuthInfo) error {
	c := newConn(nc, s.conf)
	c.greet()
	c.role = &serving{server: s, conn: c, from: &peer.Peer{Addr: nc.RemoteAddr(), LocalAddr: nc.LocalAddr(), AuthInfo: info}}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return errors.Join(grpc.ErrServerStopped, nc.Close())
	}
	s.conns[c] = true
	s.work.Add(1)
	s.mu.Unlock()
	defer s.work.Done()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	}()
	c.kick()
	if err := preface(nc); err != nil {
		c.fail(err)
		return err
	}
	return c.serve()
}

// Drain takes no more streams, and returns when those that are open have ended
// and their connections with them, or after Stop.
func (s *Server) Drain() {
	s.mu.Lock()
	s.stopped = true
	for c := range s.conns {
		go c.leave() // ends with its write
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Stop ends every connection, and returns when all handlers have.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	for c := range s.conns {
		go c.fail(grpc.ErrServerStopped) // Serve waits for it
	}
	s.mu.Unlock()
	s.work.Wait()
}

var errPreface = errors.New("the client does not speak HTTP/2")

func preface(nc net.Conn) error {
	// Not by a deadline: gRPC takes those away from a connection that it gave us.
	bound := time.AfterFunc(prefaceTimeout, func() { nc.Close() })
	defer bound.Stop()
	var said [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(nc, said[:]); err != nil {
		return err
	}
	if string(said[:]) != http2.ClientPreface {
		return errPreface
	}
	return nil
}

// serving is the role of a server's connection.
type serving struct {
	server *Server
	conn   *conn
	from   *peer.Peer
}

func (r *serving) opened(f *http2.MetaHeadersFrame) error {
	c := r.conn
	if f.StreamID%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	h := head{f.Fields, f.Truncated}
	md, err := h.metadata()
	ctx := peer.NewContext(metadata.NewIncomingContext(context.Background(), md), r.from)
	c.mu.Lock()
	switch {
	case c.err != nil:
		c.mu.Unlock()
		return c.err
	case c.leaving:
		c.mu.Unlock()
		c.refuse(f.StreamID, http2.ErrCodeRefusedStream)
		return nil
	case f.StreamID <= c.last: // of one that we have ended
		c.mu.Unlock()
		return nil
	case c.running >= c.conf.MaxStreams:
		c.mu.Unlock()
		c.refuse(f.StreamID, http2.ErrCodeRefusedStream)
		return nil
	}
	st := &serverStream{stream: c.newStream(ctx, f.StreamID)}
	st.refuse = func(err error) { st.end(status.Convert(err), true) }
	c.running++
	c.mu.Unlock()
	if f.StreamEnded() {
		c.remoteEnd(st.stream, io.EOF)
	}
	m, known := r.server.methods[h.get(fieldPath)]
	var bad *status.Status
	switch {
	case h.cut:
		bad = status.New(codes.ResourceExhausted, "the header is too long")
	case h.get(fieldMethod) != "POST" || !strings.HasPrefix(h.get(fieldContentType), contentType):
		bad = status.New(codes.Internal, "only gRPC is spoken here")
	case err != nil:
		bad = status.New(codes.Internal, err.Error())
	case !known:
		bad = status.Newf(codes.Unimplemented, "there is no method %.100s", h.get(fieldPath))
	}
	if bad != nil {
		st.end(bad, true)
		st.over()
		c.kick()
		return nil
	}
	r.server.work.Add(1)
	go st.run(r.server, m)
	return nil
}

// fields are trailers: gRPC's clients send none.
func (r *serving) fields(s *stream, f *http2.MetaHeadersFrame) error {
	if !f.StreamEnded() {
		r.conn.punish(s, http2.ErrCodeProtocol, statusOf(http2.ErrCodeProtocol).Err())
		return nil
	}
	r.conn.lastData(s)
	return nil
}

// serverStream is a grpc.ServerStream.
type serverStream struct {
	*stream

	sending sync.Mutex
	answer  metadata.MD // what the answer's header will say; nil once it is sent
	sent    bool
	trailer metadata.MD
}

var _ grpc.ServerStream = (*serverStream)(nil)

func (s *serverStream) run(server *Server, m method) {
	defer server.work.Done()
	defer s.over()
	s.close(m.handler(m.service, s))
}

// over makes room for another.
func (s *serverStream) over() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.running--
}

func (s *serverStream) close(err error) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	s.end(st, false)
	s.c.flush()
}

// end says how the call ended. What the client still sends is not wanted. An
// answer to what the client did wrong counts.
func (s *serverStream) end(st *status.Status, answer bool) {
	c := s.c
	s.sending.Lock()
	c.mu.Lock()
	before := len(c.pending)
	if s.gone == nil && !s.local && c.err == nil {
		if !s.sent {
			s.sent = true
			c.block.answer(s.answer)
		}
		c.block.status(st)
		c.block.metadata(s.trailer)
		c.fields(s.id, true)
		if !s.remote {
			_ = c.framer.WriteRSTStream(s.id, http2.ErrCodeNo)
		}
	}
	if answer {
		c.answers += len(c.pending) - before
	}
	s.local = true
	c.drop(s.stream)
	c.mu.Unlock()
	s.sending.Unlock()
	s.finish(status.Error(codes.Canceled, context.Canceled.Error()))
	s.drop()
}

// fields makes frames of the block that was written. The caller holds c.mu.
func (c *conn) fields(id uint32, last bool) {
	rest := c.block.buf.Bytes()
	for first := true; first || len(rest) > 0; first = false {
		part := rest[:min(len(rest), c.largest)]
		rest = rest[len(part):]
		if first {
			_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: part, EndHeaders: len(rest) == 0, EndStream: last})
		} else {
			_ = c.framer.WriteContinuation(id, len(rest) == 0, part)
		}
	}
	c.block.buf.Reset()
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) SetHeader(md metadata.MD) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	if s.sent {
		return status.Error(codes.Internal, "the header was sent")
	}
	s.answer = metadata.Join(s.answer, md)
	return nil
}

func (s *serverStream) SendHeader(md metadata.MD) error {
	if err := s.SetHeader(md); err != nil {
		return err
	}
	s.begin()
	s.c.flush()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.gone
}

// begin sends the header, unless it was.
func (s *serverStream) begin() {
	s.sending.Lock()
	defer s.sending.Unlock()
	if s.sent {
		return
	}
	s.sent = true
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.gone != nil {
		return
	}
	c.block.answer(s.answer)
	c.fields(s.id, false)
	s.answer = nil
}

func (s *serverStream) SetTrailer(md metadata.MD) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
}

func (s *serverStream) SendMsg(m any) error {
	data, err := s.c.conf.Codec.Marshal(m)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	s.begin()
	return s.send(data)
}

func (s *serverStream) RecvMsg(m any) error { return s.into(m) }

// into receives a message into m.
func (s *stream) into(m any) error {
	data, err := s.recv()
	if err != nil {
		return err
	}
	defer data.Free()
	if err := s.c.conf.Codec.Unmarshal(data, m); err != nil {
		err = status.Error(codes.Internal, err.Error())
		if s.client != nil { // a server's handler ends the call
			s.c.abort(s, http2.ErrCodeCancel, err)
			s.drop()
		}
		return err
	}
	return nil
}

// Handover makes creds give the connections that have negotiated protocol to
// serve, and only the others to gRPC.
func Handover(creds credentials.TransportCredentials, protocol string, serve func(net.Conn, credentials.AuthInfo)) credentials.TransportCredentials {
	return handover{creds, protocol, serve}
}

type handover struct {
	credentials.TransportCredentials
	protocol string
	serve    func(net.Conn, credentials.AuthInfo)
}

func (h handover) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil || !Negotiated(info, h.protocol) {
		return conn, info, err
	}
	go h.serve(conn, info) // it owns the connection now
	return nil, nil, credentials.ErrConnDispatched
}

func (h handover) Clone() credentials.TransportCredentials {
	return handover{h.TransportCredentials.Clone(), h.protocol, h.serve}
}

// Negotiated reports whether a handshake has chosen protocol, by ALPN.
func Negotiated(info credentials.AuthInfo, protocol string) bool {
	t, ok := info.(credentials.TLSInfo)
	return ok && t.State.NegotiatedProtocol == protocol
}

// Offer is conf with protocol before HTTP/2 in ALPN, also in what conf makes
// for a client.
func Offer(conf *tls.Config, protocol string) *tls.Config {
	conf = conf.Clone()
	conf.NextProtos = []string{protocol, http2.NextProtoTLS}
	if anew := conf.GetConfigForClient; anew != nil {
		conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			conf, err := anew(hello)
			if err != nil || conf == nil {
				return conf, err
			}
			return Offer(conf, protocol), nil
		}
	}
	return conf
}
