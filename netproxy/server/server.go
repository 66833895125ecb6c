package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/cloudsim-dev/allinone/internal/run"
	"github.com/cloudsim-dev/allinone/netproxy/h2"
	"github.com/cloudsim-dev/allinone/netproxy/socket"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// Server brings clients and agents together.
type Server struct {
	log      *slog.Logger
	cfg      Config
	metrics  *metrics
	tracer   trace.Tracer // nil: no spans
	agents   agents
	conns    conns
	stopping atomic.Bool
	readers  sync.WaitGroup // goroutines of sessions and plain links
	clients  sync.WaitGroup // HTTP CONNECT clients
}

// New checks cfg and makes a Server; Run does the work.
func New(log *slog.Logger, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{log: log, cfg: cfg}
	s.agents.byHost, s.agents.bySecret = map[string][]*session{}, map[string]*session{}
	s.conns.open, s.conns.places = map[int64]*conn{}, map[string]*destination{}
	if cfg.Tracer != nil {
		s.tracer = cfg.Tracer.Tracer("github.com/cloudsim-dev/allinone/netproxy/server")
	}
	var err error
	s.metrics, err = newMetrics(cfg.Registry, s)
	return s, err
}

// Run makes a Server of cfg and runs it until ctx ends.
func Run(ctx context.Context, log *slog.Logger, cfg Config) error {
	s, err := New(log, cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// keepaliveTimeout is for the answer to a sign of life.
const keepaliveTimeout = 5 * time.Second

// transport is of clients, and of agents of our own.
func transport(alive time.Duration, streams int, table uint32) h2.Config {
	return h2.Config{
		Codec: wire.Codec{}, Pool: socket.Pool, Window: wire.StreamWindow, MaxMessage: wire.MaxMessage, MaxStreams: streams, HeaderTable: table,
		KeepaliveTime: alive, KeepaliveTimeout: keepaliveTimeout,
	}
}

// grpcServer is of agents that are upstream's, or that bring no TLS.
func (s *Server) grpcServer(creds credentials.TransportCredentials) *grpc.Server {
	o := []grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.InitialWindowSize(wire.StreamWindow), grpc.InitialConnWindowSize(wire.ConnWindow),
		grpc.WriteBufferSize(wire.WriteBuffer), grpc.ReadBufferSize(wire.ReadBuffer), grpc.SharedWriteBuffer(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: s.cfg.KeepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		experimental.BufferPool(socket.Pool), grpc.WaitForHandlers(true), grpc.MaxHeaderListSize(64 << 10),
	}
	if creds != nil {
		o = append(o, grpc.Creds(creds))
	}
	return grpc.NewServer(o...)
}

// Run serves until ctx ends. Then it takes no new clients, waits up to the
// drain timeout for connections to end, and cuts those that have not. It
// closes the listeners of its Config.
func (s *Server) Run(ctx context.Context) error {
	own := h2.NewServer(transport(s.cfg.KeepaliveTime, wire.MaxStreams, wire.HeaderTable))
	agents := s.grpcServer(s.agentCredentials(own))
	for _, r := range []grpc.ServiceRegistrar{own, agents} {
		r.RegisterService(wire.AgentService(s.connect), nil)
		r.RegisterService(wire.TunnelService(s.open, s.renew), nil)
	}

	// Clients outlive ctx until they are drained, agents outlive clients.
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var serving sync.WaitGroup
	var agentErr error
	serving.Go(func() {
		agentErr = agents.Serve(keepAlive(s.cfg.Agents))
		stop()
	})

	var parts []func(context.Context) error
	for _, f := range s.cfg.Frontends {
		parts = append(parts, func(ctx context.Context) error { return s.serveFrontend(ctx, hard, f) })
	}
	s.log.Info("the network proxy server is up", "id", s.cfg.ID, "agents", s.cfg.Agents.Addr(), "strategies", s.cfg.Strategies)
	timer := s.drainTimer(ctx, cut)
	err := run.All(ctx, parts...)
	stop()
	s.clients.Wait()
	timer()
	s.agents.endAll(errStopping)
	agents.Stop()
	own.Stop()
	serving.Wait()
	s.readers.Wait()
	return errors.Join(err, agentErr)
}

// agentCredentials are of those who call as agents: ours are given to own.
func (s *Server) agentCredentials(own *h2.Server) credentials.TransportCredentials {
	if s.cfg.AgentTLS == nil {
		return nil
	}
	if !s.cfg.Streams {
		return socket.Records(credentials.NewTLS(s.cfg.AgentTLS))
	}
	creds := socket.Records(credentials.NewTLS(h2.Offer(s.cfg.AgentTLS, wire.Protocol)))
	return h2.Handover(creds, wire.Protocol, func(conn net.Conn, info credentials.AuthInfo) {
		_ = own.Serve(conn, info) // the session that ends with it says why
	})
}

// drainTimer cuts what is left when the drain timeout after ctx's end is over.
// Call what it returns when nothing is left.
func (s *Server) drainTimer(ctx context.Context, cut func()) func() {
	over := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		s.stopping.Store(true)
		if n := s.conns.count(); n > 0 {
			s.log.Info("stopping when the connections have ended", "connections", n, "at most", s.cfg.DrainTimeout)
		}
		end := time.NewTimer(s.cfg.DrainTimeout)
		defer end.Stop()
		select {
		case <-over:
		case <-end.C:
			if n := s.conns.count(); n > 0 {
				s.log.Warn("cutting connections that did not end in time", "connections", n)
			}
			cut()
		}
	})
	return func() {
		close(over)
		waiting.Wait()
	}
}

// maxCalls bounds what one connection of a gRPC client may have us do at once.
// kube-apiserver opens one for each call.
const maxCalls = 1000

// serveFrontend takes clients until ctx ends, and then serves those that it has
// until they end or hard does.
func (s *Server) serveFrontend(ctx, hard context.Context, f Frontend) error {
	if f.Mode == HTTPConnect {
		return s.serveConnects(ctx, hard, connectTLS(keepAlive(f.Listener), f.TLS))
	}
	// A client that brings a connection for each stream sends no header twice.
	front := h2.NewServer(transport(s.cfg.FrontendKeepalive, maxCalls, 0))
	front.RegisterService(wire.ProxyService(s.proxy), nil)
	err := s.accept(ctx, keepAlive(f.Listener), func(client net.Conn) {
		if secure, err := s.shake(hard, client, f.TLS); err == nil {
			_ = front.Serve(secure, nil) // the streams that end with it say why
		}
	})
	unbind := context.AfterFunc(hard, front.Stop)
	defer unbind()
	if err != nil {
		front.Stop()
		return err
	}
	front.Drain()
	return nil
}

// shake makes a connection one of TLS, if conf is not nil, or closes it.
func (s *Server) shake(hard context.Context, client net.Conn, conf *tls.Config) (net.Conn, error) {
	if conf == nil {
		return client, nil
	}
	unbind := context.AfterFunc(hard, func() { client.Close() })
	defer unbind()
	secure, err := handshake(client, conf, s.cfg.HeaderTimeout)
	if err != nil {
		s.log.Debug("a client's handshake failed", "from", client.RemoteAddr(), "err", err)
		_ = client.Close() // TLS may have done so
	}
	return secure, err
}

func handshake(client net.Conn, conf *tls.Config, most time.Duration) (net.Conn, error) {
	if err := client.SetDeadline(time.Now().Add(most)); err != nil {
		return nil, err
	}
	secure, _, err := socket.Records(credentials.NewTLS(conf)).ServerHandshake(client)
	if err != nil {
		return nil, err
	}
	return secure, client.SetDeadline(time.Time{})
}

// serveConnects takes HTTP CONNECT clients.
func (s *Server) serveConnects(ctx, hard context.Context, ln net.Listener) error {
	return s.accept(ctx, ln, func(client net.Conn) {
		unbind := context.AfterFunc(hard, func() { client.Close() })
		defer unbind()
		s.serveConnect(hard, client)
	})
}

// accept gives each client to serve, on a goroutine that s.clients counts, until
// ctx ends, and closes the listener then.
func (s *Server) accept(ctx context.Context, ln net.Listener, serve func(net.Conn)) error {
	unbind := context.AfterFunc(ctx, func() { ln.Close() })
	defer unbind()
	var pause time.Duration
	for {
		client, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				client.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			// Out of file descriptors, most likely: clients that leave make room.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("a client cannot be taken; trying again", "err", err, "in", pause)
			wait(ctx, pause)
			continue
		}
		pause = 0
		s.clients.Go(func() { serve(client) })
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// keepAlive makes the kernel ask peers over TCP for a sign of life, so that
// one that vanished is noticed in seconds.
func keepAlive(ln net.Listener) net.Listener {
	if tcp, ok := ln.(*net.TCPListener); ok {
		return keepAliveListener{tcp}
	}
	return ln
}

type keepAliveListener struct{ *net.TCPListener }

func (l keepAliveListener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	err = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
