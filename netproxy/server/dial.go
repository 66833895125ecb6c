package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// link is a connection to a target through an agent. The package comment explains which
// goroutine calls which method.
type link interface {
	// recv waits for the next chunk from the target. It returns io.EOF after a normal end. The
	// caller must free the chunk.
	recv(c *wire.Chunk) error
	// carry calls uploadFn on a goroutine of the link. If the link has already ended, the link can
	// ignore uploadFn. uploadFn sends the client's data to the target with sendChunk. sendChunk
	// blocks while the target does not read. When uploadFn returns, the link ends.
	//
	// If the client does not read, the server can cut the link. The link then calls abortFn, which
	// stops the writes to the client. A frontend that needs no abort passes an abortFn that does
	// nothing.
	carry(uploadFn func(sendChunk func(*wire.Chunk) error) error, abortFn func())
	// leave tells the agent that the client has disconnected or that the connection has ended. Then
	// this link ends, even if the target does not read. A frontend calls leave after carry and
	// after its last call of recv.
	leave()
	// drop ends a link for which the caller has not called carry.
	drop()
}

// maxAttempts limits the number of agents that one dial tries.
const maxAttempts = 3

type failure struct {
	reason string // value of the label "reason" of upstream's metric dial_failure_count
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Values of the metric label "reason". Upstream's server uses most of these values.
const (
	reasonNoAgent       = "no_agent"
	reasonErrorResponse = "error_response"
	reasonAgentLost     = "backend_close"
	reasonTimeout       = "backend_dial_timeout"
	reasonFrontend      = "frontend_close"
	reasonInvalid       = "invalid_request"
)

var (
	errAgentLost = errors.New("the agent disconnected")
	errNoAgent   = errors.New("no network proxy agent is connected, so no target can be reached: start an agent with 'allinone proxy agent'")
)

// dial connects to the target t through the agent that the strategies choose. If a dial fails and
// another agent may succeed, the method tries the next agent, up to maxAttempts agents. It returns
// within the dial timeout.
func (s *Server) dial(ctx context.Context, t target) (link, *session, error) {
	began := time.Now()
	s.metrics.pending.Inc()
	defer s.metrics.pending.Dec()
	bound, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	var tried []*session
	var last *failure
	for len(tried) < maxAttempts {
		ses := s.chooseSession(t, tried)
		if ses == nil {
			break
		}
		tried = append(tried, ses)
		l, retry, err := ses.dial(bound, t)
		if err == nil {
			s.metrics.dialSeconds.Observe(time.Since(began).Seconds())
			return l, ses, nil
		}
		last = s.explain(ctx, bound, ses, t, err)
		if !retry || bound.Err() != nil {
			break
		}
		s.metrics.retries.Inc()
	}
	if last == nil {
		last = s.noAgent(t)
	}
	s.metrics.dialFailed.WithLabelValues(last.reason).Inc()
	return nil, nil, last
}

func (s *Server) noAgent(t target) *failure {
	if n := len(s.agents.list()); n > 0 {
		return &failure{reasonNoAgent, fmt.Errorf("the strategies %v select none of the %d network proxy agents for %s", s.cfg.Strategies, n, t.host)}
	}
	return &failure{reasonNoAgent, errNoAgent}
}

// explain turns the error of a dial into a failure with a reason and with a
// text for the client.
func (s *Server) explain(ctx, bound context.Context, ses *session, t target, err error) *failure {
	switch {
	case ctx.Err() != nil:
		return &failure{reasonFrontend, fmt.Errorf("the client disconnected during the dial of %s", t.address)}
	case bound.Err() != nil:
		return &failure{reasonTimeout, fmt.Errorf("agent %s did not connect to %s within %s", ses.agentID, t.address, s.cfg.DialTimeout)}
	case errors.Is(err, errAgentLost):
		return &failure{reasonAgentLost, fmt.Errorf("agent %s disconnected during the dial of %s", ses.agentID, t.address)}
	}
	return &failure{reasonErrorResponse, fmt.Errorf("agent %s: %w", ses.agentID, err)}
}

// dial asks the agent for a connection. After a failed dial, the boolean result reports whether
// another agent may succeed.
func (s *session) dial(ctx context.Context, t target) (l link, retry bool, err error) {
	s.load.Add(1)
	defer func() {
		if err != nil {
			s.load.Add(-1)
		}
	}()
	random, d, err := s.expect()
	if err != nil {
		return nil, true, err
	}
	if err := s.ask(ctx, wire.DialRequest(random, t.protocol, t.address)); err != nil {
		s.forget(random, d)
		return nil, s.ctx.Err() != nil, err
	}
	select {
	case a := <-d.answer:
		return a.link, a.cause.Retry() || errors.Is(a.err, errAgentLost), a.err
	case <-ctx.Done():
		s.forget(random, d)
		return nil, false, ctx.Err()
	}
}

// ask queues a packet for the agent. It returns an error if ctx or the session
// ends before the queue has space.
func (s *session) ask(ctx context.Context, p *wire.Packet) error {
	if s.out.Offer(p) {
		return nil
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	unbind := context.AfterFunc(s.ctx, cancel) //nolint:contextcheck // the end of either context ends the wait
	defer unbind()
	err := s.out.Send(both, p)
	if err != nil && s.ctx.Err() != nil {
		return errAgentLost
	}
	return err
}

// expect registers a pending dial with a number that is unique in the session.
func (s *session) expect() (int64, *pendingDial, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, nil, errAgentLost
	}
	for {
		random := rand.Int64() //nolint:gosec // a number, not a secret: the session has a secret
		if random != 0 && s.dials[random] == nil {
			d := &pendingDial{make(chan dialAnswer, 1)}
			s.dials[random] = d
			return random, d, nil
		}
	}
}

// claim removes and returns a pending dial, so that the dial gets only one
// answer.
func (s *session) claim(random int64) *pendingDial {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dials[random]
	delete(s.dials, random)
	return d
}

// forget removes a pending dial and cancels it at the agent. If the agent has already answered with
// a link, the method drops this link.
func (s *session) forget(random int64, d *pendingDial) {
	if s.claim(random) != nil {
		s.out.Post(wire.DialClose(random))
		return
	}
	if a := <-d.answer; a.link != nil {
		a.link.drop()
	}
}

// handleDialRsp handles an agent's DIAL_RSP packet. The packet reports a failed
// dial. In upstream's protocol, the packet can also report a new connection.
func (s *session) handleDialRsp(p *wire.Packet) {
	d := s.claim(p.Random)
	switch {
	case d == nil && p.Error == "" && p.ID != 0 && s.secret == "":
		s.out.Post(wire.CloseRequest(p.ID)) // close the connection, because the client no longer waits for it
	case d == nil:
	case p.Error != "" && s.secret != "":
		cause, why := wire.CutCause(p.Error)
		d.answer <- dialAnswer{cause: cause, err: errors.New(why)}
	case p.Error != "":
		d.answer <- dialAnswer{err: errors.New(p.Error)}
	case p.ID == 0 || s.secret != "":
		d.answer <- dialAnswer{err: errors.New("the answer to the dial contains no connection")}
	default:
		l, err := s.newPlainLink(p.ID)
		d.answer <- dialAnswer{link: l, err: err}
	}
}
