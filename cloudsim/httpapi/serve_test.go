package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// serve serves the API until the test ends. It returns the address of the server.
func (o *localCloud) serve(t *testing.T, limits run.Limits) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- httpapi.Serve(ctx, ln, o, limits) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// sendAll sends an incomplete request. It returns all bytes that the server sends until the server
// closes the connection.
func sendAll(t *testing.T, address, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(c)
	if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // io.ReadAll does not wrap
		t.Fatalf("the server keeps the connection open after %.40q", request)
	}
	return string(raw)
}

// TestHalfARequest proves that the server does not wait forever for the rest of an incomplete
// request. The server sends a reply or closes the connection.
func TestHalfARequest(t *testing.T) {
	o := observe(t, nil)
	address := o.serve(t, run.Limits{AnonymousFor: 2 * time.Second, Body: 100 * time.Millisecond})
	const half = " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
	for request, want := range map[string]string{
		"":                                   "",
		"GET /livez HTTP/1.1\r\nX":           "",
		"POST /v1/projects" + half + "\r\n{": "HTTP/1.1 401",
		"POST /v1/projects" + half + "Authorization: Bearer guess\r\n\r\n{":  "HTTP/1.1 401",
		"POST /v1/nothing" + half + "\r\n{":                                  "HTTP/1.1 404",
		"POST /livez" + half + "\r\n{":                                       "HTTP/1.1 405",
		"GET /livez" + half + "\r\n{":                                        "HTTP/1.1 200",
		"POST /v1/projects" + half + "Authorization: Bearer secret\r\n\r\n{": "HTTP/1.1 408",
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			if got := sendAll(t, address, request); !strings.HasPrefix(got, want) {
				t.Errorf("got %q, want prefix %s", got, want)
			}
		})
	}
}

// TestRequestsOfForeignPages proves that a web page of another server cannot read the metrics or
// the API reference, even if the DNS name of the page points to this machine.
func TestRequestsOfForeignPages(t *testing.T) {
	o := observe(t, nil)
	for _, path := range []string{"/metrics", "/docs"} {
		for host, want := range map[string]int{
			"127.0.0.1:8180": 200, "[::1]:8180": 200, "localhost": 200, "cloud:8180": 200, "cloudsim.kube-system.svc:8180": 200,
			"evil.example:8180": 421, "evil.example": 421, "127.0.0.1.evil.example": 421,
		} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			o.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s with host %s: got status %d, want %d", path, host, w.Code, want)
			}
		}
		for origin, want := range map[string]int{"http://127.0.0.1:8180": 200, "http://evil.example": 403, "null": 403} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = "127.0.0.1:8180"
			r.Header.Set("Origin", origin)
			w := httptest.NewRecorder()
			o.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s with origin %s: got status %d, want %d", path, origin, w.Code, want)
			}
		}
	}
}

func TestReferenceIsCached(t *testing.T) {
	o := observe(t, nil)
	get := func() {
		if code, page := o.ask(http.MethodGet, "http://localhost/docs", ""); code != 200 || len(page) < 100_000 {
			t.Fatalf("reference page: got status %d and %d bytes, want 200 and at least 100,000 bytes", code, len(page))
		}
	}
	get()
	if n := testing.AllocsPerRun(10, get); n > 1000 {
		t.Errorf("second request: got %v allocations, want at most 1000", n)
	}
}

func TestHostNamesIgnoreCase(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = "console.EXAMPLE:8180"
	w := httptest.NewRecorder()
	httpapi.CheckHost(ok, "Console.example").ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("host %s: got status %d, want 200", r.Host, w.Code)
	}
}
