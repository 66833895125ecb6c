package server

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// plainLink is a link in upstream's protocol. All plain links of a session share the Connect
// stream.
type plainLink struct {
	session *session
	id      int64 // id that the agent gave the connection
	queue   *wire.Queue
	cut     atomic.Pointer[func()] // function that ends the client's connection
}

var errDuplicateID = errors.New("the agent used one id for two connections")

func (s *session) newPlainLink(id int64) (link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errAgentLost
	}
	if s.plain[id] != nil {
		return nil, errDuplicateID
	}
	l := &plainLink{session: s, id: id, queue: wire.NewQueue(s.server.cfg.QueueBytes, s.server.cfg.StallGrace)}
	s.plain[id] = l
	return l, nil
}

func (s *session) plainLink(id int64) *plainLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plain[id]
}

func (s *session) removePlain(id int64) *plainLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.plain[id]
	delete(s.plain, id)
	return l
}

// deliver queues data for the frontend. It cuts the link if the client is too slow.
func (s *session) deliver(p *wire.Packet) {
	l := s.plainLink(p.ID)
	if l == nil {
		p.Data.Free() // the server has closed this connection
		return
	}
	if errors.Is(l.queue.Push(p.Data), wire.ErrSlow) {
		s.server.metrics.cut.Inc()
		l.drop()
		if cut := l.cut.Load(); cut != nil {
			(*cut)()
		}
		s.server.log.Warn("closed a slow connection, because it blocked other connections", "agent", s.agentID, "connection", p.ID, "because", wire.ErrSlow)
	}
}

// closedByAgent ends a link. If the agent reports no error, the client still gets the data that
// the agent sent before the end. After an error, the queue drops this data.
func (s *session) closedByAgent(p *wire.Packet) {
	if l := s.removePlain(p.ID); l != nil {
		if p.Error != "" {
			l.queue.Close(errors.New(p.Error))
		}
		l.queue.Close(io.EOF)
	}
}

// recv returns the data from the queue. If the agent closes the connection without an error, the
// client still gets the queued data, and then recv returns io.EOF. This io.EOF ends both directions
// of the connection, because upstream's agent never closes only one direction.
func (l *plainLink) recv(c *wire.Chunk) error {
	data, err := l.queue.Pop()
	*c = wire.Chunk{Kind: wire.Data, Data: data}
	return err
}

func (l *plainLink) carry(uploadFn func(func(*wire.Chunk) error) error, abortFn func()) {
	l.cut.Store(&abortFn)
	l.session.server.readers.Go(func() {
		_ = uploadFn(l.send) // ignore the error, because upstream's protocol cannot send a reason to the agent
		if l.session.removePlain(l.id) != nil {
			// Send keeps the order of packets, so the agent gets the CLOSE_REQ after the
			// client's data. An error of Send means that the session has ended. In this case the
			// agent closes the connection itself.
			_ = l.session.out.Send(l.session.ctx, wire.CloseRequest(l.id))
		}
		l.queue.Close(io.EOF)
	})
}

func (l *plainLink) send(c *wire.Chunk) error {
	if c.Kind == wire.EOF {
		return io.EOF // upstream's agents cannot close only one direction
	}
	return l.session.out.Send(l.session.ctx, wire.DataPacket(l.id, c.Data))
}

// leave does nothing, because carry has started a goroutine that sends a CLOSE_REQ when the
// client's connection ends.
func (l *plainLink) leave() {}

// drop asks the agent to close the connection. If the agent has closed the connection already, the
// method does nothing. The agent can get the close request before data that Send has queued. The
// agent then drops this data.
func (l *plainLink) drop() {
	if l.session.removePlain(l.id) != nil {
		l.session.out.Post(wire.CloseRequest(l.id))
	}
}
