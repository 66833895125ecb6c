package wire

import (
	"errors"
	"io"

	"google.golang.org/grpc/grpclog"
)

// QuietGRPC stops gRPC from writing to stderr by itself: what matters comes as
// an error and is logged once. It sets a global and may not run beside gRPC.
func QuietGRPC() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// Sizes of gRPC's windows and buffers at both ends.
const (
	// StreamWindow bounds what waits in memory for a reader that stands still.
	StreamWindow = 1 << 20
	// ConnWindow is given back as bytes arrive, read or not. So it bounds only the
	// bytes on the way.
	ConnWindow = 16 << 20
	// MaxStreams bounds the connections through one agent.
	MaxStreams = 100_000
	// WriteBuffer is for the connection between server and agent, which all
	// tunnelled connections share.
	WriteBuffer = 256 << 10
	// FrontBuffer is for the connection of a gRPC client, which carries one
	// tunnelled connection. gRPC holds a write buffer only while it writes, and a
	// read buffer of a socket without TLS only while it has data.
	FrontBuffer = 64 << 10
	// ReadBuffer is small: gRPC reads most of a frame past it, without a copy.
	ReadBuffer = 4 << 10
)

// EndOf is the error of a stream's last receive, nil for an end without one.
func EndOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
