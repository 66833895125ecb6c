package wire

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// Kind says what a Chunk is.
type Kind byte

const (
	// Data are bytes of the connection; for UDP, one datagram.
	Data Kind = iota
	// EOF ends one direction: the other may go on.
	EOF
	// Reset ends both, at once; the data says why, for people.
	Reset
)

// Chunk is a message of an Open stream. Sending one gives its data away; who
// receives one must Free it.
type Chunk struct {
	Kind Kind
	Data mem.BufferSlice
}

// kinds are the first byte of each kind: never changed, so shared.
var kinds = [...]mem.SliceBuffer{Data: {byte(Data)}, EOF: {byte(EOF)}, Reset: {byte(Reset)}}

func (c *Chunk) marshal() mem.BufferSlice {
	return append(append(make(mem.BufferSlice, 0, 1+len(c.Data)), kinds[c.Kind]), c.Data...)
}

func (c *Chunk) unmarshal(raw mem.BufferSlice) error {
	for len(raw) > 0 && raw[0].Len() == 0 {
		raw = raw[1:]
	}
	if len(raw) == 0 {
		return fmt.Errorf("a message without a kind")
	}
	k := Kind(raw[0].ReadOnlyData()[0])
	if int(k) >= len(kinds) {
		return fmt.Errorf("a message of the unknown kind %d", k)
	}
	*c = Chunk{k, skip(raw, 1)}
	return nil
}

// Free gives the data back.
func (c *Chunk) Free() {
	c.Data.Free()
	c.Data = nil
}

// ResetChunk ends a connection and says why.
func ResetChunk(why string) *Chunk {
	const most = 1 << 10
	return &Chunk{Reset, mem.BufferSlice{mem.SliceBuffer(why[:min(len(why), most)])}}
}
