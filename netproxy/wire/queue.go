package wire

import (
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// ErrSlow means that Push has closed a Queue, because the reader of the Queue
// blocked other connections.
var ErrSlow = errors.New("the reader is too slow, and the protocol of apiserver-network-proxy cannot slow down a single connection")

// overhead is a size that the queue adds to the size of each item. Without overhead, the queue
// would accept any number of empty datagrams.
const overhead = 128

// Queue is a buffer between a stream with many connections and the reader of one connection. The
// Queue accepts data while it holds fewer bytes than its limit. When the Queue is full, Push waits,
// and so all connections of the stream wait. If Push has waited for the grace period, it checks how
// much the reader took during this wait. If the reader took at least half of the limit, Push waits
// again. Otherwise Push closes the Queue with the error ErrSlow.
type Queue struct {
	limit int
	grace time.Duration

	mu     sync.Mutex
	items  []mem.BufferSlice
	bytes  int
	taken  uint64 // total size of the items that Pop has returned
	closed error  // io.EOF: Pop still returns the queued items; any other error: Close has dropped them
	more   chan struct{}
	freed  chan struct{}
}

// NewQueue makes a Queue. A call of Close ends the waits of Push and Pop.
func NewQueue(limit int, grace time.Duration) *Queue {
	return &Queue{limit: limit, grace: grace, more: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

// Push adds data to the queue. The data then belong to the queue. Push returns an error if the
// queue is closed. It returns ErrSlow if the reader is too slow.
func (q *Queue) Push(data mem.BufferSlice) error {
	ok, err := q.offer(data)
	if ok || err != nil {
		return err
	}
	grace := time.NewTimer(q.grace)
	defer grace.Stop()
	before := q.takenSoFar()
	for {
		select {
		case <-q.freed:
		case <-grace.C:
			if now := q.takenSoFar(); now-before >= uint64(q.limit/2) {
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

// offer adds data if there is space. If the queue is closed, offer frees data and returns the error
// with which the queue was closed.
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
	notify(q.more)
	return true, nil
}

func (q *Queue) takenSoFar() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken
}

// Pop waits for data and returns the data. After a call of Close, Pop returns the error of this
// call. If this error is io.EOF, Pop first returns the queued data.
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
			notify(q.freed)
			return data, nil
		}
		err := q.closed
		q.mu.Unlock()
		if err != nil {
			notify(q.more) // wakes other calls of Pop
			return nil, err
		}
		<-q.more
	}
}

// Close ends the queue with an error. After io.EOF, Pop still returns the
// queued data. After any other error, Close drops the queued data. A later call
// of Close replaces the error io.EOF, but no other error.
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
	notify(q.more)
	notify(q.freed)
}

func notify(changed chan struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// Why returns the error with which the queue was closed. It returns nil while the queue is open.
func (q *Queue) Why() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}
