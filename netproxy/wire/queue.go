package wire

import (
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// ErrSlow is why a Queue was closed: its reader held up everybody else.
var ErrSlow = errors.New("its reader does not keep up, and upstream's protocol has no way to slow down one connection alone")

// overhead is what an item counts beside its bytes, so that empty datagrams are
// bounded too.
const overhead = 128

// Queue stands between a stream that carries many connections and the reader
// of one of them. It holds at most Limit bytes. When it is full, Push waits,
// and with it everybody else on the stream; but only for Grace, and only if the
// reader takes half of the queue in that time. One who does not is cut off.
type Queue struct {
	limit int
	grace time.Duration

	mu     sync.Mutex
	items  []mem.BufferSlice
	bytes  int
	taken  uint64 // as bytes counts, ever
	closed error  // io.EOF: what is queued is still read; others: it is not
	more   chan struct{}
	room   chan struct{}
}

// NewQueue makes a Queue; Close it, or what it holds is not given back.
func NewQueue(limit int, grace time.Duration) *Queue {
	return &Queue{limit: limit, grace: grace, more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// Push adds data, which it takes over. It fails if the queue is closed or has
// just been: with ErrSlow if the reader is too slow.
func (q *Queue) Push(data mem.BufferSlice) error {
	ok, err := q.offer(data)
	if ok || err != nil {
		return err
	}
	grace := time.NewTimer(q.grace)
	defer grace.Stop()
	before := q.sofar()
	for {
		select {
		case <-q.room:
		case <-grace.C:
			if now := q.sofar(); now-before >= uint64(q.limit/2) {
				before = now
				grace.Reset(q.grace)
				continue
			}
			q.Close(ErrSlow)
		}
		if ok, err := q.offer(data); ok || err != nil {
			return err
		}
	}
}

// offer adds data if there is room, and frees it if there never will be.
func (q *Queue) offer(data mem.BufferSlice) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		data.Free()
		return false, q.closed
	}
	if q.bytes >= q.limit {
		return false, nil
	}
	q.items = append(q.items, data)
	q.bytes += data.Len() + overhead
	ring(q.more)
	return true, nil
}

func (q *Queue) sofar() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken
}

// Pop waits for data. After Close it returns what Close was told: after
// io.EOF, when everything has been read.
func (q *Queue) Pop() (mem.BufferSlice, error) {
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			data := q.items[0]
			q.items[0] = nil
			q.items = q.items[1:]
			n := data.Len() + overhead
			q.bytes -= n
			q.taken += uint64(n)
			if len(q.items) == 0 {
				q.items = nil
			}
			q.mu.Unlock()
			ring(q.room)
			return data, nil
		}
		err := q.closed
		q.mu.Unlock()
		if err != nil {
			ring(q.more) // for whoever else asks
			return nil, err
		}
		<-q.more
	}
}

// Close ends the queue. After io.EOF what it holds can still be read; after
// any other reason it is dropped. The first reason stays, but any other
// overtakes io.EOF.
func (q *Queue) Close(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil || errors.Is(q.closed, io.EOF) {
		q.closed = why
	}
	if !errors.Is(q.closed, io.EOF) {
		for _, data := range q.items {
			data.Free()
		}
		q.items, q.bytes = nil, 0
	}
	ring(q.more)
	ring(q.room)
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// Why is what the queue was closed with, nil while it is open.
func (q *Queue) Why() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}
