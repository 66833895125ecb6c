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

	"github.com/cloudsim-dev/allinone/internal/pause"
)

// entry is where clients of a socket come in: an acceptor in each loop. The
// kernel wakes one that sleeps, so who is busy is not waited for.
type entry struct {
	b         *balancer
	socket    *socket
	fd        int
	acceptors []*acceptor
	taken     atomic.Uint64 // clients
	failed    chan troubles // has room for one of each
}

// acceptor takes clients in. It belongs to its loop.
type acceptor struct {
	*entry
	home *loop
	id   uint64
}

// troubles are why an acceptor takes nobody for now.
type troubles struct {
	of    *acceptor
	err   error
	taken uint64 // clients before
}

// accept serves a socket's connections until ctx ends; its port is free when
// it returns, and connections being dialled are reset. It outlives a machine
// that is short of file descriptors.
func (f *forwarder) accept(ctx context.Context, b *balancer, s *socket, ln net.Listener) {
	again := pause.Backoff{First: 5 * time.Millisecond, Most: time.Second}
	e := &entry{b: b, socket: s, failed: make(chan troubles, len(f.loops))}
	var err error
	for e.fd, err = takeOver(ln); err != nil; e.fd, err = takeOver(ln) {
		if ctx.Err() != nil {
			return // it is closed
		}
		b.rest(ctx, &again, "accept connections", ln.Addr(), err)
	}
	defer f.leave(e)
	for _, l := range f.loops {
		a := &acceptor{entry: e, home: l}
		e.acceptors = append(e.acceptors, a)
		l.do(a.open)
	}
	told := uint64(0) // clients before the failure that was told of
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-e.failed:
			if t.taken > told {
				told = t.taken
				again.Reset()
			}
			b.rest(ctx, &again, "accept connections", ln.Addr(), t.err)
			t.of.home.do(t.of.open)
			for range len(e.failed) { // what one is short of, all are
				t := <-e.failed
				told = max(told, t.taken)
				t.of.home.do(t.of.open)
			}
		}
	}
}

// takeOver makes a listener a descriptor of ours alone: the runtime, which
// would wake up for each of its clients too, no longer waits for it.
func takeOver(ln net.Listener) (fd int, err error) {
	raw, err := ln.(syscall.Conn).SyscallConn() // as every listener of package net
	if err != nil {
		return -1, err
	}
	cerr := raw.Control(func(of uintptr) {
		// Whom it accepts has the same.
		err = unix.SetsockoptInt(int(of), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if err == nil {
			fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0)
		}
	})
	if err = errors.Join(cerr, err); err != nil {
		return -1, err
	}
	_ = ln.Close() // the port stays with fd
	return fd, nil
}

// leave frees the port, and then ends what its clients still wait for.
func (f *forwarder) leave(e *entry) {
	for _, a := range e.acceptors {
		a.home.ask(a.forget)
	}
	_ = unix.Close(e.fd)
	for _, l := range f.loops {
		l.ask(func() {
			for _, w := range l.watched {
				if w, ok := w.(*side); ok {
					w.conn.forsake(e.socket)
				}
			}
		})
	}
}

// open waits for clients.
func (a *acceptor) open() {
	var err error
	if a.id, err = a.home.watch(a.fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE, a); err != nil {
		a.fail(err)
	}
}

// fail waits for clients no longer, until open.
func (a *acceptor) fail(err error) {
	a.forget()
	a.failed <- troubles{a, err, a.taken.Load()} // there is room: it is open once for each failure
}

func (a *acceptor) forget() {
	if a.id != 0 {
		_ = unix.EpollCtl(a.home.epoll, unix.EPOLL_CTL_DEL, a.fd, nil)
		delete(a.home.watched, a.id)
		a.id = 0
	}
}

// look finds nothing: a port has no deadline.
func (a *acceptor) look(time.Duration) time.Duration { return never }

// ready takes one client in; epoll tells of the others again.
func (a *acceptor) ready(uint32) {
	fd, sa, err := syscall.Accept4(a.fd, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC) // unix.Accept4 makes one call more
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR), errors.Is(err, syscall.ECONNABORTED):
		return // whoever was there is gone
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
