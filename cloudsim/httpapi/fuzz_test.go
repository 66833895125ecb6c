package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// FuzzRouter sends random requests. It proves that no answer has a status of 500 or more, and that
// the body of each answer with a 4xx status is a complete problem document.
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
	api := newHandler(f)
	for _, s := range everyRoute(f, api) {
		f.Add(s[0], s[1], s[2], s[3], s[4])
	}
	f.Fuzz(func(t *testing.T, method, target, header, value, body string) {
		r, err := http.NewRequest(method, "http://cloud"+target, strings.NewReader(body))
		if err != nil {
			t.Skip("the input is no valid HTTP request")
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

// everyRoute returns a request to each route of the OpenAPI document. The body of each
// request contains every member of the body's schema.
func everyRoute(f *testing.F, api http.Handler) (all [][5]string) {
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var doc document
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		f.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method, o := range methods {
			body := []byte{}
			if s, ok := o.RequestBody.Content["application/json"]; ok {
				body, _ = json.Marshal(doc.example(s.Schema, 0)) // cannot fail: the value was made from decoded JSON
			}
			target := strings.NewReplacer("{id}", "i-000001", "{name}", "s").Replace(path)
			all = append(all, [5]string{strings.ToUpper(method), target, "Content-Type", "application/json", string(body)})
		}
	}
	if len(all) < 100 {
		f.Fatalf("got %d routes, want at least 100", len(all))
	}
	slices.SortFunc(all, func(a, b [5]string) int { return slices.Compare(a[:], b[:]) })
	return all
}

// document contains those parts of an OpenAPI document that everyRoute uses.
type document struct {
	Paths map[string]map[string]struct {
		RequestBody struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Properties map[string]schema
	Items      *schema
	Examples   []any
	Enum       []any
}

func (d document) example(s schema, depth int) any {
	if s.Ref != "" {
		s = d.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	kind := s.Type
	if several, ok := kind.([]any); ok { // the other type is null
		kind = several[0]
	}
	switch {
	case len(s.Examples) > 0:
		return s.Examples[0]
	case len(s.Enum) > 0:
		return s.Enum[0]
	case depth > 6:
		return nil
	case kind == "object":
		v := map[string]any{}
		for name, p := range s.Properties {
			if name != "$schema" {
				v[name] = d.example(p, depth+1)
			}
		}
		return v
	case kind == "array" && s.Items != nil:
		return []any{d.example(*s.Items, depth+1)}
	case kind == "string":
		return "x"
	case kind == "boolean":
		return true
	}
	return 1
}

func newHandler(f *testing.F) http.Handler {
	log := slog.New(slog.DiscardHandler)
	st, err := store.Open(filepath.Join(f.TempDir(), "cloud.db"))
	if err != nil {
		f.Fatal(err)
	}
	cfg := engine.Default()
	cfg.Profile = engine.Instant
	cfg.StateDir = filepath.Join(f.TempDir(), "states")
	cfg.Registry = "127.0.0.1:5000"
	e := engine.New(log, st, cfg)
	if err := errors.Join(e.Prepare(), e.EnsureAdmin("secret")); err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, e.Check(), st.Close()); err != nil {
			f.Errorf("the cloud's store is damaged: %v", err)
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
		t.Fatalf("got status %d: %s; want less than 500", w.Code, w.Body)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("status %d has Content-Type %q: %s", w.Code, ct, w.Body)
	}
	var p cloudsim.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Kind == cloudsim.Internal || p.Detail == "" || p.RequestID == "" {
		t.Fatalf("status %d: the body is no complete problem document: %s (%v)", w.Code, w.Body, err)
	}
}
