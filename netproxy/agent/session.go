package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/cloudsim-dev/allinone/netproxy/socket"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

const (
	// dialTimeout limits the TCP and TLS handshakes with a server.
	dialTimeout = 5 * time.Second
	// connectTimeout limits the time until a server answers a call. This time includes the TCP and
	// TLS handshakes. Upstream's agent has no limit.
	connectTimeout = 10 * time.Second
	// keepaliveTimeout limits the time until the server answers a keepalive ping.
	keepaliveTimeout = 10 * time.Second
	// maxDials limits the simultaneous dials for one server. The agent refuses further dials.
	maxDials = 4096
)

// session is the agent's connection to one server.
type session struct {
	agent    *Agent
	serverID string
	count    int     // number of servers, as this server reports
	places   []place // protected by the agent's lock
	cc       *grpc.ClientConn
	stream   grpc.ClientStream
	secret   string // identifies the session in calls of the extension; empty without the extension
	out      *wire.Outbox
	ctx      context.Context // ends with the session
	end      context.CancelCauseFunc
	work     sync.WaitGroup
	dials    runningDials
	plain    plainConns
}

// connect opens a session with a server. If ctx ends during the call, connect returns an error.
// When live ends, the session ends.
func (a *Agent) connect(ctx, live context.Context, p place) (*session, error) {
	cc, err := a.newClient(p)
	if err != nil {
		return nil, err
	}
	s := &session{agent: a, places: []place{p}, cc: cc, out: wire.NewOutbox()}
	s.ctx, s.end = context.WithCancelCause(live)
	s.dials.pending, s.dials.tunnels = map[int64]context.CancelFunc{}, map[int64]*tunnel{}
	s.plain.open = map[int64]*plainConn{}
	if err := s.greet(ctx); err != nil {
		s.end(err)
		s.hangUp()
		return nil, err
	}
	return s, nil
}

// newClient returns a gRPC client for the server at p. The client connects when the agent makes
// the first call.
func (a *Agent) newClient(p place) (*grpc.ClientConn, error) {
	creds, authority := insecure.NewCredentials(), p.host
	if a.cfg.TLS != nil {
		conf, err := a.cfg.TLS()
		if err != nil {
			return nil, err
		}
		if conf.ServerName == "" {
			conf.ServerName = p.host
		}
		authority = conf.ServerName // gRPC refuses any other authority
		creds = socket.Records(credentials.NewTLS(conf))
	}
	// TCP keepalive detects a lost peer machine. HTTP/2 keepalive detects a hung peer process.
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
	}}
	return grpc.NewClient("passthrough:///"+p.addr,
		grpc.WithTransportCredentials(creds), grpc.WithAuthority(authority), grpc.WithUserAgent("allinone-proxy-agent"),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: dialTimeout}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})),
		// The default of KeepaliveTime is 30 s. If an agent pings more often, upstream's server
		// closes the connection.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: a.cfg.KeepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithInitialWindowSize(wire.StreamWindow), grpc.WithInitialConnWindowSize(wire.ConnWindow),
		grpc.WithWriteBufferSize(wire.WriteBuffer), grpc.WithReadBufferSize(wire.ReadBuffer), grpc.WithSharedWriteBuffer(true),
		experimental.WithBufferPool(socket.Pool), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
	)
}

// greet opens the Connect stream and reads the server's headers.
func (s *session) greet(ctx context.Context) error {
	md, err := s.agent.introduction()
	if err != nil {
		return err
	}
	bound, cancel := context.WithTimeoutCause(ctx, connectTimeout, errNoHeader)
	defer cancel()
	stop := context.AfterFunc(bound, func() { s.end(context.Cause(bound)) })
	defer stop()
	s.stream, err = s.cc.NewStream(metadata.NewOutgoingContext(s.ctx, md), &wire.StreamDesc, wire.MethodConnect) //nolint:contextcheck // the stream outlives the call
	if err != nil {
		return s.endCause(err)
	}
	h, err := s.stream.Header()
	if err != nil {
		return s.endCause(err)
	}
	if len(h.Get(wire.KeyServerID)) == 0 {
		// The server ended the call and did not send the headers of a network proxy
		// server. The error of the stream contains the reason.
		if err := s.stream.RecvMsg(&wire.Packet{}); err != nil {
			return s.endCause(err)
		}
	}
	return s.read(h)
}

// hangUp closes the connection to the server, and so ends every stream of the session.
func (s *session) hangUp() {
	_ = s.cc.Close() // an error means that the connection is closed already
}

// endCause returns the cause of the session's end. If the session has not ended, the
// result is err.
func (s *session) endCause(err error) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return err
}

func (s *session) read(h metadata.MD) error {
	ids, counts := h.Get(wire.KeyServerID), h.Get(wire.KeyServerCount)
	if len(ids) != 1 {
		return headerError(wire.KeyServerID, ids)
	}
	if len(counts) != 1 {
		return headerError(wire.KeyServerCount, counts)
	}
	n, err := strconv.Atoi(counts[0])
	if err != nil {
		return fmt.Errorf("%w: metadata %s must be a number, got %q", errNoHeader, wire.KeyServerCount, counts[0])
	}
	s.serverID, s.count = ids[0], n
	if secrets := h.Get(wire.KeySession); s.agent.cfg.Streams && len(secrets) == 1 {
		s.secret = secrets[0]
	}
	return nil
}

func (a *Agent) introduction() (metadata.MD, error) {
	md := metadata.Pairs(wire.KeyAgentID, a.cfg.ID, wire.KeyAgentIdentifiers, a.cfg.Identifiers.String())
	if a.cfg.Streams {
		md.Set(wire.KeyStreams, wire.StreamsVersion)
	}
	if a.cfg.Zone != "" {
		md.Set(wire.KeyZone, a.cfg.Zone)
	}
	return md, a.showToken(md)
}

func (a *Agent) showToken(md metadata.MD) error {
	if a.cfg.TokenFile == "" {
		return nil
	}
	raw, err := os.ReadFile(a.cfg.TokenFile)
	if err != nil {
		return fmt.Errorf("read the token for the server: %w", err)
	}
	md.Set(wire.KeyAuthorization, wire.BearerPrefix+strings.TrimSpace(string(raw)))
	return nil
}

// serve runs the session until the session ends, and returns the cause of the
// end. When serve returns, all connections of the session have ended.
func (s *session) serve() error {
	s.work.Go(func() { s.end(s.out.Run(s.ctx, func(p *wire.Packet) error { return s.stream.SendMsg(p) })) })
	if s.secret != "" && s.agent.cfg.TokenFile != "" {
		s.work.Go(s.renew)
	}
	for {
		var p wire.Packet
		if err := s.stream.RecvMsg(&p); err != nil {
			s.end(err)
			break
		}
		s.agent.metrics.packet(fromServer, p.Type)
		s.handle(&p)
	}
	err := context.Cause(s.ctx)
	s.hangUp()
	s.plain.closeAll(err)
	s.work.Wait()
	return err
}

// handle processes a packet from the server. If the queue of the packet's target is full, handle
// waits in Queue.Push. If the target reads too slowly, Push returns ErrSlow, and handle cuts the
// connection to the target.
func (s *session) handle(p *wire.Packet) {
	switch p.Type {
	case client.PacketType_DIAL_REQ:
		s.accept(p)
	case client.PacketType_DIAL_CLS:
		s.dials.cancel(p.Random)
	case client.PacketType_DATA:
		s.plain.deliver(s, p)
	case client.PacketType_CLOSE_REQ:
		s.plain.closeRequest(s, p.ID)
	default: // a packet of another version of the protocol
		p.Data.Free()
	}
}

func (s *session) post(p *wire.Packet) {
	s.agent.metrics.packet(toServer, p.Type)
	s.out.Post(p)
}

func (s *session) drain() {
	s.post(wire.Drain())
}

// renew sends the current token of TokenFile to the server once per
// RenewInterval. The server therefore has a valid token whenever it checks the
// token of the session.
func (s *session) renew() {
	tick := time.NewTicker(s.agent.cfg.RenewInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.showAgain(); err != nil && s.ctx.Err() == nil {
			s.agent.log.Warn("token not renewed; retrying", "server", s.serverID, "err", err)
		}
	}
}

func (s *session) showAgain() error {
	md := metadata.Pairs(wire.KeySession, s.secret)
	if err := s.agent.showToken(md); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(s.ctx, md), connectTimeout)
	defer cancel()
	stream, err := s.cc.NewStream(ctx, &wire.StreamDesc, wire.MethodRenew)
	if err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return wire.EndOf(stream.RecvMsg(&wire.Chunk{}))
}

// runningDials holds the running dials that the server has requested, and the open tunnels of
// earlier dials.
type runningDials struct {
	mu      sync.Mutex
	pending map[int64]context.CancelFunc
	tunnels map[int64]*tunnel
}

var (
	errDuplicate = errors.New("a dial with this number is already in progress")
	errBusy      = fmt.Errorf("%d dials are already in progress", maxDials)
)

func (d *runningDials) begin(random int64, cancel context.CancelFunc) (wire.Cause, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending[random] != nil {
		return wire.Invalid, errDuplicate
	}
	if len(d.pending) >= maxDials {
		return wire.Busy, errBusy
	}
	d.pending[random] = cancel
	return wire.Unknown, nil
}

func (d *runningDials) done(random int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pending, random)
}

func (d *runningDials) addTunnel(random int64, t *tunnel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tunnels[random] = t
}

func (d *runningDials) removeTunnel(random int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tunnels, random)
}

// cancel handles a DIAL_CLS. It cancels the running dial with the given number. If the dial has
// already opened a tunnel, cancel tells the tunnel that the client has disconnected.
func (d *runningDials) cancel(random int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel := d.pending[random]; cancel != nil {
		cancel()
	}
	if t := d.tunnels[random]; t != nil {
		t.clientLeft()
	}
}
