package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/cloudsim-dev/allinone/netproxy/socket"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// maxHead limits the size of a client's request, in bytes. readConnect refuses a larger request.
// It also refuses a request if a line of the request does not fit into the buffer of the reader r.
const maxHead = 16 << 10

// refusal is an error with the HTTP status of the server's answer.
type refusal struct {
	code int
	why  string
}

func (r *refusal) Error() string { return r.why }

// readConnect reads a CONNECT request (RFC 9110, 9.3.6) from r. It reads no byte after the
// request, so the client's first data stay in r.
func readConnect(r *bufio.Reader) (*http.Request, error) {
	var head bytes.Buffer
	for {
		line, err := r.ReadSlice('\n')
		head.Write(line)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) || head.Len() > maxHead:
			return nil, &refusal{http.StatusRequestHeaderFieldsTooLarge, "the request is too long"}
		case err != nil:
			return nil, err
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			if head.Len() == len(line) { // RFC 9112, 2.2: ignore an empty line before the request
				head.Reset()
				continue
			}
			break
		}
	}
	headReader := headReaders.Get().(*bufio.Reader)
	headReader.Reset(&head)
	defer func() { headReader.Reset(nil); headReaders.Put(headReader) }()
	req, err := http.ReadRequest(headReader)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "the request is not a valid HTTP/1.1 request"}
	}
	if req.Method != http.MethodConnect {
		return nil, &refusal{http.StatusMethodNotAllowed, "the only supported method is CONNECT"}
	}
	if req.ContentLength > 0 || len(req.TransferEncoding) > 0 {
		return nil, &refusal{http.StatusBadRequest, "a CONNECT request must not have a body"}
	}
	return req, nil
}

// httpTunnel is a connection of an HTTP CONNECT client.
type httpTunnel struct {
	server *Server
	client net.Conn
	reader *socket.Reader
	first  mem.BufferSlice // data that the client sent before the answer
	conn   *conn

	done chan struct{} // closed at the end of fromTarget
	mute chan struct{} // closed when both directions are silent for too long
	ends atomic.Int32  // number of directions that have ended
	gone atomic.Bool   // the connection to the client has failed

	mu    sync.Mutex
	timer *time.Timer // runs after one direction has ended
}

// serveConnect serves one client until its connection ends.
func (s *Server) serveConnect(ctx context.Context, client net.Conn) {
	defer client.Close()
	s.metrics.httpConnections.Inc()
	defer s.metrics.httpConnections.Dec()
	t := &httpTunnel{server: s, client: client, reader: socket.NewReader(client, socket.Large), done: make(chan struct{}), mute: make(chan struct{})}
	l, err := t.accept(ctx)
	if err != nil {
		t.sendRefusal(err)
		return
	}
	defer s.removeConn(t.conn)
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		l.drop()
		return
	}
	l.carry(t.toTarget, func() { socket.Abort(client) })
	t.fromTarget(l)
	l.leave()
}

// accept reads the client's request and connects to the target.
func (t *httpTunnel) accept(ctx context.Context) (link, error) {
	req, err := t.head()
	if err != nil {
		return nil, err
	}
	// Read the target from the request line, because kube-apiserver sends
	// 127.0.0.1 in the header Host.
	dst, err := parseTarget("tcp", req.RequestURI)
	if err != nil {
		t.server.metrics.dialFailed.WithLabelValues(reasonInvalid).Inc()
		return nil, &refusal{http.StatusBadRequest, err.Error()}
	}
	ctx, span := t.server.trace(extract(ctx, req.Header), HTTPConnect, req.RequestURI)
	l, ses, err := t.dial(ctx, dst)
	endSpan(span, err)
	if err != nil {
		return nil, err
	}
	t.conn = t.server.addConn(HTTPConnect, dst, ses)
	return l, nil
}

// headReaders holds readers for requests. A connection needs a reader only until its request
// is complete.
var headReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// head reads the request within the header timeout.
func (t *httpTunnel) head() (*http.Request, error) {
	if err := t.client.SetDeadline(time.Now().Add(t.server.cfg.HeaderTimeout)); err != nil {
		return nil, err
	}
	r := headReaders.Get().(*bufio.Reader)
	r.Reset(t.client)
	defer func() { r.Reset(nil); headReaders.Put(r) }()
	req, err := readConnect(r)
	if err != nil {
		return nil, err
	}
	if n := r.Buffered(); n > 0 {
		rest, err := r.Peek(n)
		if err != nil {
			return nil, err
		}
		t.first = mem.BufferSlice{mem.SliceBuffer(bytes.Clone(rest))}
	}
	return req, t.client.SetDeadline(time.Time{})
}

// dial connects to the target. If the client disconnects during the dial, dial stops. dial reads
// from the client only once. So if the client first sends data, dial does not notice that the
// client disconnects later.
func (t *httpTunnel) dial(ctx context.Context, dst target) (link, *session, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		data, err := t.reader.Read()
		if err == nil { // the client sends data before the answer
			t.first = append(t.first, data)
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	})
	l, ses, err := t.server.dial(ctx, dst)
	closed := t.client.SetReadDeadline(time.Unix(1, 0))
	watching.Wait()
	if err != nil {
		return nil, nil, err
	}
	if errors.Join(closed, t.client.SetReadDeadline(time.Time{})) != nil {
		l.drop()
		ses.load.Add(-1)
		return nil, nil, errGaveUp
	}
	return l, ses, nil
}

// sendRefusal answers with a status and the reason. The reason is in the status line, because
// kube-apiserver logs only the first line of an answer other than 200.
func (t *httpTunnel) sendRefusal(err error) {
	var code int
	var r *refusal
	var f *failure
	switch {
	case errors.As(err, &r):
		code = r.code
	case errors.As(err, &f):
		code = statusOf(f.reason)
	default:
		return // the client is gone or too slow
	}
	why := oneLine(err.Error())
	if t.client.SetDeadline(time.Now().Add(t.server.cfg.HeaderTimeout)) == nil {
		// An error of Fprintf does not matter, because the client is then gone or too slow.
		fmt.Fprintf(t.client, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
			code, why, len(why)+1, why)
	}
	t.server.log.Debug("refused a client", "status", code, "why", why)
}

func statusOf(reason string) int {
	switch reason {
	case reasonNoAgent, reasonAgentLost:
		return http.StatusServiceUnavailable
	case reasonTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// oneLine makes a text fit into a status line. It replaces all characters except printable ASCII by
// spaces, and shortens the text to 500 bytes.
func oneLine(text string) string {
	const most = 500
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
	return text[:min(len(text), most)]
}

// toTarget sends the client's data to the target. It runs on the link's goroutine. After the client
// has sent all its data, toTarget waits until the target has also sent all its data. It returns an
// error as soon as one of the two directions fails.
func (t *httpTunnel) toTarget(send func(*wire.Chunk) error) error {
	if len(t.first) > 0 {
		first := t.first
		t.first = nil
		t.server.countToward(t.conn, first.Len())
		if err := send(&wire.Chunk{Kind: wire.Data, Data: first}); err != nil {
			return err
		}
	}
	for {
		data, err := t.reader.Read()
		if errors.Is(err, io.EOF) {
			return t.clientEnded(send)
		}
		if err != nil {
			t.gone.Store(true)
			return errGaveUp
		}
		t.server.countToward(t.conn, data.Len())
		if err := send(&wire.Chunk{Kind: wire.Data, Data: mem.BufferSlice{data}}); err != nil {
			return err
		}
	}
}

// clientEnded handles the end of the client's data. It tells the target that the client's
// data have ended. Then it waits until the target's data end, too. Upstream's protocol
// cannot end only one direction, so with upstream's agents the whole link ends.
func (t *httpTunnel) clientEnded(send func(*wire.Chunk) error) error {
	ended := t.halfClosed()
	if err := send(&wire.Chunk{Kind: wire.EOF}); err != nil {
		return wire.EndOf(err)
	}
	if ended {
		return nil
	}
	select {
	case <-t.done:
		return nil
	case <-t.mute:
		return errGaveUp
	}
}

// fromTarget writes the target's data to the client until the link ends.
func (t *httpTunnel) fromTarget(l link) {
	err := t.copyBack(l)
	if err != nil {
		if !t.gone.Load() {
			t.server.log.Debug("a connection failed", "target", t.conn.target.address, "agent", t.conn.session.agentID, "because", t.server.failureText(t.conn, err))
		}
		socket.Abort(t.client)
	}
	close(t.done)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
}

// copyBack copies the target's data to the client. It returns nil after a normal end of both
// directions.
func (t *httpTunnel) copyBack(l link) error {
	w := socket.NewWriter(t.client)
	for {
		var c wire.Chunk
		err := l.recv(&c)
		if errors.Is(err, io.EOF) || err != nil && t.ends.Load() == 2 {
			return nil
		}
		if err != nil {
			return err
		}
		switch c.Kind {
		case wire.Data:
			if c.Data.Len() == 0 && socket.HungUp(t.client) { // agents send empty chunks to check whether the client is connected
				c.Free()
				return errGaveUp // toTarget cannot detect this end, because the target does not read
			}
			t.server.countBack(t.conn, c.Data.Len())
			err = w.Write(c.Data)
		case wire.EOF:
			err = socket.CloseWrite(t.client)
			if t.halfClosed() {
				return nil
			}
		case wire.Reset:
			err = errors.New(string(c.Data.Materialize()))
			c.Free()
		}
		if err != nil {
			return err
		}
	}
}

// halfClosed counts the end of a direction, and reports whether both directions have ended. After
// the first end, it starts watchSilence for the open direction. The server cannot distinguish a
// lost client from a client that has ended only its own direction. So watchSilence limits the time
// that a silent connection stays open.
func (t *httpTunnel) halfClosed() (ended bool) {
	if t.ends.Add(1) == 2 {
		return true
	}
	t.watchSilence(-1)
	return false
}

// watchSilence runs once per half-close timeout until the connection ends. If no bytes have moved
// since the previous call, it ends the connection. lastCount is the number of moved bytes at the
// previous call, or -1 at the first call.
func (t *httpTunnel) watchSilence(lastCount int64) {
	now := t.conn.toward.Load() + t.conn.back.Load()
	if now == lastCount {
		close(t.mute)
		socket.Abort(t.client)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.done:
	default:
		t.timer = time.AfterFunc(t.server.cfg.HalfCloseTimeout, func() { t.watchSilence(now) })
	}
}

// connectTLS returns a TLS listener for HTTP/1.1 only. With HTTP/2, several tunnels could share a
// connection, but each tunnel needs its own connection. If conf is nil, connectTLS returns
// ln.
func connectTLS(ln net.Listener, conf *tls.Config) net.Listener {
	if conf == nil {
		return ln
	}
	conf = conf.Clone()
	conf.NextProtos = []string{"http/1.1"}
	return tls.NewListener(ln, conf)
}
