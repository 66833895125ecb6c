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
	"github.com/cloudsim-dev/allinone/netproxy/socket"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// Server connects clients to targets through agents.
type Server struct {
	log      *slog.Logger
	cfg      Config
	metrics  *metrics
	tracer   trace.Tracer // nil: no spans
	agents   agentSet
	conns    connSet
	stopping atomic.Bool
	readers  sync.WaitGroup // goroutines of sessions and plain links
	clients  sync.WaitGroup // HTTP CONNECT clients
}

// New checks cfg and makes a Server. The caller then calls Run.
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

// Run makes a Server with cfg and runs the Server until ctx ends.
func Run(ctx context.Context, log *slog.Logger, cfg Config) error {
	s, err := New(log, cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// keepaliveTimeout is the time in which a peer must answer a keepalive ping. Otherwise gRPC closes
// the connection.
const keepaliveTimeout = 5 * time.Second

// grpcServer returns a gRPC server that needs little memory for an idle stream.
// If conf is nil, the server uses plaintext.
func grpcServer(conf *tls.Config, keepaliveTime time.Duration, more ...grpc.ServerOption) *grpc.Server {
	o := []grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.InitialWindowSize(wire.StreamWindow), grpc.InitialConnWindowSize(wire.ConnWindow),
		grpc.SharedWriteBuffer(true), experimental.BufferPool(socket.Pool),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true), grpc.MaxHeaderListSize(64 << 10),
	}
	if conf != nil {
		o = append(o, grpc.Creds(socket.Records(credentials.NewTLS(conf))))
	}
	return grpc.NewServer(append(o, more...)...)
}

func (s *Server) agentServer() *grpc.Server {
	g := grpcServer(s.cfg.AgentTLS, s.cfg.KeepaliveTime,
		grpc.WriteBufferSize(wire.WriteBuffer), grpc.ReadBufferSize(wire.ReadBuffer), grpc.MaxConcurrentStreams(wire.MaxStreams))
	g.RegisterService(wire.AgentService(s.connect), nil)
	g.RegisterService(wire.TunnelService(s.open, s.renew), nil)
	return g
}

func (s *Server) frontendServer(conf *tls.Config) *grpc.Server {
	readBuffer := wire.FrontBuffer
	if conf != nil {
		readBuffer = wire.ReadBuffer
	}
	// kube-apiserver opens a connection for each stream, and sends each header once per connection.
	// So an HPACK header table would use memory without a benefit.
	g := grpcServer(conf, s.cfg.FrontendKeepalive,
		grpc.WriteBufferSize(wire.FrontBuffer), grpc.ReadBufferSize(readBuffer), grpc.HeaderTableSize(0),
		grpc.MaxConcurrentStreams(maxCalls), grpc.ConnectionTimeout(s.cfg.HeaderTimeout))
	g.RegisterService(wire.ProxyService(s.proxy), nil)
	return g
}

// Run serves until ctx ends. Then it accepts no new clients, and waits up to the drain timeout
// for connections to end. After that, it cuts the remaining connections. If a listener fails, Run
// stops in the same way and returns the error. Run also closes the listeners in its Config.
func (s *Server) Run(ctx context.Context) error {
	agents := s.agentServer()

	// After the end of ctx, the connections of clients continue until they end or the drain
	// timeout is over. The sessions with agents end last.
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
	if s.cfg.InsecureAgents {
		s.log.Warn("agents need no certificate and no token: any program that reaches this address can receive connections", "address", s.cfg.Agents.Addr())
	}
	if s.cfg.TrustIdentifiers {
		s.log.Warn("agents may state any identifier: one compromised node can receive the connections of all nodes")
	}
	s.log.Info("network proxy server started", "id", s.cfg.ID, "agents", s.cfg.Agents.Addr(), "strategies", s.cfg.Strategies)
	timer := s.drainTimer(ctx, cut, agents.Stop)
	err := run.All(ctx, parts...)
	stop()
	s.clients.Wait()
	timer()
	s.agents.endAll(errStopping)
	agents.Stop()
	serving.Wait()
	s.readers.Wait()
	return errors.Join(err, agentErr)
}

// cutTime is the time between the calls of cut and cutAgents in drainTimer.
const cutTime = time.Second

// drainTimer starts a goroutine. The goroutine waits for the end of ctx and then for the drain
// timeout. Then it calls cut, which closes the clients' connections. If a target does not read, a
// client's connection can remain open until the agent's connection ends. So the goroutine waits for
// cutTime and then calls cutAgents. When all clients' connections have ended, the caller must call
// the returned function. The returned function stops the goroutine.
func (s *Server) drainTimer(ctx context.Context, cut, cutAgents func()) func() {
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
			s.log.Info("waiting for the connections to end before the stop", "connections", n, "at most", s.cfg.DrainTimeout)
		}
		end := time.NewTimer(s.cfg.DrainTimeout)
		defer end.Stop()
		select {
		case <-over:
			return
		case <-end.C:
		}
		if n := s.conns.count(); n > 0 {
			s.log.Warn("closing connections that did not end in time", "connections", n)
		}
		cut()
		end.Reset(cutTime)
		select {
		case <-over:
		case <-end.C:
			cutAgents()
		}
	})
	return func() {
		close(over)
		waiting.Wait()
	}
}

// maxCalls limits the streams on one connection of a gRPC client. kube-apiserver does not reach
// this limit, because it opens a connection for each stream.
const maxCalls = 1000

// serveFrontend accepts clients until ctx ends. Connected clients continue until they disconnect,
// or until connCtx ends.
func (s *Server) serveFrontend(ctx, connCtx context.Context, f Frontend) error {
	if f.Mode == HTTPConnect {
		return s.serveConnects(ctx, connCtx, connectTLS(keepAlive(f.Listener), f.TLS))
	}
	front := s.frontendServer(f.TLS)
	unbind := context.AfterFunc(ctx, func() { f.Listener.Close() })
	defer unbind()
	err := front.Serve(keepAlive(f.Listener))
	if ctx.Err() == nil {
		front.Stop()
		return err
	}
	cut := context.AfterFunc(connCtx, front.Stop)
	defer cut()
	front.GracefulStop()
	return nil
}

// serveConnects accepts HTTP CONNECT clients until ctx ends.
func (s *Server) serveConnects(ctx, connCtx context.Context, ln net.Listener) error {
	return s.acceptClients(ctx, ln, func(client net.Conn) {
		unbind := context.AfterFunc(connCtx, func() { client.Close() })
		defer unbind()
		s.serveConnect(connCtx, client)
	})
}

// acceptClients calls serveConn for each client in a new goroutine. Server.Run waits for these
// goroutines. When ctx ends, acceptClients closes the listener and returns.
func (s *Server) acceptClients(ctx context.Context, ln net.Listener, serveConn func(net.Conn)) error {
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
			// The likely cause of the error is a lack of file descriptors. Descriptors become free
			// when other clients disconnect, so wait and retry.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("a client was not accepted; retrying", "err", err, "in", pause)
			wait(ctx, pause)
			continue
		}
		pause = 0
		s.clients.Go(func() { serveConn(client) })
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

// keepAlive enables TCP keepalive on accepted connections, so that the kernel detects a lost peer
// within seconds.
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
	// An error concerns only this connection. For example, the client may have reset the connection
	// already. In this case, the next read also fails. Accept must not return the error, because a
	// gRPC server would then stop.
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3})
	return c, nil
}
