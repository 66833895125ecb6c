package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// listener is one port of a balancer.
type listener struct {
	protocol cloudsim.Protocol
	ip       string
	port     int
	cancel   context.CancelFunc
	closed   chan struct{} // closed when the port is free

	// Behind the balancer's mu.
	targetPort int
	queue      []*target // in the order in which they are next
	endpoint   string
	problem    string
}

func newListener(ip string, want cloudsim.Listener) *listener {
	return &listener{
		protocol: want.Protocol, ip: ip, port: want.Port, targetPort: want.TargetPort,
		closed: make(chan struct{}),
	}
}

// isIn reports whether lb still has this listener.
func (l *listener) isIn(lb cloudsim.LoadBalancer) bool {
	return slices.Contains(ipsOf(lb), l.ip) && slices.ContainsFunc(lb.Listeners, func(want cloudsim.Listener) bool {
		return want.Protocol == l.protocol && want.Port == l.port
	})
}

// close frees the port. Connections being dialled are reset, open ones stay.
func (l *listener) close() {
	l.cancel()
	<-l.closed
}

// listen holds l's port until ctx ends. While it cannot have it, it tries
// again, with pauses that grow from 50 ms to 5 s.
func (b *balancer) listen(ctx context.Context, l *listener) {
	again := backoff{first: 50 * time.Millisecond, most: 5 * time.Second}
	last := ""
	for ctx.Err() == nil {
		ln, problem := b.cfg.bind(ctx, l.ip, l.port)
		if ctx.Err() == nil && problem != "" && problem != last {
			b.log.Warn("listener is not where it should be", "listener", hostPort(l.ip, l.port), "reason", problem)
		}
		last = problem
		if ln == nil {
			b.place(l, "", problem)
			again.wait(ctx)
			continue
		}
		b.place(l, ln.Addr().String(), problem)
		b.log.Info("listening", "endpoint", ln.Addr().String())
		closed := make(chan struct{})
		context.AfterFunc(ctx, func() {
			defer close(closed)
			_ = ln.Close() // returns when the port is free; accept may return before
		})
		b.accept(ctx, l, ln)
		<-closed
	}
}

// place notes where l can be reached.
func (b *balancer) place(l *listener, endpoint, problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.endpoint, l.problem = endpoint, problem
	b.news()
}

// accept serves l's connections until ctx ends. It outlives a machine that is
// short of file descriptors.
func (b *balancer) accept(ctx context.Context, l *listener, ln net.Listener) {
	again := backoff{first: 5 * time.Millisecond, most: time.Second}
	for {
		nc, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				reset(nc.(*net.TCPConn))
			}
			return
		case err != nil:
			if again.next == 0 {
				b.log.Warn("cannot accept connections; trying again", "endpoint", ln.Addr().String(), "error", err)
			}
			again.wait(ctx)
			continue
		}
		again.reset()
		client := nc.(*net.TCPConn)
		if !b.admit() {
			b.refuse(client, refusedLimit)
			continue
		}
		b.work.Go(func() {
			defer b.discharge()
			b.serve(ctx, l, client)
		})
	}
}

// bind listens on ip:port, or, where this machine keeps low ports to itself, on
// a high one. Without a listener, the problem says why; with one, it says why
// it is another port.
func (c Config) bind(ctx context.Context, ip string, port int) (ln net.Listener, problem string) {
	if a, err := netip.ParseAddr(ip); err != nil || a.IsUnspecified() {
		// The empty and the unspecified address would mean every address
		// of the machine.
		return nil, fmt.Sprintf("%q is no address to listen on", ip)
	}
	ln, err := c.listen(ctx, "tcp", hostPort(ip, port))
	if err == nil {
		return ln, ""
	}
	if !errors.Is(err, syscall.EACCES) || port >= 1024 {
		return nil, explain(err, ip, port)
	}
	high := port + c.LowPortOffset
	denied := fmt.Sprintf("port %d needs privileges on this machine%s", port, unprivilegedStart())
	if ln, err = c.listen(ctx, "tcp", hostPort(ip, high)); err != nil {
		return nil, fmt.Sprintf("%s, and %d in its place cannot be had: %s", denied, high, explain(err, ip, high))
	}
	return ln, fmt.Sprintf("%s: listening on %d instead", denied, high)
}

// unprivilegedStart quotes the setting that decides which ports are low, where
// there is one.
func unprivilegedStart() string {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (net.ipv4.ip_unprivileged_port_start is %s)", strings.TrimSpace(string(raw)))
}

// explain says why a port cannot be had, and what to do.
func explain(err error, ip string, port int) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("another program listens on %s or on port %d of all addresses; trying again until it is free", hostPort(ip, port), port)
	case errors.Is(err, syscall.EADDRNOTAVAIL) && runtime.GOOS != "linux" && netip.MustParseAddr(ip).IsLoopback():
		return fmt.Sprintf("%s is not an address of this machine: %s answers 127.0.0.1 only until each other loopback address is added (on macOS: sudo ifconfig lo0 alias %s)", ip, runtime.GOOS, ip)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf("%s is not an address of this machine; trying again until it is", ip)
	}
	return fmt.Sprintf("cannot listen on %s: %s", hostPort(ip, port), cause(err))
}

func hostPort(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }

// cause is an error's heart in words: without addresses, which have ports that
// differ each time.
func cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}
