package dataplane

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// port identifies a listener of a load balancer.
type port struct {
	protocol cloudsim.Protocol
	number   int
}

// listener is one port of a load balancer, at all addresses of the load
// balancer.
type listener struct {
	port
	idle  atomic.Int64 // idle timeout in ns; 0: none
	proxy atomic.Value // a cloudsim.ProxyProtocol

	// The balancer's mu protects these fields.
	spec     cloudsim.Listener
	pool     string // pool from which the listener chooses targets
	queue    queue
	slots    map[*target]*slot
	open     int // connections that were accepted and have not ended
	accepted uint64
	refused  map[refusal]uint64
}

func newListener(p port) *listener {
	return &listener{port: p, slots: map[*target]*slot{}, refused: map[refusal]uint64{}}
}

func (l *listener) setSpec(spec cloudsim.Listener, cfg Config) (idleChanged bool) {
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

func (l *listener) limit(cfg Config) int {
	if l.spec.MaxConnections > 0 {
		return l.spec.MaxConnections
	}
	return min(cfg.MaxConnections, (cfg.MaxOpen+1)/2)
}

// socketKey identifies a socket. It contains an address and a port of the load balancer, or a
// published host and port.
type socketKey struct {
	protocol cloudsim.Protocol
	ip       string
	port     int
}

// socket is an address and port at which clients reach a listener.
type socket struct {
	key    socketKey
	l      *listener
	bind   string // address to listen on; for a published port it may differ from key.ip
	cancel context.CancelFunc
	closed chan struct{} // closed when the port is free

	// The balancer's mu protects these fields.
	endpoint string
	problem  string
}

// socketsOf returns the sockets that a load balancer should have, in the order of its listeners.
// Only the fields key, bind and l.port of each socket are set.
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

// close frees the port, and waits until the port is free. It ends UDP flows, and resets connections
// that still wait for a target. Connections with a target stay open.
func (s *socket) close() {
	s.cancel()
	<-s.closed
}

// listen keeps the port of a socket open until ctx ends. If it cannot open the port, it tries
// again with pauses that grow from 50 ms to 5 s.
func (b *balancer) listen(ctx context.Context, s *socket) {
	retry := backoff.Backoff{First: 50 * time.Millisecond, Most: 5 * time.Second}
	last := ""
	for ctx.Err() == nil {
		bound, problem := b.cfg.bind(ctx, s)
		if ctx.Err() == nil && problem != "" && problem != last {
			b.log.Warn("listener is not open at its address and port", "protocol", s.key.protocol, "listener", hostPort(s.key.ip, s.key.port), "reason", problem)
		}
		last = problem
		if bound == nil {
			b.setEndpoint(s, "", problem)
			retry.Wait(ctx)
			continue
		}
		retry.Reset()
		endpoint := s.endpointOf(bound.Addr())
		b.setEndpoint(s, endpoint, problem)
		b.log.Info("listening", "protocol", s.key.protocol, "endpoint", endpoint)
		closed := make(chan struct{})
		context.AfterFunc(ctx, func() {
			defer close(closed)
			_ = bound.Close() // returns when the port is free; accept may return earlier
		})
		if bound.packets != nil {
			(&udpServer{b: b, socket: s, conn: bound.packets, flows: map[netip.AddrPort]*flow{}}).receive(ctx)
		} else {
			b.forwarder.accept(ctx, b, s, bound.streams)
		}
		<-closed
	}
}

// endpointOf returns the address that clients use for the socket. Usually this is the address on
// which the socket listens. If the configuration publishes the socket's port under another address
// (for example if the cloud runs in a container), clients use the published host and port.
func (s *socket) endpointOf(a net.Addr) string {
	if s.bind == s.key.ip {
		return a.String()
	}
	return hostPort(s.key.ip, s.key.port)
}

// waitRetry waits until the next try. If several tries in a row fail, it logs only the first error.
func (b *balancer) waitRetry(ctx context.Context, retry *backoff.Backoff, action string, address net.Addr, err error) {
	if retry.Fresh() {
		b.log.Warn("cannot "+action+"; trying again", "endpoint", address.String(), "error", err)
	}
	retry.Wait(ctx)
}

func (b *balancer) setEndpoint(s *socket, endpoint, problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.endpoint, s.problem = endpoint, problem
	b.notifyReporter()
}

// parsePrefixes parses source ranges. It skips an invalid range, so this range allows no client. It
// returns no error, because the cloud's API has already validated the ranges.
func parsePrefixes(ranges []string) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range ranges {
		if p, err := netip.ParsePrefix(r); err == nil {
			all = append(all, p.Masked())
		}
	}
	return slices.Clip(all)
}
