package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// FuzzRouter sends anything to any route: the answer is never a 5xx, and what
// is refused is a problem document that says its kind.
func FuzzRouter(f *testing.F) {
	const lb = `{"name":"x","region":"sim-1","listeners":[{"protocol":"tcp","port":80,"targetPort":30080}],"healthCheck":{"protocol":"tcp"}}`
	for _, s := range [][5]string{
		{"POST", "/v1/instances", "Content-Type", "application/json", `{"name":"a","zone":"sim-1a","type":"small"}`},
		{"POST", "/v1/instances", "Idempotency-Key", "k", `{"name":"a","zone":"sim-1a","type":"small"}`},
		{"POST", "/v1/load-balancers", "Content-Type", "application/json", lb},
		{"PUT", "/v1/load-balancers/lb-000001", "If-Match", `"12"`, lb},
		{"PUT", "/v1/load-balancers/lb-000001/targets", "Accept", "text/html", `{"targets":[{"instance":"i-000001"}]}`},
		{"POST", "/v1/tokens", "Content-Type", "application/json; charset=latin1", `{"name":"t","role":"viewer","ttlSeconds":1}`},
		{"POST", "/v1/addresses", "Content-Type", "text/plain", `{"name":"a","labels":{"a":"b"}}`},
		{"POST", "/v1/projects", "Content-Length", "-1", `{"name":"p"}`},
		{"GET", "/v1/instances?label=a=b&label=c&limit=5000&after=i-000001&zone=x", "Cloud-Project", "nobody", ""},
		{"GET", "/v1/instances/%00?x=%zz", "X-Request-Id", "\x7f", ""},
		{"GET", "/v1/operations/op-000001?waitSeconds=1", "Authorization", "Bearer no", ""},
		{"GET", "/v1/events?since=18446744073709551615&kind=instance", "Accept", "*/*", ""},
		{"GET", "/v1/watch?since=-1", "Connection", "upgrade", ""},
		{"DELETE", "/v1/addresses/", "Transfer-Encoding", "chunked", ""},
		{"HEAD", "//v1/../healthz", "Host", "", ""},
		{"PATCH", "/openapi.json", "Range", "bytes=0-", "null"},
	} {
		f.Add(s[0], s[1], s[2], s[3], s[4])
	}
	api := open(f)
	f.Fuzz(func(t *testing.T, method, target, header, value, body string) {
		r, err := http.NewRequest(method, "http://cloud"+target, strings.NewReader(body))
		if err != nil {
			t.Skip("no such request reaches a server")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // ends a watch
		defer cancel()
		r = r.WithContext(ctx)
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		checkAnswer(t, w)
	})
}

// open serves a cloud without a network between.
func open(f *testing.F) http.Handler {
	log := slog.New(slog.DiscardHandler)
	st, err := store.Open(filepath.Join(f.TempDir(), "cloud.db"))
	if err != nil {
		f.Fatal(err)
	}
	cfg := engine.Default()
	cfg.Profile = engine.Instant
	e := engine.New(log, st, cfg)
	if err := errors.Join(e.Prepare(), e.EnsureAdmin("secret")); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := errors.Join(e.Check(), st.Close()); err != nil {
			f.Errorf("the cloud's file is damaged: %v", err)
		}
	})
	return httpapi.New(log, e, httpapi.Config{Version: "test", Metrics: prometheus.NewRegistry()})
}

func checkAnswer(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code < 400 {
		return
	}
	if w.Code >= 500 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("%d is %q: %s", w.Code, ct, w.Body)
	}
	var p cloudsim.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Kind == cloudsim.Internal || p.Detail == "" || p.RequestID == "" {
		t.Fatalf("%d: %s (%v)", w.Code, w.Body, err)
	}
}
