//go:build !portable

package dataplane

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// entry contains the listening descriptor of a socket. Each event loop has one
// acceptor for this descriptor. For a new client, the kernel wakes one of the
// waiting loops (EPOLLEXCLUSIVE), so the client does not wait for a busy loop.
type entry struct {
	b         *balancer
	socket    *socket
	fd        int
	acceptors []*acceptor
	taken     atomic.Uint64      // number of accepted clients
	failed    chan acceptorError // capacity: one failure of each acceptor
}

// acceptor accepts clients on one loop. Only this loop's goroutine may use the acceptor.
type acceptor struct {
	*entry
	loop *loop
	id   uint64
}

// acceptorError is the report of an acceptor that has stopped because of an error.
type acceptorError struct {
	of    *acceptor
	err   error
	taken uint64 // number of clients accepted before the error
}

// accept serves the connections of a socket until ctx ends. Then it frees the port, resets the
// connections that still wait for a target, and returns. After an error, for example if the process
// has no free file descriptors, accept waits and tries again.
func (f *forwarder) accept(ctx context.Context, b *balancer, s *socket, ln net.Listener) {
	retry := backoff.Backoff{First: 5 * time.Millisecond, Most: time.Second}
	e := &entry{b: b, socket: s, failed: make(chan acceptorError, len(f.loops))}
	var err error
	for e.fd, err = takeOver(ln); err != nil; e.fd, err = takeOver(ln) {
		if ctx.Err() != nil {
			return // the listener is closed
		}
		b.waitRetry(ctx, &retry, "accept connections", ln.Addr(), err)
	}
	defer f.closeEntry(e)
	for _, l := range f.loops {
		a := &acceptor{entry: e, loop: l}
		e.acceptors = append(e.acceptors, a)
		l.enqueue(a.resumeAccept)
	}
	loggedAt := uint64(0) // number of accepted clients at the last logged error
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-e.failed:
			if t.taken > loggedAt {
				loggedAt = t.taken
				retry.Reset()
			}
			b.waitRetry(ctx, &retry, "accept connections", ln.Addr(), t.err)
			t.of.loop.enqueue(t.of.resumeAccept)
			for range len(e.failed) { // if one acceptor lacks descriptors, all acceptors lack them
				t := <-e.failed
				loggedAt = max(loggedAt, t.taken)
				t.of.loop.enqueue(t.of.resumeAccept)
			}
		}
	}
}

// takeOver returns a copy of the listener's descriptor and closes the listener. The copy keeps
// the port open. If the listener stayed open, the Go runtime's poller would also wake up for each
// client.
func takeOver(ln net.Listener) (fd int, err error) {
	raw, err := ln.(syscall.Conn).SyscallConn() // every listener of package net is a syscall.Conn
	if err != nil {
		return -1, err
	}
	cerr := raw.Control(func(of uintptr) {
		// Accepted connections inherit this option.
		err = unix.SetsockoptInt(int(of), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if err == nil {
			fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0)
		}
	})
	if err = errors.Join(cerr, err); err != nil {
		return -1, err
	}
	_ = ln.Close() // fd keeps the port open
	return fd, nil
}

// closeEntry frees the port. Then it ends the connections of e that still wait for a target.
func (f *forwarder) closeEntry(e *entry) {
	for _, a := range e.acceptors {
		a.loop.runInLoop(a.forget)
	}
	_ = unix.Close(e.fd)
	for _, l := range f.loops {
		l.runInLoop(func() {
			for _, w := range l.watched {
				if w, ok := w.(*endpoint); ok {
					w.conn.endWaiting(e.socket)
				}
			}
		})
	}
}

// resumeAccept makes the loop accept clients, at the start and after an error.
func (a *acceptor) resumeAccept() {
	var err error
	if a.id, err = a.loop.watch(a.fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE, a); err != nil {
		a.fail(err)
	}
}

// fail makes the loop ignore clients until the next call of resumeAccept, and reports the error.
func (a *acceptor) fail(err error) {
	a.forget()
	a.failed <- acceptorError{a, err, a.taken.Load()} // never blocks: at most one failure of each acceptor is in the channel
}

func (a *acceptor) forget() {
	if a.id != 0 {
		_ = unix.EpollCtl(a.loop.epoll, unix.EPOLL_CTL_DEL, a.fd, nil)
		delete(a.loop.watched, a.id)
		a.id = 0
	}
}

// checkDeadline implements descriptorOwner. An acceptor has no deadline.
func (a *acceptor) checkDeadline(time.Duration) time.Duration { return never }

// handleEvents accepts one client. If more clients wait, epoll reports the descriptor again.
func (a *acceptor) handleEvents(uint32) {
	fd, sa, err := syscall.Accept4(a.fd, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC) // unix.Accept4 makes an additional system call
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR), errors.Is(err, syscall.ECONNABORTED):
		return // the client has left, or another acceptor has accepted the client
	case err != nil:
		a.fail(err)
		return
	}
	a.taken.Add(1)
	from := addrPortOf(sa)
	first, why := a.b.begin(a.socket.l, from.Addr(), nil)
	if why != "" {
		resetAndClose(fd)
		return
	}
	a.begin(fd, from, first)
}
