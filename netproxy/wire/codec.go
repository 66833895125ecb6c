package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// Codec makes gRPC read and write Packets and Chunks, and nothing else. It is
// protobuf on the wire as far as upstream defines it, and so has its name.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name is that of gRPC's own codec: the content type does not change.
func (Codec) Name() string { return "proto" }

// Marshal takes over the data of v.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *Chunk:
		return m.marshal(), nil
	case *Packet:
		return m.marshal()
	}
	return nil, fmt.Errorf("cannot send a %T", v)
}

// Unmarshal gives v references to data.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *Chunk:
		return m.unmarshal(data)
	case *Packet:
		return m.unmarshal(data)
	}
	return fmt.Errorf("cannot receive a %T", v)
}
