package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// caller is a Proxy stream. Each Proxy stream contains the data of one connection of a gRPC client.
// If the client disconnects during its dial, the stream and the dial end.
type caller struct {
	server *Server
	stream grpc.ServerStream
	conn   *conn

	gone  atomic.Bool   // the client has closed its connection or has disconnected
	spoke chan struct{} // closed when the client sends a packet after the answer
	once  sync.Once

	mu sync.Mutex // SendMsg allows one message at a time
}

func (c *caller) connectTarget(ctx context.Context, ask *wire.Packet) (link, error) {
	dst, err := parseTarget(ask.Protocol, ask.Address)
	if err != nil {
		c.server.metrics.dialFailed.WithLabelValues(reasonInvalid).Inc()
		return nil, err
	}
	l, ses, err := c.server.dial(ctx, dst)
	if err != nil {
		return nil, err
	}
	c.conn = c.server.addConn(GRPC, dst, ses)
	return l, nil
}

// proxy implements the gRPC method Proxy. Each call of Proxy forwards one
// connection of a client.
func (s *Server) proxy(_ any, stream grpc.ServerStream) error {
	s.metrics.connections.WithLabelValues("Proxy").Inc()
	defer s.metrics.connections.WithLabelValues("Proxy").Dec()
	c := &caller{server: s, stream: stream, spoke: make(chan struct{})}
	ask, err := c.awaitDial()
	if err != nil {
		return wire.EndOf(err)
	}
	ctx, span := s.trace(stream.Context(), GRPC, ask.Address)
	l, err := c.connectTarget(ctx, ask)
	endSpan(span, err)
	if err != nil {
		return c.send(wire.DialFailed(ask.Random, err.Error()))
	}
	defer s.removeConn(c.conn)
	if err := c.send(wire.DialResponse(ask.Random, c.conn.id)); err != nil {
		l.drop()
		return err
	}
	// The second argument of carry is abortFn. A link can call abortFn if the client does not read.
	// Here abortFn does nothing, because upstream's gRPC client disconnects itself if its caller
	// does not read a packet within 10 s.
	l.carry(c.toTarget, func() {})
	why := c.fromTarget(l)
	l.leave()
	c.settle()
	return c.send(wire.CloseResponse(c.conn.id, why))
}

// settleTime is the maximum duration of settle.
const settleTime = 20 * time.Millisecond

// settle waits until the client has probably handled the DIAL_RSP. The server
// sends the target's first data only after settle has returned. In
// konnectivity-client v0.34 to v0.37 one goroutine reads packets, and another
// goroutine registers the connection. The client drops data that arrives before
// the registration.
func (c *caller) settle() {
	c.once.Do(func() {
		t := time.NewTimer(settleTime)
		defer t.Stop()
		select {
		case <-c.spoke:
		case <-c.stream.Context().Done():
		case <-t.C:
		}
	})
}

// awaitDial waits for the client's DIAL_REQ. Before the DIAL_REQ arrives, it handles other packets
// and the end of the stream as follows:
//   - After a CLOSE_REQ, it answers with an error and continues to wait.
//   - After a DIAL_CLS, it returns an error.
//   - After the end of the stream, it returns io.EOF.
//   - It ignores all other packets.
func (c *caller) awaitDial() (*wire.Packet, error) {
	for {
		p, err := c.read()
		if err != nil {
			return nil, err
		}
		switch p.Type {
		case client.PacketType_DIAL_REQ:
			return p, nil
		case client.PacketType_CLOSE_REQ:
			if err := c.send(wire.CloseResponse(p.ID, "no connection has this id")); err != nil {
				return nil, err
			}
		case client.PacketType_DIAL_CLS:
			return nil, status.Error(codes.Canceled, "the client cancelled the dial")
		default:
			p.Data.Free()
		}
	}
}

func (c *caller) read() (*wire.Packet, error) {
	var p wire.Packet
	err := c.stream.RecvMsg(&p)
	if err == nil {
		c.server.metrics.packet(fromClient, p.Type)
	}
	return &p, err
}

func (c *caller) send(p *wire.Packet) error {
	c.server.metrics.packet(toClient, p.Type)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream.SendMsg(p)
}

// errGaveUp is the error for a client that closes the proxied connection or
// disconnects from the server.
var errGaveUp = errors.New("the client disconnected")

// toTarget sends the client's data to the target until the client closes the
// connection. It is an argument of link.carry, so it runs on a goroutine of the link.
func (c *caller) toTarget(send func(*wire.Chunk) error) error {
	for first := true; ; first = false {
		p, err := c.read()
		if first {
			close(c.spoke)
		}
		if err != nil {
			c.gone.Store(true)
			return errGaveUp
		}
		switch {
		case p.Type == client.PacketType_DATA && p.ID == c.conn.id:
			c.server.countToward(c.conn, p.Data.Len())
			err = send(&wire.Chunk{Kind: wire.Data, Data: p.Data})
		case p.Type == client.PacketType_CLOSE_REQ && p.ID == c.conn.id, p.Type == client.PacketType_DIAL_CLS:
			c.gone.Store(true)
			return nil
		case p.Type == client.PacketType_CLOSE_REQ:
			err = c.send(wire.CloseResponse(p.ID, "no connection has this id"))
		case p.Type == client.PacketType_DIAL_REQ:
			err = c.send(wire.DialFailed(p.Random, "this stream already has a connection: open a new stream"))
		default:
			p.Data.Free()
		}
		if err != nil {
			return err
		}
	}
}

// fromTarget sends the target's data to the client until the target ends the
// connection. It returns the reason of the end, or "" after a normal end. The
// protocol has no half-close, so the end of the target's data ends the
// connection.
func (c *caller) fromTarget(l link) string {
	for {
		var chunk wire.Chunk
		err := l.recv(&chunk)
		switch {
		case errors.Is(err, io.EOF), err != nil && c.gone.Load():
			return ""
		case err != nil:
			return c.server.failureText(c.conn, err)
		}
		switch chunk.Kind {
		case wire.Data:
			if chunk.Data.Len() == 0 { // agents send empty chunks to check whether the client is connected; do not forward these chunks, because a client reads an empty packet as EOF
				chunk.Free()
				if c.stream.Context().Err() != nil {
					return "" // toTarget cannot detect this end, because the target does not read
				}
				continue
			}
			c.settle()
			c.server.countBack(c.conn, chunk.Data.Len())
			if err := c.send(wire.DataPacket(c.conn.id, chunk.Data)); err != nil {
				return ""
			}
		case wire.EOF:
			return ""
		case wire.Reset:
			why := string(chunk.Data.Materialize())
			chunk.Free()
			return why
		}
	}
}

// failureText returns the reason for the failure of a link, as text for the client.
func (s *Server) failureText(c *conn, err error) string {
	if c.session.ctx.Err() != nil || status.Code(err) == codes.Canceled || status.Code(err) == codes.Unavailable {
		return "agent " + c.session.agentID + " disconnected, which ended this connection"
	}
	return err.Error()
}
