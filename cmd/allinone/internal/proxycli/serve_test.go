package proxycli

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/netproxy/server"
)

// TestProxyAdminSocket proves that a network proxy serves its status and its profiles on a Unix
// socket. Only the user of the process can open this socket. If the flags enable profiles
// without this socket, the method serve returns an error.
func TestProxyAdminSocket(t *testing.T) {
	s := proxySide{adminSock: filepath.Join(t.TempDir(), "admin.sock"), profiling: true}
	status := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"one"}`) })
	ctx, stop := context.WithCancel(t.Context())
	parts, err := s.serve(ctx, prometheus.NewRegistry(), func() error { return nil }, status)
	if err != nil || len(parts) != 1 {
		t.Fatal(len(parts), err)
	}
	ended := make(chan error, 1)
	go func() { ended <- parts[0](ctx) }()
	if info, err := os.Stat(s.adminSock); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file of the admin socket: got %v, error %v; want the mode 0600", info, err)
	}
	var got server.Status
	if got, err = fetchProxyStatus(t.Context(), "unix://"+s.adminSock); err != nil || got.ID != "one" {
		t.Errorf("status: got %+v, error %v; want the id one", got, err)
	}
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.adminSock)
	}}}
	resp, err := hc.Get("http://server/debug/pprof/heap")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	if _, err := (&proxySide{contention: true}).serve(t.Context(), prometheus.NewRegistry(), nil, nil); err == nil || !strings.Contains(err.Error(), "needs --enable-profiling") {
		t.Errorf("serve with --enable-contention-profiling alone: got error %v, want an error with \"needs --enable-profiling\"", err)
	}
	if _, err := (&proxySide{profiling: true}).serve(t.Context(), prometheus.NewRegistry(), nil, nil); err == nil || !strings.Contains(err.Error(), "--admin-socket") {
		t.Errorf("serve with --enable-profiling and without --admin-socket: got error %v, want an error with \"--admin-socket\"", err)
	}
}

// TestProxyHealthPort proves that the health port does not serve the status and the profiles. It
// also proves that web pages of other origins cannot read the metrics.
func TestProxyHealthPort(t *testing.T) {
	h := healthHandler(proxyMetrics(prometheus.NewRegistry()), func() error { return nil })
	for target, want := range map[string]int{
		"http://127.0.0.1/metrics": 200, "http://evil.example/metrics": 421, "http://evil.example/healthz": 200,
		"http://127.0.0.1/debug/pprof/": 404, "http://127.0.0.1" + statusPath: 404,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		if w.Code != want {
			t.Errorf("%s: %d; want %d", target, w.Code, want)
		}
	}
}
