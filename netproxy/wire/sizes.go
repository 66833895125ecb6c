package wire

import (
	"errors"
	"io"

	"google.golang.org/grpc/grpclog"
)

// QuietGRPC stops gRPC from writing to stderr by itself: what matters comes as
// an error and is logged once. It sets a global and may not run beside gRPC.
func QuietGRPC() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) }

// Sizes that both ends give to gRPC, and to h2. A stream window bounds what waits in
// memory for a reader that stands still. The window of the whole connection is
// given back as bytes arrive, read or not, so it bounds nothing but what is
// under way.
const (
	StreamWindow = 1 << 20
	ConnWindow   = 16 << 20 // gRPC's
	// MaxMessage is gRPC's own limit.
	MaxMessage = 4 << 20
	// HeaderTable is HTTP/2's own size.
	HeaderTable = 4 << 10
	// MaxStreams bounds the connections through one agent.
	MaxStreams = 100_000
	// WriteBuffer is gRPC's between server and agent, where all connections share one.
	WriteBuffer = 256 << 10
	// ReadBuffer, gRPC's, is small: most of a frame is read past it, and not copied once
	// more; what TLS has read is in memory already.
	ReadBuffer = 4 << 10
)

// EndOf is the error of a stream's last receive, nil for an end without one.
func EndOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
