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
	// spread is how many connections more than another a loop has before it
	// hands new ones over: few clients are served best without a change of
	// threads, many by all processors.
	spread = 32
	// glance is the time that must pass between two looks at all connections:
	// deadlines are that late at most.
	glance = 50 * time.Millisecond
	never  = time.Duration(math.MaxInt64)
)

// forwarder carries the connections of all load balancers of a plane. It has
// one loop for each processor, and a connection stays with one loop for life.
//
// A goroutine for each direction would be simpler. But waking a goroutine costs
// more than forwarding a few bytes: a short connection takes half as much
// processor time again. See docs/decisions/0045.
type forwarder struct {
	loops []*loop
	work  sync.WaitGroup
}

// newForwarder starts the loops. The caller closes the forwarder.
func newForwarder() (*forwarder, error) {
	f := &forwarder{}
	for range runtime.GOMAXPROCS(0) {
		l, err := newLoop(f)
		if err != nil {
			f.close()
			return nil, fmt.Errorf("waiting for many sockets: %w", err)
		}
		f.loops = append(f.loops, l)
		f.work.Go(l.run)
	}
	return f, nil
}

// close ends the loops and waits for them. The caller has closed all listeners
// and connections before.
func (f *forwarder) close() {
	for _, l := range f.loops {
		l.do(func() { l.ended = true })
	}
	f.work.Wait()
}

// look has deadlines be counted anew, of which some are sooner than they were.
func (f *forwarder) look() {
	for _, l := range f.loops {
		l.do(func() { l.due(l.now) })
	}
}

// laziest is the loop for a connection that home took: home itself, unless it
// has many more than another.
func (f *forwarder) laziest(home *loop) *loop {
	least := home
	for _, l := range f.loops {
		if l.open.Load() < least.open.Load() {
			least = l
		}
	}
	if home.open.Load()-least.open.Load() < spread {
		return home
	}
	return least
}

// watched is who has a descriptor that a loop waits for. Only its loop calls it.
type watched interface {
	// ready tells what happened to it: events of epoll.
	ready(events uint32)
	// look is called when something may be due, and says when to look again.
	look(now time.Duration) time.Duration
}

// loop waits for many sockets and does what there is to do for those that are
// ready, one after the other: nothing that it calls may block. What belongs to
// a loop is touched by its goroutine alone; others ask by do.
type loop struct {
	forwarder *forwarder
	open      atomic.Int64 // connections

	epoll   int
	bell    int // an eventfd that wakes it
	watched map[uint64]watched
	last    uint64 // the number of the latest one; 0 is the bell's
	busy    []*conn
	next    time.Duration // when something is due
	now     time.Duration // since it began, without the time in which it did not run
	lost    time.Duration // that time
	ended   bool
	buf     []byte // for bytes that leave at once
	pipes   pipes

	mu   sync.Mutex
	todo []func()
	rung bool
	deaf bool // it has ended
}

func newLoop(f *forwarder) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, bell, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		_ = unix.Close(bell)
		_ = unix.Close(epoll)
		return nil, err
	}
	return &loop{
		forwarder: f, epoll: epoll, bell: bell, watched: map[uint64]watched{}, next: never,
		now: time.Since(began), buf: make([]byte, small),
	}, nil
}

// do has f called by the loop's goroutine, soon. It may be called by any
// goroutine, and returns at once; a loop that has ended calls nothing.
func (l *loop) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf {
		return
	}
	l.todo = append(l.todo, f)
	if !l.rung {
		l.rung = true
		_, _ = unix.Write(l.bell, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// ask is do that waits until it is done.
func (l *loop) ask(f func()) {
	done := make(chan struct{})
	l.do(func() {
		defer close(done)
		f()
	})
	<-done
}

// run works until somebody ends the loop.
func (l *loop) run() {
	defer l.close()
	events := make([]unix.EpollEvent, 128)
	for !l.ended {
		allowed := l.idle()
		n, err := unix.EpollWait(l.epoll, events, milliseconds(allowed))
		if err != nil {
			n = 0 // a signal: there is no other error for what is open
		}
		l.tick(allowed)
		for _, e := range events[:n] {
			if s := l.watched[number(e)]; s != nil {
				s.ready(e.Events)
			}
		}
		l.answer()
		l.goOn()
		if n < len(events) && l.now >= l.next { // what is ready comes before what is due
			l.look()
		}
	}
}

// idle is for how long the loop may sleep.
func (l *loop) idle() time.Duration {
	switch {
	case len(l.busy) > 0:
		return 0
	case l.next == never:
		return never
	}
	return max(l.next-l.now, 0)
}

// milliseconds rounds up, so that what is due is due when it wakes; -1 is for ever.
func milliseconds(d time.Duration) int {
	if d == never {
		return -1
	}
	return int(min((d+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
}

// tick sets the clock. Time in which a stopped program did not run is not
// silence of its connections.
func (l *loop) tick(allowed time.Duration) {
	now := time.Since(began) - l.lost
	if late := now - l.now - min(allowed, now-l.now); late > time.Second {
		l.lost += late
		now -= late
	}
	l.now = now
}

// answer does what others asked for.
func (l *loop) answer() {
	l.mu.Lock()
	todo := l.todo
	if l.rung {
		var n [8]byte
		_, _ = unix.Read(l.bell, n[:])
	}
	l.todo, l.rung = nil, false
	l.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// goOn gives the connections that had more to do than a turn allows another
// one.
func (l *loop) goOn() {
	busy := l.busy
	l.busy = nil
	for _, c := range busy {
		c.queued = false
		c.run()
	}
}

// look ends what is due. O(connections), and at most once in a glance.
func (l *loop) look() {
	l.next = never
	for _, s := range l.watched {
		l.due(s.look(l.now))
	}
	if l.next != never {
		l.next = max(l.next, l.now+glance)
	}
}

// due has the loop look at all at that time, or before.
func (l *loop) due(at time.Duration) { l.next = min(l.next, at) }

// watch begins to wait for events of fd, and tells s.
func (l *loop) watch(fd int, events uint32, s watched) (id uint64, err error) {
	l.last++
	id = l.last
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, event(id, events)); err != nil {
		return 0, err
	}
	l.watched[id] = s
	return id, nil
}

// event is what epoll keeps of one that is watched: its number, which is never that of
// another, as a descriptor soon is.
func event(id uint64, events uint32) *unix.EpollEvent {
	return &unix.EpollEvent{Events: events, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))} //nolint:gosec // two halves
}

func number(e unix.EpollEvent) uint64 {
	return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 //nolint:gosec // two halves
}

func (l *loop) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
	l.pipes.close()
	_ = unix.Close(l.bell)
	_ = unix.Close(l.epoll)
}
