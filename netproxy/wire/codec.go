package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// Codec encodes Packets and Chunks for gRPC, and no other types.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name returns the name of gRPC's own protobuf codec, because Codec encodes Packets as protobuf.
// So messages have the content type of upstream's messages.
func (Codec) Name() string { return "proto" }

// Marshal encodes v. The result takes over the data of v, so the caller must not free these data.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *Chunk:
		return m.marshal(), nil
	case *Packet:
		return m.marshal()
	}
	return nil, fmt.Errorf("cannot send a %T", v)
}

// Unmarshal decodes data. v keeps references to data.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *Chunk:
		return m.unmarshal(data)
	case *Packet:
		return m.unmarshal(data)
	}
	return fmt.Errorf("cannot receive a %T", v)
}
