package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/cloudsim-dev/allinone/netproxy/socket"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// plainConns holds the connections that share the Connect stream, as in upstream's protocol.
type plainConns struct {
	mu   sync.Mutex
	last int64
	open map[int64]*plainConn
}

type plainConn struct {
	id    int64
	conn  net.Conn
	queue *wire.Queue // bytes for the target
}

// flushTime is the maximum time for writing the queued bytes after the client or the target has
// ended the connection. After flushTime, the agent drops the remaining bytes.
const flushTime = 5 * time.Second

func (p *plainConns) add(conn net.Conn, q *wire.Queue) *plainConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	c := &plainConn{p.last, conn, q}
	p.open[c.id] = c
	return c
}

func (p *plainConns) get(id int64) *plainConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[id]
}

func (p *plainConns) remove(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, id)
}

func (p *plainConns) closeAll(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		c.queue.Close(why)
		socket.Abort(c.conn)
	}
}

// deliver queues a packet for its target. If the connection is unknown, the
// method sends an error to the server.
func (p *plainConns) deliver(s *session, pkt *wire.Packet) {
	if pkt.ID == 0 {
		pkt.Data.Free()
		return
	}
	if c := p.get(pkt.ID); c != nil {
		if errors.Is(c.queue.Push(pkt.Data), wire.ErrSlow) {
			s.agent.metrics.cutOff()
			socket.Abort(c.conn)
		}
		return
	}
	pkt.Data.Free()
	s.post(wire.CloseResponse(pkt.ID, "no connection has this id"))
}

// closeRequest handles a CLOSE_REQ: it calls finish for the connection. If the connection is
// unknown, it sends an error to the server.
func (p *plainConns) closeRequest(s *session, id int64) {
	if c := p.get(id); c != nil {
		c.finish()
		return
	}
	s.post(wire.CloseResponse(id, "no connection has this id"))
}

// finish makes writeAll write the queued bytes and then end the connection. The connection ends
// after flushTime at the latest.
func (c *plainConn) finish() {
	_ = c.conn.SetWriteDeadline(time.Now().Add(flushTime)) // an error means that conn is closed already
	c.queue.Close(io.EOF)
}

// servePlain forwards a connection until the connection ends. Then it reports the end to the
// server.
func (s *session) servePlain(random int64, conn net.Conn) {
	q := wire.NewQueue(s.agent.cfg.QueueBytes, s.agent.cfg.StallGrace)
	c := s.plain.add(conn, q)
	defer s.plain.remove(c.id)
	if s.ctx.Err() != nil || s.out.Send(s.ctx, wire.DialResponse(random, c.id)) != nil {
		return // the session has ended
	}
	s.agent.metrics.packet(toServer, wire.DialResponse(0, 0).Type)
	var down sync.WaitGroup
	down.Go(func() {
		err := writeAll(conn, q, s.agent.metrics)
		if err != nil {
			socket.Abort(conn)
		}
		conn.Close() // ends readAll
		q.Close(errors.Join(err, net.ErrClosed))
	})
	err := s.readAll(c.id, conn)
	c.finish()
	down.Wait()
	why := ""
	switch cause := q.Why(); {
	case errors.Is(cause, wire.ErrSlow):
		why = cause.Error()
	case err != nil && !errors.Is(err, net.ErrClosed):
		why = err.Error()
	}
	// If Send returns an error, the session has ended, so the server needs no
	// answer.
	_ = s.out.Send(s.ctx, wire.CloseResponse(c.id, why))
}

func (s *session) readAll(id int64, conn net.Conn) error {
	r := socket.NewReader(conn, socket.Usual)
	for {
		data, err := r.Read()
		if err != nil {
			return wire.EndOf(err)
		}
		s.agent.metrics.fromTarget.Add(float64(data.Len()))
		p := wire.DataPacket(id, mem.BufferSlice{data})
		s.agent.metrics.packet(toServer, p.Type)
		if s.out.Send(s.ctx, p) != nil {
			return context.Cause(s.ctx)
		}
	}
}

func writeAll(conn net.Conn, q *wire.Queue, m *agentMetrics) error {
	w := socket.NewWriter(conn)
	for {
		data, err := q.Pop()
		if err != nil {
			return wire.EndOf(err)
		}
		m.toTarget.Add(float64(data.Len()))
		if err := w.Write(data); err != nil {
			return err
		}
	}
}
