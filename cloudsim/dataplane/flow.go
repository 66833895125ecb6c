package dataplane

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// flow is the traffic between one client port and a UDP listener, in both directions. It has its
// own socket to one target. It ends when the client and the target have been silent for the idle
// timeout.
type flow struct {
	session
	peer   netip.AddrPort // the client's port
	server *net.UDPConn
	last   atomic.Int64 // time of the last datagram, in ns since startTime
}

// startTime is the origin of the times that flows and loops store. Flows and loops store each time
// as a duration since startTime. startTime contains a monotonic clock reading, so changes of the
// system time have no effect.
var startTime = time.Now()

func (f *flow) passed() { f.last.Store(int64(time.Since(startTime))) }

func (f *flow) silence() time.Duration { return time.Since(startTime) - time.Duration(f.last.Load()) }

type udpServer struct {
	b      *balancer
	socket *socket
	conn   *net.UDPConn

	mu    sync.Mutex
	flows map[netip.AddrPort]*flow
}

// receive forwards datagrams until ctx ends. Then it ends every flow. The caller must also close
// the socket when ctx ends. Otherwise receive continues to wait for a datagram.
func (p *udpServer) receive(ctx context.Context) {
	defer p.endAll()
	_ = p.conn.SetReadBuffer(1 << 20) // a burst of datagrams waits in this buffer; the kernel may grant a smaller buffer
	retry := backoff.Backoff{First: 5 * time.Millisecond, Most: time.Second}
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := p.conn.ReadFromUDPAddrPort(buf)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.b.waitRetry(ctx, &retry, "receive datagrams", p.conn.LocalAddr(), err)
			continue
		}
		retry.Reset()
		p.forward(buf[:n], from)
	}
}

// forward sends a datagram to the target of the client's flow. If the client has no flow, forward
// begins a new flow. If the target has refused an earlier datagram, the flow ends and this datagram
// goes to another target. forward makes at most dialAttempts attempts.
func (p *udpServer) forward(datagram []byte, from netip.AddrPort) {
	p.mu.Lock()
	f := p.flows[from]
	p.mu.Unlock()
	if f == nil {
		f = p.openFlow(from, nil)
	}
	var tried []*target // targets that have refused datagrams
	for attempt := 1; f != nil; attempt++ {
		sent, refused := p.sendToTarget(f, datagram)
		if sent || attempt == dialAttempts {
			return
		}
		if refused {
			tried = append(tried, f.target)
		}
		f = p.openFlow(from, tried)
	}
}

// sendToTarget sends a datagram to the flow's target. If the target has refused an earlier
// datagram, sendToTarget ends the flow and returns false, true. If the flow's socket is closed, it
// ends the flow and returns false, false. Otherwise it returns true, false, even if the system
// drops the datagram.
func (p *udpServer) sendToTarget(f *flow, datagram []byte) (sent, refused bool) {
	n, err := f.server.Write(datagram)
	switch {
	case err == nil:
		f.passed()
		f.target.bytes[in].Add(uint64(n))
		return true, false
	case errors.Is(err, syscall.ECONNREFUSED):
		p.b.dialFailed(f.target)
		refused = true
	case !errors.Is(err, net.ErrClosed):
		return true, false // the datagram is lost, as UDP allows: it is too long, or the send buffer is full
	}
	p.close(f)
	return false, refused
}

// openFlow begins a flow. If the balancer refuses the flow, openFlow returns nil. It also returns
// nil if it cannot open a socket to the target.
func (p *udpServer) openFlow(from netip.AddrPort, tried []*target) *flow {
	client := from.Addr().Unmap()
	to, why := p.b.begin(p.socket.l, client, tried)
	if why != "" {
		return nil
	}
	server, err := p.b.cfg.dialUDP(client, to)
	if err != nil {
		p.b.abandon(p.socket.l, client, to)
		return nil
	}
	f := &flow{peer: from, server: server}
	f.session = session{b: p.b, l: p.socket.l, socket: p.socket, client: client, choice: to, cut: func() { _ = server.Close() }}
	f.passed()
	if !p.b.join(&f.session) {
		_ = server.Close()
		p.b.abandon(p.socket.l, client, to)
		return nil
	}
	p.mu.Lock()
	p.flows[from] = f
	p.mu.Unlock()
	p.b.waitGroup.Go(func() {
		p.answer(f)
		p.close(f)
		p.b.removeSession(&f.session)
	})
	return f
}

// close ends a flow. The next datagram of its client begins another flow.
func (p *udpServer) close(f *flow) {
	p.mu.Lock()
	if p.flows[f.peer] == f {
		delete(p.flows, f.peer)
	}
	p.mu.Unlock()
	_ = f.server.Close()
}

func (p *udpServer) endAll() {
	p.mu.Lock()
	all := p.flows
	p.flows = map[netip.AddrPort]*flow{}
	p.mu.Unlock()
	for _, f := range all {
		_ = f.server.Close()
	}
}

// maxIdleCheck is the maximum time between two checks of the idle timeout. Each goroutine that
// waits for data makes these checks. So a new idle timeout of the listener takes effect after at
// most this time.
const maxIdleCheck = 10 * time.Second

// answer forwards the target's datagrams to the client, until the flow is silent for too long
// or is closed.
func (p *udpServer) answer(f *flow) {
	reads, err := newPooledReader(f.server, maxDatagram)
	if err != nil {
		return
	}
	for {
		wait := maxIdleCheck
		if idle := time.Duration(f.l.idle.Load()); idle > 0 {
			left := idle - f.silence()
			if left <= 0 {
				return
			}
			wait = min(wait, left)
		}
		_ = f.server.SetReadDeadline(time.Now().Add(wait))
		for err == nil {
			err = p.answerOne(f, reads)
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			p.b.dialFailed(f.target)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		err = nil
	}
}

func (p *udpServer) answerOne(f *flow, reads *pooledReader) error {
	datagram, err := reads.readOnce()
	defer reads.release()
	if err != nil {
		return err
	}
	f.passed()
	f.target.bytes[out].Add(uint64(len(datagram)))
	_, _ = p.conn.WriteToUDPAddrPort(datagram, f.peer) // an error of this write does not end the flow
	return nil
}
