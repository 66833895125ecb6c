package run_test

import (
	"bufio"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/internal/run"
)

// With LimitSilence, a server without timeouts closes the connections of silent
// clients. It keeps the connection of a client that continues to send requests.
func TestLimitSilence(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 300 * time.Millisecond
	srv := &http.Server{Handler: http.NotFoundHandler()} //nolint:gosec // without a timeout on purpose
	served := make(chan error, 1)
	go func() { served <- srv.Serve(run.LimitSilence(ln, most)) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-served
	})
	address := ln.Addr().String()
	for _, request := range [][]string{nil, {"GET / HTTP/1.1", "X: "}, {"POST / HTTP/1.1", "Host: x", "Content-Length: 10", "", "{"}, {"GET / HTTP/1.1", "Host: x", "", ""}} {
		c := dial(t, address, false)
		if request != nil {
			send(t, c, request...)
		}
		awaitClosed(t, c)
	}
	c := dial(t, address, false)
	r := bufio.NewReader(c)
	for begin := time.Now(); time.Since(begin) < 2*most; {
		send(t, c, "GET / HTTP/1.1", "Host: x", "", "")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("client that sends requests without a pause: %v", err)
		}
		_ = resp.Body.Close()
	}
}
