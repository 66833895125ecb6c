package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// localCloud is a cloud with an HTTP handler that a test calls directly, without a network. The
// engine completes due work only after the test has called runEngine.
type localCloud struct {
	http.Handler
	engine *engine.Engine
	store  *store.Store
	log    bytes.Buffer
	spans  *tracetest.SpanRecorder
}

func observe(t *testing.T, change func(*engine.Config)) *localCloud {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "cloud.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	cfg := engine.Default()
	cfg.Profile = engine.Instant
	if change != nil {
		change(&cfg)
	}
	o := &localCloud{store: st, spans: tracetest.NewSpanRecorder()}
	log := slog.New(slog.NewJSONHandler(&o.log, nil))
	o.engine = engine.New(log, st, cfg)
	if err := o.engine.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := o.engine.EnsureAdmin("secret"); err != nil {
		t.Fatal(err)
	}
	o.Handler = httpapi.New(log, o.engine, httpapi.Config{
		Version: "test", Metrics: prometheus.NewRegistry(), LogRequests: true, Tracer: sdk.NewTracerProvider(sdk.WithSpanProcessor(o.spans)),
	})
	return o
}

func (o *localCloud) ask(method, target, body string, header ...string) (int, string) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (o *localCloud) runEngine(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.engine.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done // an error is expected if the test closed the store
	})
}

// TestReady proves that a cloud becomes ready after it has finished the work that became due before
// its start. A cloud is not ready while its store cannot commit. The route /readyz runs several
// named checks. A request can exclude a check from the result.
func TestReady(t *testing.T) {
	o := observe(t, nil)
	if code, body := o.ask("GET", "/readyz", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "[-]recovered failed: work that became due") || !strings.Contains(body, "[+]store-commit ok") {
		t.Errorf("readyz before the recovery: got %d %s, want 503", code, body)
	}
	for _, path := range []string{"/livez", "/healthz", "/readyz?exclude=recovered"} {
		if code, body := o.ask("GET", path, ""); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: got %d %s, want 200", path, code, body)
		}
	}
	o.runEngine(t)
	eventually.True(t, "the cloud is ready", func() bool {
		code, _ := o.ask("GET", "/readyz", "")
		return code == http.StatusOK
	})
	if _, body := o.ask("GET", "/readyz?verbose", ""); body != "[+]ping ok\n[+]store-read ok\n[+]store-commit ok\n[+]recovered ok\nreadyz check passed\n" {
		t.Errorf("verbose readyz: got %s", body)
	}
	now := time.Now().Add(time.Hour) // so late that no check uses a cached result
	o.store.Now = func() time.Time { return now }
	if err := o.store.Close(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/livez": 200, "/healthz": 503, "/readyz": 503, "/healthz?exclude=store-read": 503} {
		if code, body := o.ask("GET", path, ""); code != want || want != 200 && !strings.Contains(body, "[-]store-commit failed") {
			t.Errorf("%s with a closed store: got %d %s, want %d", path, code, body, want)
		}
	}
}

// TestMetrics proves that the metrics count throttled calls, exceeded quotas and faults.
func TestMetrics(t *testing.T) {
	o := observe(t, func(c *engine.Config) {
		c.Quotas = map[cloudsim.QuotaName]int64{cloudsim.QuotaAddresses: 1}
		c.FrozenAt = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) // so that no token bucket refills
	})
	for _, name := range []string{"a", "b", "c"} {
		o.ask("POST", "/v1/addresses", `{"name":"`+name+`"}`)
	}
	o.ask("POST", "/v1/faults", `{"name":"slow-down","match":{"operation":"zones.list"},"effect":{"type":"throttle"}}`)
	for range 3 {
		o.ask("GET", "/v1/zones", "")
	}
	o.ask("PUT", "/v1/rate-limits", `{"read":{"perSecond":1,"burst":1}}`)
	for range 3 {
		o.ask("GET", "/v1/regions", "")
	}
	_, page := o.ask("GET", "/metrics", "")
	for _, line := range []string{
		`cloudsim_api_requests_total{code="429",operation="addresses.create"} 2`,
		`cloudsim_quota_exceeded_total{quota="addresses"} 2`,
		`cloudsim_quota_limit{project="proj-000001",quota="addresses"} 1`,
		`cloudsim_quota_usage{project="proj-000001",quota="addresses"} 1`,
		`cloudsim_quota_usage{project="proj-000001",quota="networks"} 1`,
		`cloudsim_fault_hits_total{effect="throttle",fault="slow-down"} 3`,
		`cloudsim_api_throttled_requests_total{operation="zones.list",reason="fault"} 3`,
		`cloudsim_api_throttled_requests_total{operation="regions.list",reason="rate_limit"} 2`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the metrics do not contain %s", line)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "cloudsim_") && !strings.Contains(line, "duration") {
				t.Log(line)
			}
		}
	}
}

// TestRequestLogAndTrace proves that the cloud writes one log line for a request, and adds one span
// to the caller's trace. The level of the line depends on the status. The line and the span contain
// no secret.
func TestRequestLogAndTrace(t *testing.T) {
	o := observe(t, nil)
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	o.ask("GET", "/v1/zones/sim-1a?x=hush-query", "", "X-Request-Id", "r-1")
	o.ask("GET", "/v1/zones/sim-1a", "", "X-Request-Id", "r-2", "Traceparent", "00-"+parent+"-00f067aa0ba902b7-01")
	o.ask("POST", "/v1/addresses", `{"name":"-hush-body"}`, "X-Request-Id", "r-3")
	o.ask("GET", "/nowhere", "", "X-Request-Id", "r-4", "Authorization", "Bearer hush-header")
	if err := o.store.Close(); err != nil {
		t.Fatal(err)
	}
	o.ask("GET", "/readyz", "", "X-Request-Id", "r-5")
	type line struct{ Level, Msg, Method, Route, RequestID, Caller, Operation, Target string }
	type key struct {
		id     string
		status int
	}
	want := map[key]line{
		{"r-1", 400}: {"WARN", "request", "GET", "/v1/zones/{id}", "r-1", "admin", "zones.get", "sim-1a"},
		{"r-2", 200}: {"INFO", "request", "GET", "/v1/zones/{id}", "r-2", "admin", "zones.get", "sim-1a"},
		{"r-3", 400}: {"WARN", "request", "POST", "/v1/addresses", "r-3", "admin", "addresses.create", ""},
		{"r-4", 404}: {"WARN", "request", "GET", "", "r-4", "", "", ""},
		{"r-5", 503}: {"ERROR", "request", "GET", "/readyz", "r-5", "", "", ""},
	}
	text := o.log.String()
	for d := json.NewDecoder(&o.log); ; {
		var l struct {
			line
			Status int
			Took   time.Duration
		}
		if err := d.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		k := key{l.RequestID, l.Status}
		if l.line != want[k] || l.Took <= 0 {
			t.Errorf("access log: got %+v, want %+v", l, want[k])
		}
		delete(want, k)
	}
	if len(want) > 0 {
		t.Errorf("the access log does not contain %v", want)
	}
	spans := o.spans.Ended()
	if len(spans) != 5 || spans[1].Name() != "GET /v1/zones/{id}" || spans[1].Parent().TraceID().String() != parent || spans[4].Status().Code != codes.Error {
		t.Fatalf("spans: got %+v, want 5", spans)
	}
	attributes := attribute.NewSet(spans[1].Attributes()...)
	for k, v := range map[attribute.Key]string{
		"http.request.method": "GET", "http.route": "/v1/zones/{id}", "http.response.status_code": "200",
		"cloudsim.request_id": "r-2", "cloudsim.caller": "admin", "cloudsim.operation": "zones.get", "cloudsim.target": "sim-1a",
	} {
		if got, ok := attributes.Value(k); !ok || got.String() != v {
			t.Errorf("span attribute %s: got %s, want %s", k, got.String(), v)
		}
	}
	for _, s := range spans {
		raw, err := json.Marshal(s.Attributes())
		if err != nil {
			t.Fatal(err)
		}
		text += string(raw)
	}
	if strings.Contains(text, "hush") || strings.Contains(text, "secret") {
		t.Errorf("the log contains a secret: %s", text)
	}
}
