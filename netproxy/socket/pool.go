package socket

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// Pool holds the buffers of sockets and of gRPC frames. Unlike gRPC's own pool,
// Pool does not clear its buffers. After a read into a buffer, the
// reading code shortens the buffer to the new bytes. So no caller sees old bytes.
var Pool mem.BufferPool = newPool(1<<10, 4<<10, 16<<10, 64<<10, 128<<10, 256<<10)

type pool struct {
	sizes []int
	tiers []sync.Pool // of *[]byte
}

func newPool(sizes ...int) *pool {
	p := &pool{sizes: sizes, tiers: make([]sync.Pool, len(sizes))}
	for i, size := range sizes {
		p.tiers[i].New = func() any {
			b := make([]byte, size)
			return &b
		}
	}
	return p
}

// Get returns a buffer of length n with arbitrary contents.
func (p *pool) Get(n int) *[]byte {
	for i, size := range p.sizes {
		if n <= size {
			b := p.tiers[i].Get().(*[]byte)
			*b = (*b)[:n]
			return b
		}
	}
	b := make([]byte, n)
	return &b
}

func (p *pool) Put(b *[]byte) {
	for i, size := range p.sizes {
		if cap(*b) == size {
			p.tiers[i].Put(b)
			return
		}
	}
}
