package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// session is the Connect stream of one agent.
type session struct {
	server      *Server
	agentID     string
	identifiers wire.Identifiers
	certified   wire.Identifiers // granted by the agent's certificate
	zone        string
	peer        string
	since       time.Time
	secret      string // identifies the session in calls of the extension; empty for upstream's agents

	out      *wire.Outbox
	ctx      context.Context // ends with the session
	end      context.CancelCauseFunc
	draining atomic.Bool
	load     atomic.Int64 // number of links and running dials
	toward   atomic.Int64 // bytes to targets
	back     atomic.Int64 // bytes from targets

	mu     sync.Mutex
	token  string
	dials  map[int64]*pendingDial // key: number of the dial
	plain  map[int64]*plainLink   // key: id that the agent gave the connection
	closed bool
}

// pendingDial is a dial that the agent has not answered yet.
type pendingDial struct{ answer chan dialAnswer } // capacity 1

type dialAnswer struct {
	link  link
	cause wire.Cause
	err   error
}

// connect implements the gRPC method Connect for one agent.
func (s *Server) connect(_ any, stream grpc.ServerStream) error {
	ses, err := s.introduce(stream)
	if err != nil {
		s.metrics.agentRefused()
		s.log.Warn("refused an agent", "from", peerOf(stream.Context()), "err", err)
		return err
	}
	header := metadata.Pairs(wire.KeyServerID, s.cfg.ID, wire.KeyServerCount, fmt.Sprint(s.cfg.Count))
	if ses.secret != "" {
		header.Set(wire.KeyStreams, wire.StreamsVersion)
		header.Set(wire.KeySession, ses.secret)
	}
	if err := s.agents.addSession(ses); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer s.agents.remove(ses)
	if err := stream.SendHeader(header); err != nil {
		return err
	}
	log := s.log.With("agent", ses.agentID, "from", ses.peer)
	log.Info("an agent connected", "streams", ses.secret != "", "identifiers", ses.identifiers.String(), "zone", ses.zone)
	s.metrics.connections.WithLabelValues("Connect").Inc()
	defer s.metrics.connections.WithLabelValues("Connect").Dec()
	err = ses.serve(stream)
	log.Info("an agent disconnected", "because", err, "connections", ses.load.Load())
	return status.Error(codes.Unavailable, err.Error())
}

// introduce reads the agent's metadata and returns a session. It returns an error if the server
// refuses the agent.
func (s *Server) introduce(stream grpc.ServerStream) (*session, error) {
	ctx := stream.Context()
	md, _ := metadata.FromIncomingContext(ctx)
	bad := func(format string, args ...any) (*session, error) {
		return nil, status.Errorf(codes.InvalidArgument, format, args...)
	}
	ids, texts := md.Get(wire.KeyAgentID), md.Get(wire.KeyAgentIdentifiers)
	if len(ids) != 1 || ids[0] == "" {
		return bad("metadata %s must have exactly one value, and the value must not be empty", wire.KeyAgentID)
	}
	if !utf8.ValidString(ids[0]) { // the metrics have the id as a label, and Prometheus panics for such a label
		return bad("metadata %s must be valid UTF-8, got %q", wire.KeyAgentID, ids[0])
	}
	if len(texts) > 1 {
		return bad("metadata %s must have at most one value", wire.KeyAgentIdentifiers)
	}
	identifiers, err := wire.ParseIdentifiers(strings.Join(texts, ""))
	if err != nil {
		return bad("%v", err)
	}
	ses := &session{
		server: s, agentID: ids[0], identifiers: identifiers, zone: strings.Join(md.Get(wire.KeyZone), ""),
		peer: peerOf(ctx), since: time.Now(), token: bearer(md),
		out: wire.NewOutbox(), dials: map[int64]*pendingDial{}, plain: map[int64]*plainLink{},
	}
	if ses.certified, err = certifiedIdentifiers(ctx); err != nil {
		return nil, err
	}
	if err := s.authenticate(ctx, ses, ses.token); err != nil {
		return nil, err
	}
	if s.cfg.Streams && strings.Join(md.Get(wire.KeyStreams), "") == wire.StreamsVersion {
		ses.secret = rand.Text()
	}
	ses.ctx, ses.end = context.WithCancelCause(ctx)
	return ses, nil
}

func bearer(md metadata.MD) string {
	token, _ := strings.CutPrefix(strings.Join(md.Get(wire.KeyAuthorization), ""), wire.BearerPrefix)
	return token
}

func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// certifiedIdentifiers returns the identifiers that the agent's certificate grants. If the agent
// has no verified certificate, the function returns no identifiers.
func certifiedIdentifiers(ctx context.Context) (wire.Identifiers, error) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return wire.Identifiers{}, nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return wire.Identifiers{}, nil
	}
	granted, err := wire.GrantedBy(info.State.VerifiedChains[0][0])
	if err != nil {
		return wire.Identifiers{}, status.Error(codes.PermissionDenied, err.Error())
	}
	return granted, nil
}

// authenticate checks an agent's token if the server has an Authenticator. It also returns an error
// if the agent states an identifier that neither the certificate nor the token grants.
// TrustIdentifiers and InsecureAgents each disable this second check.
func (s *Server) authenticate(ctx context.Context, ses *session, token string) error {
	granted := ses.certified
	if s.cfg.Authenticator != nil {
		if token == "" {
			return status.Error(codes.Unauthenticated, "the agent sent no token")
		}
		byToken, err := s.cfg.Authenticator.Authenticate(ctx, token)
		switch {
		case errors.Is(err, ErrDenied):
			return status.Error(codes.Unauthenticated, err.Error())
		case err != nil:
			return status.Errorf(codes.Unavailable, "the agent's token cannot be checked now: %v", err)
		}
		granted = granted.Union(byToken)
	}
	if s.cfg.TrustIdentifiers || s.cfg.InsecureAgents {
		return nil
	}
	if beyond := ses.identifiers.Beyond(granted).String(); beyond != "" {
		return status.Errorf(codes.PermissionDenied, "the agent's certificate or token does not grant the identifiers %s: "+
			"give each agent a certificate with these names and addresses, or a token that is bound to its node", beyond)
	}
	return nil
}

// serve runs the session until the session ends, and returns the cause of the
// end.
func (s *session) serve(stream grpc.ServerStream) error {
	// If the server ends the session, RecvMsg returns only after session.serve has
	// returned. So session.serve must not wait for the goroutine that reads the
	// stream. Server.Run waits for this goroutine instead.
	s.server.readers.Go(func() { s.end(s.read(stream)) })
	if s.secret != "" && s.server.cfg.Authenticator != nil {
		s.server.readers.Go(s.reviewToken)
	}
	s.end(s.out.Run(s.ctx, func(p *wire.Packet) error {
		s.server.metrics.packet(toAgent, p.Type)
		return stream.SendMsg(p)
	}))
	err := context.Cause(s.ctx)
	s.failPending(err)
	return err
}

// failPending answers all pending dials with an error and ends all connections that use upstream's
// protocol.
func (s *session) failPending(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, d := range s.dials {
		d.answer <- dialAnswer{err: errAgentLost}
	}
	s.dials = nil
	for _, l := range s.plain {
		l.queue.Close(fmt.Errorf("%w: %w", errAgentLost, err))
	}
	s.plain = nil
}

func (s *session) read(stream grpc.ServerStream) error {
	for {
		var p wire.Packet
		if err := stream.RecvMsg(&p); err != nil {
			return err
		}
		s.server.metrics.packet(fromAgent, p.Type)
		s.handle(&p)
	}
}

// handle processes a packet from the agent. If a client does not read, handle can wait in
// Queue.Push for a limited time. No other call in handle waits for a client.
func (s *session) handle(p *wire.Packet) {
	switch p.Type {
	case client.PacketType_DIAL_RSP:
		s.handleDialRsp(p)
	case client.PacketType_DATA:
		s.deliver(p)
	case client.PacketType_CLOSE_RSP:
		s.closedByAgent(p)
	case client.PacketType_DRAIN:
		if !s.draining.Swap(true) {
			s.server.log.Info("an agent drains and will disconnect", "agent", s.agentID, "connections", s.load.Load())
		}
	default: // a packet of another version of the protocol
		p.Data.Free()
	}
}

// reviewToken checks the agent's token once per ReviewInterval. If the token is no longer valid,
// reviewToken ends the session. Between two checks the agent can send a new token.
func (s *session) reviewToken() {
	tick := time.NewTicker(s.server.cfg.ReviewInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		token := s.token
		s.mu.Unlock()
		err := s.server.authenticate(s.ctx, s, token)
		switch code := status.Code(err); {
		case code == codes.Unauthenticated || code == codes.PermissionDenied:
			s.end(err)
		case err != nil && s.ctx.Err() == nil:
			s.server.log.Warn("the token of an agent was not checked; the agent stays connected", "agent", s.agentID, "err", err)
		}
	}
}

// renew implements the gRPC method Renew, with which an agent sends a new
// token.
func (s *Server) renew(_ any, stream grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	ses := s.agents.withSecret(strings.Join(md.Get(wire.KeySession), ""))
	if ses == nil {
		return status.Error(codes.NotFound, "the session does not exist")
	}
	token := bearer(md)
	if err := s.authenticate(stream.Context(), ses, token); err != nil {
		return err
	}
	ses.mu.Lock()
	ses.token = token
	ses.mu.Unlock()
	return nil
}
