package h2

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

const (
	// large is how much is read into one buffer: a few of TLS's records, so that
	// a message is in few pieces.
	large = 64 << 10
	// small is for who has not much to say, and must be given a buffer before.
	small = 4 << 10
	// record is the most that TLS gives at once: with less room, what is left of
	// it is another read.
	record = 16 << 10
	// littlePiece is copied beside others of its message, and what is less than a
	// part of minPart of its chunk into a buffer of its own: it would hold the
	// chunk for as long as it waits.
	littlePiece = 1 << 10
	minPart     = 8
)

// chunk is a buffer that a connection reads into, and the pool of the pieces
// that are cut out of it: it goes back when the last of them does.
type chunk struct {
	from mem.BufferPool
	buf  *[]byte
	refs atomic.Int32
	end  int // what was read
}

func newChunk(from mem.BufferPool, size int) *chunk {
	k := &chunk{from: from, buf: from.Get(size)}
	k.refs.Store(1)
	return k
}

// room is where the next read may write, nil if too little is left.
func (k *chunk) room() []byte {
	if k.refs.Load() == 1 {
		k.end = 0 // nobody holds a piece of it
	}
	if len(*k.buf)-k.end < min(record, len(*k.buf)) {
		return nil
	}
	return (*k.buf)[k.end:]
}

// piece is p, a part of the chunk.
func (k *chunk) piece(p []byte) mem.Buffer {
	if mem.IsBelowBufferPoolingThreshold(len(p)) || len(p) < len(*k.buf)/minPart {
		return mem.Copy(p, k.from)
	}
	k.refs.Add(1)
	p = p[:len(p):len(p)]
	return mem.NewBuffer(&p, k)
}

// Get is for mem.BufferPool only.
func (k *chunk) Get(n int) *[]byte { return k.from.Get(n) }

// Put takes a piece back, or the reader's own hold.
func (k *chunk) Put(*[]byte) {
	if k.refs.Add(-1) == 0 {
		k.from.Put(k.buf)
	}
}
