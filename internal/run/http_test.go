package run_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/internal/run"
)

// When the server stops, a running request can still finish within the grace
// period. The server closes the connection of a longer request. When HTTP has
// returned, the port is free.
func TestHTTP(t *testing.T) {
	for name, grace := range map[string]time.Duration{"finishes": time.Minute, "is cut off": 0} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				stop()
				if grace == 0 {
					<-r.Context().Done()
				}
				_, _ = io.WriteString(w, "done")
			})}
			ended := make(chan error, 1)
			go func() { ended <- run.HTTP(ctx, srv, ln, grace, run.Limits{}) }()
			resp, err := http.Get("http://" + ln.Addr().String())
			if err == nil {
				_ = resp.Body.Close()
			}
			if (err == nil) != (grace > 0) {
				t.Errorf("running request with a grace period of %s: got error %v, want success %t", grace, err, grace > 0)
			}
			if err := <-ended; err != nil {
				t.Errorf("HTTP = %v", err)
			}
			if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
				t.Error("the server still listens")
			}
		})
	}
}

func TestHTTPWithoutItsListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run.HTTP(t.Context(), &http.Server{ReadHeaderTimeout: time.Minute}, ln, 0, run.Limits{}); err == nil {
		t.Error("HTTP with a closed listener: got no error")
	}
}
