package hollow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/cloudsim-dev/allinone/internal/run"
)

const (
	proxyHealthPort = 10256
	// maxConns limits the open connections of one port. Further connections wait until an open
	// connection ends.
	maxConns = 512
)

// role is the purpose of a socket.
type role string

const (
	nodePortTCP   role = "node port"
	nodePortUDP   role = "UDP node port"
	checkNodePort role = "health check node port"
	proxyHealthz  role = "kube-proxy health"
	kubeletAPI    role = "kubelet"
)

// socketKey identifies a socket of a machine.
type socketKey struct {
	role role
	port int32
}

// responder serves the ports of one machine, on the machine's address. The goroutine of each socket
// calls markFailed. Only the proxy's goroutine calls the other methods.
type responder struct {
	log     *slog.Logger
	kubelet KubeletTLS
	ip      string
	broke   func() // the socket's goroutine calls this function after a failure
	open    map[socketKey]*socket
	failed  map[socketKey]string // logged reasons of the sockets that are not open
}

// socket is one open port.
type socket struct {
	view   atomic.Pointer[view]
	dead   atomic.Bool
	close  func() error
	served sync.WaitGroup
}

// shut closes the port and its connections, and waits for the serving goroutine.
func (s *socket) shut() {
	_ = s.close() // fails only on a second close
	s.served.Wait()
}

// syncPorts opens the ports in wantedViews and closes all other ports. Each socket gets the view
// of its port. A port that is already open keeps its socket. syncPorts reports whether all ports
// are open. It logs a failure only if the reason is new.
func (r *responder) syncPorts(ctx context.Context, wantedViews map[socketKey]*view) (complete bool) {
	for key, s := range r.open {
		if wantedViews[key] == nil || s.dead.Load() {
			s.shut()
			delete(r.open, key)
		}
	}
	for key := range r.failed {
		if wantedViews[key] == nil {
			delete(r.failed, key)
		}
	}
	for key, v := range wantedViews {
		if s := r.open[key]; s != nil {
			s.view.Store(v)
			continue
		}
		s, err := r.listen(ctx, key, v)
		if err != nil {
			if r.failed[key] != err.Error() {
				r.log.Warn("a hollow node cannot listen; retrying", "node", v.node, "for", key.role, "err", err)
				r.failed[key] = err.Error()
			}
			continue
		}
		if _, was := r.failed[key]; was {
			r.log.Info("a hollow node listens again", "node", v.node, "for", key.role, "port", key.port)
			delete(r.failed, key)
		}
		r.open[key] = s
	}
	return len(r.failed) == 0
}

// closePorts closes all ports, because the machine is off.
func (r *responder) closePorts() {
	for key, s := range r.open {
		s.shut()
		delete(r.open, key)
	}
}

func (r *responder) listen(ctx context.Context, key socketKey, v *view) (*socket, error) {
	s := &socket{}
	s.view.Store(v)
	addr := net.JoinHostPort(r.ip, strconv.Itoa(int(key.port)))
	var lc net.ListenConfig
	if key.role == nodePortUDP {
		conn, err := lc.ListenPacket(ctx, "udp", addr)
		if err != nil {
			return nil, err
		}
		s.close = conn.Close
		s.served.Go(func() { r.markFailed(key, s, echo(conn, s.view.Load)) })
		return s, nil
	}
	var secure *tls.Config
	if key.role == kubeletAPI {
		var err error
		if secure, err = r.kubelet(v.node, r.ip); err != nil {
			return nil, fmt.Errorf("certificate of the kubelet: %w", err)
		}
	}
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	ln = netutil.LimitListener(ln, maxConns)
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	srv := r.server(key.role, s.view.Load)
	s.close = srv.Close
	s.served.Go(func() { r.markFailed(key, s, srv.Serve(ln)) })
	return s, nil
}

// server returns a server that limits the size and time of a request's header,
// and the idle time between requests. It also limits the time of an answer, except for
// answers of the kubelet's API.
func (r *responder) server(role role, now func() *view) *http.Server {
	srv := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	switch role {
	case kubeletAPI:
		srv.Handler = run.LimitBody(kubeletHandler(now), 10*time.Second)
		srv.ReadTimeout, srv.WriteTimeout = 0, 0 // clients may follow logs for a long time
	case checkNodePort:
		srv.Handler = serviceHealthHandler(now)
	case proxyHealthz:
		srv.Handler = proxyHealthHandler(now)
	default:
		srv.Handler = nodePortHandler(now)
		srv.ConnContext = connContext(now)
	}
	return srv
}

// markFailed marks a socket that failed, so that the next sync opens the port again.
func (r *responder) markFailed(key socketKey, s *socket, err error) {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return
	}
	r.log.Warn("a port of a hollow node failed; opening it again", "node", s.view.Load().node, "for", key.role, "port", key.port, "err", err)
	s.dead.Store(true)
	r.broke()
}

// echo answers each datagram in place of a pod, until the caller closes conn. It ignores datagrams
// that begin like an answer, because an attacker can forge the source of a datagram. If the forged
// source is another hollow node, the two nodes would otherwise answer each other forever.
func echo(conn net.PacketConn, now func() *view) error {
	var counter atomic.Uint64
	buf := make([]byte, len(answerPrefix)) // the rest of the datagram is not needed
	for {
		n, client, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		if string(buf[:n]) == answerPrefix {
			continue
		}
		v := now()
		// Ignore the result, because UDP does not guarantee delivery.
		_, _ = conn.WriteTo([]byte(v.answer(v.pick(&counter, client), client.String()).String()), client)
	}
}
