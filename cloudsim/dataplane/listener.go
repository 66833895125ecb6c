package dataplane

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/pause"
)

// port is what a listener is known by.
type port struct {
	protocol cloudsim.Protocol
	number   int
}

// listener is one port of a balancer, on all of its addresses.
type listener struct {
	port
	idle  atomic.Int64 // the idle timeout, in ns; 0 for none
	proxy atomic.Value // of cloudsim.ProxyProtocol

	// Behind the balancer's mu.
	spec     cloudsim.Listener
	queue    queue
	slots    map[*target]*slot
	open     int // taken in and not yet gone
	accepted uint64
	refused  map[refusal]uint64
}

func newListener(p port) *listener {
	return &listener{port: p, slots: map[*target]*slot{}, refused: map[refusal]uint64{}}
}

// set makes l what its line in the spec says, and tells whether the idle timeout
// is another.
func (l *listener) set(spec cloudsim.Listener, cfg Config) (idleChanged bool) {
	l.spec = spec
	idle := time.Duration(spec.IdleTimeoutSeconds) * time.Second
	switch {
	case idle > 0:
	case l.protocol == cloudsim.UDP:
		idle = cfg.FlowTimeout
	default:
		idle = cfg.IdleTimeout
	}
	l.proxy.Store(spec.ProxyProtocol)
	now := int64(max(idle, 0))
	return l.idle.Swap(now) != now
}

func (l *listener) proxyProtocol() cloudsim.ProxyProtocol {
	return l.proxy.Load().(cloudsim.ProxyProtocol)
}

// limit is how many connections may be open.
func (l *listener) limit(cfg Config) int {
	if l.spec.MaxConnections > 0 {
		return l.spec.MaxConnections
	}
	return min(cfg.MaxConnections, (cfg.MaxOpen+1)/2)
}

// socketKey is where a socket should be: at a port of one of the load
// balancer's addresses, or at a published port of the host.
type socketKey struct {
	protocol cloudsim.Protocol
	ip       string
	port     int
}

// socket is a place where clients reach a listener.
type socket struct {
	key    socketKey
	l      *listener
	bind   string // the address to open it at; of a published port it may differ from key.ip
	cancel context.CancelFunc
	closed chan struct{} // closed when the port is free

	// Behind the balancer's mu.
	endpoint string
	problem  string
}

// socketsOf are the sockets that a load balancer should have, listener by
// listener, and where each is to be opened.
func (c Config) socketsOf(lb cloudsim.LoadBalancer) []*socket {
	var all []*socket
	for _, l := range lb.Listeners {
		for _, a := range lb.Addresses {
			all = append(all, &socket{key: socketKey{l.Protocol, a.IP, l.Port}, bind: a.IP, l: &listener{port: port{l.Protocol, l.Port}}})
		}
		for _, p := range lb.Published {
			if p.Protocol == l.Protocol && p.Port == l.Port {
				bind := p.Host
				if c.PublishedBind != "" {
					bind = c.PublishedBind
				}
				all = append(all, &socket{key: socketKey{l.Protocol, p.Host, p.PublishedPort}, bind: bind, l: &listener{port: port{l.Protocol, l.Port}}})
			}
		}
	}
	return all
}

// close frees the port. Connections being dialled are reset, open ones stay.
func (s *socket) close() {
	s.cancel()
	<-s.closed
}

// listen holds a socket's port until ctx ends. While it cannot have it, it
// tries again, with pauses that grow from 50 ms to 5 s.
func (b *balancer) listen(ctx context.Context, s *socket) {
	again := pause.Backoff{First: 50 * time.Millisecond, Most: 5 * time.Second}
	last := ""
	for ctx.Err() == nil {
		bound, problem := b.cfg.bind(ctx, s)
		if ctx.Err() == nil && problem != "" && problem != last {
			b.log.Warn("listener is not where it should be", "protocol", s.key.protocol, "listener", hostPort(s.key.ip, s.key.port), "reason", problem)
		}
		last = problem
		if bound == nil {
			b.place(s, "", problem)
			again.Wait(ctx)
			continue
		}
		again.Reset()
		endpoint := s.endpointOf(bound.Addr())
		b.place(s, endpoint, problem)
		b.log.Info("listening", "protocol", s.key.protocol, "endpoint", endpoint)
		closed := make(chan struct{})
		context.AfterFunc(ctx, func() {
			defer close(closed)
			_ = bound.Close() // returns when the port is free; accept may return before
		})
		if bound.packets != nil {
			(&packets{b: b, socket: s, conn: bound.packets, flows: map[netip.AddrPort]*flow{}}).receive(ctx)
		} else {
			b.forwarder.accept(ctx, b, s, bound.streams)
		}
		<-closed
	}
}

// endpointOf is where clients reach what listens at a: its own address, or the
// host at which somebody else publishes it.
func (s *socket) endpointOf(a net.Addr) string {
	if s.bind == s.key.ip {
		return a.String()
	}
	return hostPort(s.key.ip, s.key.port)
}

// rest waits after clients could not be had, and says why once in a row.
func (b *balancer) rest(ctx context.Context, again *pause.Backoff, cannot string, at net.Addr, err error) {
	if again.Fresh() {
		b.log.Warn("cannot "+cannot+"; trying again", "endpoint", at.String(), "error", err)
	}
	again.Wait(ctx)
}

// place notes where a socket can be reached.
func (b *balancer) place(s *socket, endpoint, problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.endpoint, s.problem = endpoint, problem
	b.news()
}

// prefixes reads source ranges; the cloud has seen to it that they are.
func prefixes(ranges []string) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range ranges {
		if p, err := netip.ParsePrefix(r); err == nil {
			all = append(all, p.Masked())
		}
	}
	return slices.Clip(all)
}
