package wire

import (
	"errors"
	"io"

	"google.golang.org/grpc/grpclog"
)

// QuietGRPC disables gRPC's own log on stderr. gRPC also returns important errors to its callers,
// which log them. QuietGRPC sets a global variable without a lock, so no other gRPC function may
// run at the same time.
func QuietGRPC() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// Sizes of gRPC's windows and buffers in the client and in the server.
const (
	// StreamWindow is the window of a stream. If the reader of the stream stops, at most
	// StreamWindow bytes wait in the buffers of the stream.
	StreamWindow = 1 << 20
	// ConnWindow is the window of the whole connection. gRPC restores this window when
	// bytes arrive, before the receiver reads the bytes. So ConnWindow limits only the
	// bytes in transit.
	ConnWindow = 16 << 20
	// MaxStreams limits the connections through one agent.
	MaxStreams = 100_000
	// WriteBuffer is the size of the write buffer for the connection between server and agent. All
	// tunneled connections between this server and this agent share the buffer.
	WriteBuffer = 256 << 10
	// FrontBuffer is the size of the write buffer for the connection of a gRPC client. Without TLS,
	// FrontBuffer is also the size of the read buffer. gRPC holds these buffers only while it moves
	// data, so an idle connection needs no memory for them. With TLS, gRPC holds the read buffer
	// all the time, so the server uses the smaller ReadBuffer.
	FrontBuffer = 64 << 10
	// ReadBuffer is the size of a connection's read buffer. It is small, because gRPC reads most of
	// a frame directly, without a copy.
	ReadBuffer = 4 << 10
)

// EndOf returns nil if err is io.EOF, because io.EOF is the normal end of a stream. Otherwise it
// returns err.
func EndOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
