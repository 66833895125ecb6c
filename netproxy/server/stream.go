package server

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// streamLink is a link with its own gRPC stream.
type streamLink struct {
	stream  grpc.ServerStream
	session *session
	random  int64                                    // number of the dial
	carrier chan func(func(*wire.Chunk) error) error // receives the argument uploadFn of carry; capacity 1; drop closes it
}

// open implements the gRPC method Open. An agent calls Open after it has
// connected to a target. The goroutine of the call sends the client's data to
// the target.
func (s *Server) open(_ any, stream grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	ses := s.agents.withSecret(strings.Join(md.Get(wire.KeySession), ""))
	if ses == nil {
		return status.Error(codes.NotFound, "the session does not exist")
	}
	random, err := strconv.ParseInt(strings.Join(md.Get(wire.KeyDial), ""), 10, 64)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "metadata %s must be the number of a dial", wire.KeyDial)
	}
	d := ses.claim(random)
	if d == nil {
		return status.Error(codes.NotFound, "no client waits for this dial")
	}
	if err := stream.SendHeader(nil); err != nil {
		d.answer <- dialAnswer{err: errAgentLost}
		return err
	}
	l := &streamLink{stream, ses, random, make(chan func(func(*wire.Chunk) error) error, 1)}
	d.answer <- dialAnswer{link: l}
	select {
	case up, ok := <-l.carrier:
		if !ok {
			return status.Error(codes.Canceled, "the client of this dial disconnected")
		}
		if err := up(l.send); err != nil {
			return status.Error(codes.Aborted, err.Error())
		}
		return nil
	case <-stream.Context().Done():
		return context.Cause(stream.Context())
	}
}

func (l *streamLink) send(c *wire.Chunk) error { return l.stream.SendMsg(c) }
func (l *streamLink) recv(c *wire.Chunk) error { return l.stream.RecvMsg(c) }
func (l *streamLink) carry(uploadFn func(func(*wire.Chunk) error) error, _ func()) {
	l.carrier <- uploadFn
}

// leave sends DIAL_CLS on the Connect stream, because the link's own stream can be blocked. gRPC
// sends the end of a stream only after all data of the stream. The data waits while the
// target does not read.
func (l *streamLink) leave() { l.session.out.Post(wire.DialClose(l.random)) }
func (l *streamLink) drop()  { close(l.carrier) }
