package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/cloudsim-dev/allinone/netproxy/socket"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// accept starts a dial that the server requested.
func (s *session) accept(p *wire.Packet) {
	random, protocol, address := p.Random, p.Protocol, p.Address
	ctx, cancel := context.WithTimeout(s.ctx, s.agent.cfg.DialTimeout)
	if cause, err := s.dials.begin(random, cancel); err != nil {
		cancel()
		s.reportFailedDial(random, cause, err)
		return
	}
	s.work.Go(func() {
		conn, err := s.dial(ctx, protocol, address)
		s.dials.done(random)
		cancel()
		if err != nil {
			s.reportFailedDial(random, causeOf(err), err)
			return
		}
		s.agent.open.Add(1)
		if s.secret == "" {
			defer s.agent.open.Add(-1)
			defer conn.Close()
			s.servePlain(random, conn)
		} else {
			s.openStream(random, conn) //nolint:contextcheck // a tunnel ends with its stream, not with this call
		}
	})
}

func (s *session) dial(ctx context.Context, protocol, address string) (net.Conn, error) {
	if protocol != "tcp" && protocol != "udp" {
		return nil, net.UnknownNetworkError(protocol)
	}
	began := time.Now()
	var d net.Dialer
	if !s.agent.cfg.DialLocal {
		d.Control = refuseLocal
	}
	conn, err := d.DialContext(ctx, protocol, address)
	if ctx.Err() != nil && err == nil {
		conn.Close() // the dial was cancelled or timed out
		return nil, ctx.Err()
	}
	s.agent.metrics.dialed(time.Since(began), err)
	return conn, err
}

var errLocal = errors.New("the agent does not dial loopback, link-local or unspecified addresses unless it runs with --dial-local")

// refuseLocal returns errLocal for loopback, link-local and unspecified addresses. The dialer
// calls refuseLocal for each address of a name before the dialer connects to the address.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := a.Addr().Unmap(); ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsUnspecified() {
		return errLocal
	}
	return nil
}

// reportFailedDial reports a failed dial to the server. If the server is upstream's program, it
// gets the error without the cause.
func (s *session) reportFailedDial(random int64, cause wire.Cause, err error) {
	text := err.Error()
	if s.secret != "" {
		text = cause.Text(text)
	}
	s.post(wire.DialFailed(random, text))
}

func causeOf(err error) wire.Cause {
	var unknown net.UnknownNetworkError
	var addr *net.AddrError
	var dns *net.DNSError
	switch {
	case errors.As(err, &unknown), errors.As(err, &addr), errors.Is(err, errLocal):
		return wire.Invalid
	case errors.Is(err, syscall.ECONNREFUSED):
		return wire.Refused
	case errors.As(err, &dns), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return wire.Unreachable
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return wire.TimedOut
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EADDRNOTAVAIL):
		return wire.Busy
	}
	return wire.Failed
}

// tunnel is a connection to a target. The connection has its own gRPC stream.
type tunnel struct {
	conn   net.Conn
	stream grpc.ClientStream
	m      *agentMetrics

	sending sync.Mutex            // SendMsg allows one message at a time
	cause   atomic.Pointer[error] // first reason why the agent closed conn
	ways    atomic.Int32          // number of directions that are still open
	cancel  context.CancelFunc    // ends stream
	over    func()                // called after both directions have ended
	left    atomic.Bool           // the client has disconnected
	stalled atomic.Bool           // the target has not read since the last call of sendEmpty
}

// openStream opens the stream of a connection and starts a new goroutine for each direction. It
// does not reuse the goroutine of the dial, because the stack of that goroutine has grown during
// the dial. The stack alone would use four times the memory of an idle connection.
func (s *session) openStream(random int64, conn net.Conn) {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(s.ctx,
		wire.KeySession, s.secret, wire.KeyDial, strconv.FormatInt(random, 10)))
	t := &tunnel{conn: conn, m: s.agent.metrics, cancel: cancel}
	s.dials.addTunnel(random, t) // before the call of Open, because a DIAL_CLS can follow at once
	unbind := context.AfterFunc(s.ctx, func() { t.close(context.Cause(s.ctx)) })
	t.over = func() {
		s.dials.removeTunnel(random)
		unbind()
		cancel()
		conn.Close()
		s.agent.open.Add(-1)
	}
	var err error
	t.stream, err = s.cc.NewStream(ctx, &wire.StreamDesc, wire.MethodOpen)
	if err != nil { // the session has ended, or ends now
		t.over()
		return
	}
	t.ways.Store(2)
	s.work.Go(func() { defer t.done(); t.fromTarget() })
	s.work.Go(func() {
		defer t.done()
		err := t.toTarget(s.agent.cfg.StallProbe)
		if err != nil {
			socket.Abort(conn)
		}
		t.close(err)
		cancel()
	})
}

func (t *tunnel) done() {
	if t.ways.Add(-1) == 0 {
		t.over()
	}
}

// fromTarget sends the target's bytes to the server until the target ends the
// connection. Then it calls sendEnd.
func (t *tunnel) fromTarget() {
	r := socket.NewReader(t.conn, socket.Usual)
	for {
		data, err := r.Read()
		if err != nil {
			t.sendEnd(err)
			return
		}
		t.m.fromTarget.Add(float64(data.Len()))
		if t.send(&wire.Chunk{Kind: wire.Data, Data: mem.BufferSlice{data}}) != nil {
			return // the stream has ended, and toTarget handles the end
		}
	}
}

// sendEnd tells the server how the target ended the connection: with EOF or with Reset. It ignores
// errors of the method send. If send fails, the stream has ended, so the server does not need the
// message.
func (t *tunnel) sendEnd(err error) {
	if errors.Is(err, io.EOF) {
		_ = t.send(&wire.Chunk{Kind: wire.EOF})
		return
	}
	if cause := t.cause.Load(); cause != nil && *cause != nil {
		err = *cause
	}
	_ = t.send(wire.ResetChunk(err.Error()))
}

func (t *tunnel) send(c *wire.Chunk) error {
	t.sending.Lock()
	defer t.sending.Unlock()
	return t.stream.SendMsg(c)
}

// errLeft is the error for a client that has disconnected while the target did not read.
var errLeft = errors.New("the client disconnected")

// sendEmpty sends one empty chunk. The agent calls sendEmpty while the target does not read, to
// find out whether the client is still connected. If the client has disconnected, the server ends
// the stream or sends a DIAL_CLS. In both cases, sendEmpty returns an error.
func (t *tunnel) sendEmpty() error {
	t.stalled.Store(true)
	if t.left.Load() {
		return errLeft
	}
	return t.send(&wire.Chunk{Kind: wire.Data})
}

// clientLeft handles a DIAL_CLS. If the target does not read at this time, the tunnel ends at once.
// Otherwise the tunnel ends after the target has read the remaining data, or when the target stops
// reading.
func (t *tunnel) clientLeft() {
	t.left.Store(true)
	if t.stalled.Load() {
		socket.Abort(t.conn)
		t.cancel()
	}
}

// toTarget writes the server's bytes to the target until the stream ends. It returns nil after a
// normal end of the stream.
func (t *tunnel) toTarget(stallProbe time.Duration) error {
	if _, err := t.stream.Header(); err != nil { // after gRPC has received the header, it stores no message for a retry
		return err
	}
	w := socket.NewWriter(t.conn)
	if _, packets := t.conn.(*net.UDPConn); !packets {
		w.OnStall(stallProbe, t.sendEmpty)
	}
	for {
		var c wire.Chunk
		if err := t.stream.RecvMsg(&c); err != nil {
			return wire.EndOf(err)
		}
		var err error
		switch c.Kind {
		case wire.Data:
			t.m.toTarget.Add(float64(c.Data.Len()))
			err = w.Write(c.Data)
			t.stalled.Store(false)
		case wire.EOF:
			err = socket.CloseWrite(t.conn)
		case wire.Reset:
			c.Free()
			return errors.New("reset by the client")
		}
		if err != nil && t.left.Load() {
			return err
		}
		if err != nil {
			t.close(err) // fromTarget then reports the error to the server, and the server ends the stream
			if t.ways.Load() < 2 {
				return err // fromTarget has ended
			}
		}
	}
}

func (t *tunnel) close(cause error) {
	t.cause.CompareAndSwap(nil, &cause)
	t.conn.Close()
}
