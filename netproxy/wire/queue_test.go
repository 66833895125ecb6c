package wire

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/mem"
)

func block(n int) mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(make([]byte, n))} }

// If the reader of the queue reads nothing, the queue closes after the grace period, and not
// earlier.
func TestQueueCutsStalledReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1000, time.Second)
		began := time.Now()
		var err error
		for err == nil {
			err = q.Push(block(400))
		}
		if !errors.Is(err, ErrSlow) || time.Since(began) != time.Second {
			t.Errorf("got %v after %s, want ErrSlow after 1s", err, time.Since(began))
		}
		if _, err := q.Pop(); !errors.Is(err, ErrSlow) {
			t.Errorf("Pop returned %v, want ErrSlow", err)
		}
	})
}

// The queue stays open if a slow reader reads at least half of the queue's size limit within the
// grace period.
func TestQueueKeepsActiveReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1000, time.Second)
		read := make(chan int)
		go func() {
			n := 0
			for {
				if _, err := q.Pop(); err != nil {
					read <- n
					return
				}
				n++
				time.Sleep(400 * time.Millisecond)
			}
		}()
		for range 50 {
			if err := q.Push(block(400)); err != nil {
				t.Fatal(err)
			}
		}
		q.Close(io.EOF)
		if n := <-read; n != 50 {
			t.Errorf("got %d blocks, want 50", n)
		}
	})
}

// Empty datagrams also count toward the limit.
func TestQueueBoundsEmptyItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1000, time.Second)
		n := 0
		for ; n < 1000 && q.Push(nil) == nil; n++ {
		}
		if n >= 1000 {
			t.Error("the queue accepted 1000 empty items, want a limit")
		}
	})
}
