//go:build !portable

package dataplane

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// While the loop sleeps, the loop's clock advances, but at most by the planned duration of the
// sleep. While the process is stopped, the clock does not advance.
func TestLoopClockSkipsStoppedTime(t *testing.T) {
	const slept = time.Minute
	for _, tc := range []struct {
		name    string
		allowed time.Duration
		passed  time.Duration
	}{
		{"sleep", slept, slept},
		{"sleep until an event", never, slept},
		{"stopped process", 0, 0},
		{"stopped process during a sleep", slept / 4, slept / 4},
	} {
		l := &loop{now: time.Since(startTime) - slept}
		before := l.now
		l.tick(tc.allowed)
		if got := l.now - before; got < tc.passed || got > tc.passed+time.Second {
			t.Errorf("%s: loop clock advanced by %s, want %s", tc.name, got, tc.passed)
		}
		l.tick(0)
		if late := l.now - before - tc.passed; late > time.Second {
			t.Errorf("%s: next tick advanced the loop clock by %s, want less than 1s", tc.name, late)
		}
	}
}

// A free loop accepts a new client while another loop is busy. There is no target, so the loop that
// accepts the client resets the connection. The reset shows that a loop accepted the client.
func TestFreeLoopAcceptsForBusyLoop(t *testing.T) {
	f, err := newForwarder()
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	b := newBalancer(&plane{log: slog.New(slog.DiscardHandler), forwarder: f}, "lb-000001")
	ctx, cancel := context.WithCancel(t.Context())
	var accepting sync.WaitGroup
	accepting.Go(func() { f.accept(ctx, b, &socket{l: newListener(port{})}, ln) })
	defer accepting.Wait()
	defer cancel()
	refused := func() error {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Read(make([]byte, 1))
		return err
	}
	if err := refused(); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("connection with all loops: got error %v, want a reset", err)
	}
	if len(f.loops) == 1 {
		t.Skip("needs more than one processor")
	}
	for i, l := range f.loops {
		busy, free := make(chan struct{}), make(chan struct{})
		l.enqueue(func() { close(busy); <-free })
		<-busy
		if err := refused(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection without loop %d: got error %v, want a reset", i, err)
		}
		close(free)
	}
}

// If there are few connections, each connection stays on the loop that accepted it. If there are
// many connections, the forwarder spreads them over all loops.
func TestLoopsShareConnections(t *testing.T) {
	f := &forwarder{}
	for range 3 {
		l, err := newLoop(f)
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		f.loops = append(f.loops, l)
	}
	acceptLoop := f.loops[0]
	for range 3 * 2 * imbalance {
		f.leastLoaded(acceptLoop).open.Add(1)
	}
	var open []int64
	for _, l := range f.loops {
		open = append(open, l.open.Load())
		if n := l.open.Load(); n < 2*imbalance-imbalance || n > 3*imbalance {
			t.Errorf("loop: got %d of %d connections, want about a third of them", n, 3*2*imbalance)
		}
	}
	if open[0] < imbalance {
		t.Errorf("open connections: got %v, want the first connections in the loop that accepted them", open)
	}
}

// The id of a descriptor is unchanged after its conversion to an epoll event and back.
func TestEventNumbers(t *testing.T) {
	for _, id := range []uint64{0, 1, 1<<31 + 5, 1<<32 - 1, 1 << 32, 1<<63 + 7} {
		if got := number(*newEpollEvent(id, reads)); got != id {
			t.Errorf("event of id %d: got id %d", id, got)
		}
	}
}
