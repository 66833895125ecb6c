//go:build !portable

package dataplane

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// imbalance limits the uneven distribution of connections over the loops. If a loop has at
	// least this many connections more than the least loaded loop, it passes new connections to the
	// least loaded loop. If there are few connections, forwarding is fastest when each connection
	// stays on the thread that accepted it. If there are many connections, forwarding is fastest
	// when all processors share the connections.
	imbalance = 32
	// tick is the usual minimum time between two checks of all deadlines. So the loop may handle a
	// deadline up to one tick late. If an idle timeout has changed or is shorter than tick,
	// scheduleCheck requests an earlier check.
	tick  = 50 * time.Millisecond
	never = time.Duration(math.MaxInt64)
)

// forwarder forwards the connections of all load balancers of a plane. It has one loop for each
// processor. A connection stays on the same loop until it ends.
//
// A goroutine for each direction would be simpler. But waking a goroutine costs more processor time
// than forwarding a few bytes. See docs/decisions/0045.
type forwarder struct {
	loops []*loop
	work  sync.WaitGroup
}

// newForwarder starts the loops. The caller must close the forwarder.
func newForwarder() (*forwarder, error) {
	f := &forwarder{}
	for range runtime.GOMAXPROCS(0) {
		l, err := newLoop(f)
		if err != nil {
			f.close()
			return nil, fmt.Errorf("creating an event loop for connections: %w", err)
		}
		f.loops = append(f.loops, l)
		f.work.Go(l.run)
	}
	return f, nil
}

// close ends the loops and waits for them. The caller must close all listeners and connections
// first.
func (f *forwarder) close() {
	for _, l := range f.loops {
		l.enqueue(func() { l.ended = true })
	}
	f.work.Wait()
}

// checkDeadlines makes all loops check all deadlines. The balancer calls it after an idle timeout
// has changed.
func (f *forwarder) checkDeadlines() {
	for _, l := range f.loops {
		l.enqueue(func() { l.scheduleCheck(l.now) })
	}
}

// leastLoaded chooses the loop for a new connection that acceptLoop has accepted. It compares the
// numbers of connections of acceptLoop and the least loaded loop. If the difference is smaller than
// the constant imbalance, it returns acceptLoop. Otherwise it returns the least loaded loop.
func (f *forwarder) leastLoaded(acceptLoop *loop) *loop {
	least := acceptLoop
	for _, l := range f.loops {
		if l.open.Load() < least.open.Load() {
			least = l
		}
	}
	if acceptLoop.open.Load()-least.open.Load() < imbalance {
		return acceptLoop
	}
	return least
}

// descriptorOwner handles the events and the deadline of a descriptor that a loop watches. Only
// this loop calls the methods.
type descriptorOwner interface {
	handleEvents(events uint32)
	// checkDeadline handles the deadline of the owner if the deadline has passed. It returns the
	// time of the next check on the clock of the loop. If no check is necessary, it returns the
	// constant never.
	checkDeadline(now time.Duration) time.Duration
}

// loop waits for many sockets and serves the ready sockets, one after the other. It must never call
// a function that blocks. Any goroutine may use the atomic field open and call enqueue. Only the
// loop's goroutine may use the other state of the loop.
type loop struct {
	forwarder *forwarder
	open      atomic.Int64 // connections

	epoll   int
	wake    int // an eventfd; a write wakes the loop
	watched map[uint64]descriptorOwner
	last    uint64 // id of the latest descriptor; wake has the id 0
	busy    []*conn
	next    time.Duration // time of the next check of deadlines
	now     time.Duration // time since startTime, without the time in lost
	lost    time.Duration // time in which the process was stopped
	ended   bool
	buf     []byte // for the bytes of one read; the loop writes or copies these bytes before the next read
	pipes   pipePool

	mu   sync.Mutex
	todo []func()
	rung bool
	deaf bool // the loop has ended
}

func newLoop(f *forwarder) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		_ = unix.Close(wake)
		_ = unix.Close(epoll)
		return nil, err
	}
	return &loop{
		forwarder: f, epoll: epoll, wake: wake, watched: map[uint64]descriptorOwner{}, next: never,
		now: time.Since(startTime), buf: make([]byte, small),
	}, nil
}

// enqueue queues f for the loop's goroutine and returns at once. Any goroutine
// may call enqueue. A loop that has ended ignores f.
func (l *loop) enqueue(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf {
		return
	}
	l.todo = append(l.todo, f)
	if !l.rung {
		l.rung = true
		_, _ = unix.Write(l.wake, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// runInLoop runs f in the goroutine of the loop, and waits until f has returned. If the loop has
// ended, runInLoop never returns.
func (l *loop) runInLoop(f func()) {
	done := make(chan struct{})
	l.enqueue(func() {
		defer close(done)
		f()
	})
	<-done
}

func (l *loop) run() {
	defer l.close()
	events := make([]unix.EpollEvent, 128)
	for !l.ended {
		allowed := l.sleepTime()
		n, err := unix.EpollWait(l.epoll, events, roundUpMillis(allowed))
		if err != nil {
			n = 0 // a signal (EINTR); an open epoll descriptor returns no other error
		}
		l.tick(allowed)
		for _, e := range events[:n] {
			if s := l.watched[number(e)]; s != nil {
				s.handleEvents(e.Events)
			}
		}
		l.runQueued()
		l.continueConns()
		if n < len(events) && l.now >= l.next { // sockets that are ready have priority over deadlines
			l.checkDeadlines()
		}
	}
}

func (l *loop) sleepTime() time.Duration {
	switch {
	case len(l.busy) > 0:
		return 0
	case l.next == never:
		return never
	}
	return max(l.next-l.now, 0)
}

// roundUpMillis rounds d up to whole milliseconds, so that the loop does not wake before d has
// passed. If d is the constant never, the result is -1, and EpollWait waits without a limit.
func roundUpMillis(d time.Duration) int {
	if d == never {
		return -1
	}
	return int(min((d+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
}

// tick updates the loop's clock. The parameter allowed is the longest time for which the loop
// planned to sleep. If the time since the last call of tick is more than one second longer than
// allowed, the process was probably suspended. The clock then does not count the excess time,
// because the loop would otherwise treat all connections as idle and close them.
func (l *loop) tick(allowed time.Duration) {
	now := time.Since(startTime) - l.lost
	if late := now - l.now - min(allowed, now-l.now); late > time.Second {
		l.lost += late
		now -= late
	}
	l.now = now
}

func (l *loop) runQueued() {
	l.mu.Lock()
	todo := l.todo
	if l.rung {
		var n [8]byte
		_, _ = unix.Read(l.wake, n[:])
	}
	l.todo, l.rung = nil, false
	l.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// continueConns continues the connections that had more bytes to move than one quantum allows.
func (l *loop) continueConns() {
	busy := l.busy
	l.busy = nil
	for _, c := range busy {
		c.queued = false
		c.moveBytes()
	}
}

// checkDeadlines checks the deadlines of all watched descriptors. The duration of a call is
// proportional to the number of connections, so the constant tick limits how often the loop calls
// it.
func (l *loop) checkDeadlines() {
	l.next = never
	for _, s := range l.watched {
		l.scheduleCheck(s.checkDeadline(l.now))
	}
	if l.next != never {
		l.next = max(l.next, l.now+tick)
	}
}

func (l *loop) scheduleCheck(checkTime time.Duration) { l.next = min(l.next, checkTime) }

// watch makes the loop wait for events of fd. The loop passes the events to s.
func (l *loop) watch(fd int, events uint32, s descriptorOwner) (id uint64, err error) {
	l.last++
	id = l.last
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, newEpollEvent(id, events)); err != nil {
		return 0, err
	}
	l.watched[id] = s
	return id, nil
}

// newEpollEvent returns an epoll event. Its data is the id of a connection or listener, because the
// loop never reuses an id. The kernel reuses descriptor numbers.
func newEpollEvent(id uint64, events uint32) *unix.EpollEvent {
	return &unix.EpollEvent{Events: events, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))} //nolint:gosec // the two halves of the id
}

func number(e unix.EpollEvent) uint64 {
	return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 //nolint:gosec // the two halves of the id
}

func (l *loop) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
	l.pipes.close()
	_ = unix.Close(l.wake)
	_ = unix.Close(l.epoll)
}
