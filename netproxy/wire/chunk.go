package wire

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// Kind is the kind of a Chunk.
type Kind byte

const (
	// Data means bytes of the connection. For UDP the bytes are one datagram.
	Data Kind = iota
	// EOF ends one direction. The opposite direction can continue.
	EOF
	// Reset ends both directions immediately. The data of the chunk is a text that contains the
	// reason.
	Reset
)

// Chunk is a message in a stream of the gRPC method Open. After a send, the sender must not use the
// data, because the data belong to the stream. The receiver of a chunk must call Free.
type Chunk struct {
	Kind Kind
	Data mem.BufferSlice
}

// kindBytes contains, for each kind, the first byte of an encoded chunk. All chunks share these
// slices, so no code may change them.
var kindBytes = [...]mem.SliceBuffer{Data: {byte(Data)}, EOF: {byte(EOF)}, Reset: {byte(Reset)}}

func (c *Chunk) marshal() mem.BufferSlice {
	return append(append(make(mem.BufferSlice, 0, 1+len(c.Data)), kindBytes[c.Kind]), c.Data...)
}

func (c *Chunk) unmarshal(raw mem.BufferSlice) error {
	for len(raw) > 0 && raw[0].Len() == 0 {
		raw = raw[1:]
	}
	if len(raw) == 0 {
		return fmt.Errorf("the message has no kind")
	}
	k := Kind(raw[0].ReadOnlyData()[0])
	if int(k) >= len(kindBytes) {
		return fmt.Errorf("the message has the unknown kind %d", k)
	}
	*c = Chunk{k, skip(raw, 1)}
	return nil
}

// Free releases the data.
func (c *Chunk) Free() {
	c.Data.Free()
	c.Data = nil
}

// ResetChunk returns a chunk that ends a connection with a reason. The chunk contains at most the
// first 1024 bytes of the reason.
func ResetChunk(reason string) *Chunk {
	const most = 1 << 10
	return &Chunk{Reset, mem.BufferSlice{mem.SliceBuffer(reason[:min(len(reason), most)])}}
}
