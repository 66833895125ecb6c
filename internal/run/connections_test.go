package run_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/internal/run"
)

// start runs a server until the test ends and returns its address. The server
// treats a request with an Authorization header as authenticated. A request for
// /wait runs until the client closes the connection.
func start(t *testing.T, secure bool, limits run.Limits) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	if secure {
		ln = tls.NewListener(ln, serverTLS(t))
	}
	ctx, stop := context.WithCancel(t.Context())
	srv := &http.Server{
		BaseContext: func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				run.Authenticated(r.Context())
			}
			if r.URL.Path == "/wait" {
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		}),
	}
	ended := make(chan error, 1)
	go func() { ended <- run.HTTP(ctx, srv, ln, 0, limits) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("HTTP = %v", err)
		}
	})
	return address
}

func serverTLS(t *testing.T) *tls.Config {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	conf := srv.TLS.Clone()
	conf.NextProtos = []string{"h2", "http/1.1"}
	return conf
}

func dial(t *testing.T, address string, secure bool) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if secure {
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // a test
	}
	return c
}

func send(t *testing.T, c net.Conn, lines ...string) {
	t.Helper()
	if _, err := io.WriteString(c, strings.Join(lines, "\r\n")); err != nil {
		t.Fatal(err)
	}
}

// awaitClosed waits until the server closes c. It returns the data that the server has sent.
func awaitClosed(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(c)
	if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // io.ReadAll does not wrap
		t.Fatal("the server did not close the connection")
	}
	return string(raw)
}

const authorized = "Authorization: x"

// After a time limit, the server closes a connection without an authenticated request, even if a
// part of a request has arrived.
func TestAnonymousConnectionsEnd(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for name, request := range map[string][]string{
			"nothing":                nil,
			"incomplete header":      {"GET / HTTP/1.1", "Host: x", "X: "},
			"incomplete body":        {"POST / HTTP/1.1", "Host: x", "Content-Length: 10", "", "{"},
			"idle after one request": {"GET / HTTP/1.1", "Host: x", "", ""},
			"a slow request":         {"GET /wait HTTP/1.1", "Host: x", "", ""},
		} {
			t.Run(fmt.Sprint(name, " TLS ", secure), func(t *testing.T) {
				t.Parallel()
				c := dial(t, start(t, secure, run.Limits{AnonymousFor: 100 * time.Millisecond}), secure)
				// Ignore the error: on a slow machine, the server may close the connection before
				// the test has sent the request.
				_, _ = io.WriteString(c, strings.Join(request, "\r\n"))
				awaitClosed(t, c)
			})
		}
	}
	t.Run("no handshake", func(t *testing.T) {
		t.Parallel()
		awaitClosed(t, dial(t, start(t, true, run.Limits{AnonymousFor: 100 * time.Millisecond}), false))
	})
}

// The server sends the answer of a handler even if only a part of the request's body arrives.
func TestAnswerBeforeTheBody(t *testing.T) {
	c := dial(t, start(t, false, run.Limits{Body: 50 * time.Millisecond, AnonymousFor: time.Hour}), false)
	send(t, c, "POST / HTTP/1.1", "Host: x", "Content-Length: 1000", "", "{")
	if got := awaitClosed(t, c); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("answer before the end of the body: got %q, want the status 200", got)
	}
}

// An authenticated connection stays open even if the number of other connections
// exceeds Limits.Anonymous.
func TestAuthenticatedConnectionsStay(t *testing.T) {
	const anonymous = 3
	address := start(t, false, run.Limits{Connections: 4, Anonymous: anonymous, AnonymousFor: time.Hour})
	busy := wait(t, address)
	var crowd []net.Conn
	for range 2 * anonymous {
		crowd = append(crowd, dial(t, address, false))
	}
	for n, c := range crowd[:anonymous] {
		if got := awaitClosed(t, c); got != "" {
			t.Errorf("connection %d: got %q, want no data", n, got)
		}
	}
	// The server still serves the newest connections.
	last := crowd[2*anonymous-1]
	send(t, last, "GET / HTTP/1.1", "Host: x", "Connection: close", "", "")
	if got := awaitClosed(t, last); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("newest connection: got %q, want the status 200", got)
	}
	if err := busy.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, busy)
	if ne, ok := err.(net.Error); !ok || !ne.Timeout() { //nolint:errorlint // io.Copy does not wrap
		t.Errorf("authenticated connection: got error %v, want a timeout because it stays open", err)
	}
	// Limits.Connections minus Limits.Anonymous is 1, so the server permits only one authenticated
	// connection. The second connection stays unauthenticated.
	second := wait(t, address)
	for range anonymous {
		dial(t, address, false)
	}
	awaitClosed(t, second)
	// After the first connection has ended, the server permits another authenticated connection.
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !staysOpen(t, address, anonymous); {
		if time.Now().After(end) {
			t.Fatal("the server refused a new connection after another connection ended")
		}
	}
}

// wait returns a connection with a running authenticated request.
func wait(t *testing.T, address string) net.Conn {
	t.Helper()
	c := dial(t, address, false)
	send(t, c, "GET /wait HTTP/1.1", "Host: x", authorized, "", "")
	status, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(status, "200") {
		t.Fatalf("authenticated request: got the status line %q, error %v; want 200", status, err)
	}
	return c
}

// staysOpen opens the given number of connections. It reports whether an authenticated connection
// stays open while these connections exist.
func staysOpen(t *testing.T, address string, others int) bool {
	t.Helper()
	c := dial(t, address, false)
	send(t, c, "GET / HTTP/1.1", "Host: x", authorized, "", "")
	r := bufio.NewReader(c)
	get := func() bool {
		resp, err := http.ReadResponse(r, nil)
		return err == nil && resp.Body.Close() == nil
	}
	if !get() {
		return false
	}
	for range others {
		other := dial(t, address, false)
		send(t, other, "GET / HTTP/1.1", "Host: x", "", "")
		if resp, err := http.ReadResponse(bufio.NewReader(other), nil); err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return false
	}
	return get()
}

// An authenticated HTTP/2 request keeps its connection open for longer than Limits.AnonymousFor.
func TestHTTP2(t *testing.T) {
	address := start(t, true, run.Limits{AnonymousFor: 200 * time.Millisecond})
	for _, header := range []string{"", authorized} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // a test
		t.Cleanup(tr.CloseIdleConnections)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/wait", nil)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			req.Header.Set("Authorization", "x")
			time.AfterFunc(time.Second, cancel)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil || resp.ProtoMajor != 2 {
			t.Fatal(resp, err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if alive := ctx.Err() != nil; alive != (header != "") {
			t.Errorf("header %q: got an open connection %t (%v), want %t", header, alive, err, header != "")
		}
	}
}
