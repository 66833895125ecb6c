package dialect_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

func oneCallDialect(do func(*dialect.Request) (int, any, error)) dialect.Dialect {
	return dialect.Dialect{
		Name:  "plain",
		Calls: []dialect.Call{{Name: "things.do", Method: "POST", Path: "/things/{id}", Do: do}},
		Token: func(r *dialect.Request) (string, error) { return r.Header.Get("Token"), nil },
		Refuse: func(w http.ResponseWriter, r *dialect.Request, err error) {
			http.Error(w, r.ID+" "+cloudsim.KindOf(err).Error()+" "+err.Error(), http.StatusTeapot)
		},
		IDHeader: "Their-Id",
	}
}

func serve(t *testing.T, cfg dialect.Config, do func(*dialect.Request) (int, any, error)) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), oneCallDialect(do), cfg))
	t.Cleanup(srv.Close)
	return srv
}

// post sends a request with a body, a token and a request id. It returns the status, the request id
// and the body of the answer. If the server sends no answer, the status is 0.
func post(t *testing.T, url, token, id, body string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Token", token)
	req.Header.Set("X-Request-Id", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Their-Id"), string(raw)
}

// TestCallsHaveRequestIDAndToken calls a dialect, which then calls the cloud. It proves that the
// call to the cloud contains the request id and the token of the caller. It also proves that this
// call contains the name of the dialect's call.
func TestCallsHaveRequestIDAndToken(t *testing.T) {
	cloud := cloudtest.Start(t)
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	srv := serve(t, dialect.Config{URL: cloud.URL, Transport: cloud.HTTP.Transport, Project: cloud.Project}, func(r *dialect.Request) (int, any, error) {
		i, err := r.Cloud.CreateInstance(r.Context(), cloudsim.CreateInstance{Name: r.PathValue("id"), Zone: "sim-1a", Type: "small"})
		return http.StatusCreated, i.ID, err
	})
	status, id, body := post(t, srv.URL+"/things/node-1", secret, "my-id", "")
	if status != http.StatusCreated || id != "my-id" || body != "\"i-000001\"\n" {
		t.Errorf("got answer %d %s %s, want 201 with the id my-id", status, id, body)
	}
	trail, err := cloud.Audit(context.Background(), cloudsim.AuditOptions{Operation: "instances.create"})
	if err != nil || len(trail.Items) != 1 || trail.Items[0].RequestID != "my-id" || trail.Items[0].DialectCall != "plain.things.do" {
		t.Errorf("audit: got %+v, error %v; want 1 entry with the request id and the call of the dialect", trail, err)
	}
	for token, want := range map[string]string{"": "my-id unauthenticated the request has no token\n", "wrong": "my-id unauthenticated the token is not known\n"} {
		if status, _, body := post(t, srv.URL+"/things/x", token, "my-id", ""); status != http.StatusTeapot || body != want {
			t.Errorf("token %q: got %d %q, want %q", token, status, body, want)
		}
	}
	if _, id, _ := post(t, srv.URL+"/things/x", secret, "not valid!", ""); !strings.HasPrefix(id, "req-") {
		t.Errorf("request with an invalid id: got id %q, want a generated id", id)
	}
}

// TestPanicAndMetrics proves that the caller gets an error if the function of a call panics. It
// also proves that the metrics count supported and unsupported calls.
func TestPanicAndMetrics(t *testing.T) {
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	d := oneCallDialect(func(*dialect.Request) (int, any, error) { panic("broken") })
	srv := httptest.NewServer(dialect.New(slog.New(slog.NewTextHandler(&log, nil)), d, dialect.Config{URL: "http://127.0.0.1:1", Metrics: reg}))
	defer srv.Close()
	dialect.New(slog.New(slog.DiscardHandler), d, dialect.Config{Metrics: reg}) // a second dialect may share the registry
	if status, _, body := post(t, srv.URL+"/things/1", "x", "a", ""); status != http.StatusTeapot || !strings.HasPrefix(body, "a internal") {
		t.Errorf("call that panics: got %d %q", status, body)
	}
	for _, path := range []string{"/widgets/1", "/widgets", "/../x y"} {
		if status, _, body := post(t, srv.URL+strings.ReplaceAll(path, " ", "%20"), "x", "a", ""); status != http.StatusTeapot || !strings.Contains(body, "is not supported") {
			t.Errorf("%s: got %d %q, want an error of an unsupported call", path, status, body)
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP cloudsim_dialect_requests_total Requests of a dialect's clients, by call and HTTP status. The call is empty for unsupported calls.
# TYPE cloudsim_dialect_requests_total counter
cloudsim_dialect_requests_total{call="",code="418",dialect="plain"} 3
cloudsim_dialect_requests_total{call="things.do",code="418",dialect="plain"} 1
# HELP cloudsim_dialect_unsupported_total Unsupported calls, by the resource in their path, or by the name of the call.
# TYPE cloudsim_dialect_unsupported_total counter
cloudsim_dialect_unsupported_total{dialect="plain",resource="other"} 1
cloudsim_dialect_unsupported_total{dialect="plain",resource="widgets"} 2
`)); err != nil {
		t.Error(err)
	}
	resp, err := http.Get(srv.URL + "/readyz")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz without a cloud: got %v, error %v; want 503", resp, err)
	}
}

type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (d *deadlineRecorder) SetWriteDeadline(t time.Time) error { d.deadline = t; return nil }

// TestWriteDeadline proves that a client that does not read its answer cannot keep the connection
// open forever.
func TestWriteDeadline(t *testing.T) {
	h := dialect.New(slog.New(slog.DiscardHandler), oneCallDialect(func(*dialect.Request) (int, any, error) { return http.StatusOK, "x", nil }), dialect.Config{})
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/things/1", nil)
	r.Header.Set("Token", "x")
	before := time.Now()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.deadline.Before(before) || w.deadline.After(before.Add(time.Minute)) {
		t.Errorf("got status %d and write deadline %s after the request, want 200 and at most one minute", w.Code, w.deadline.Sub(before))
	}
}

// TestDroppedReply proves that the caller of a dialect gets no reply if the cloud sends no reply to
// the dialect. But if the cloud does not run, the dialect answers with an error.
func TestDroppedReply(t *testing.T) {
	do := func(r *dialect.Request) (int, any, error) {
		_, err := r.Cloud.WhoAmI(r.Context())
		return http.StatusOK, nil, err
	}
	drops := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer drops.Close()
	if status, _, body := post(t, serve(t, dialect.Config{URL: drops.URL}, do).URL+"/things/1", "x", "a", ""); status != 0 {
		t.Errorf("call with a dropped reply: got %d %s, want no reply", status, body)
	}
	if status, _, body := post(t, serve(t, dialect.Config{URL: "http://127.0.0.1:1"}, do).URL+"/things/1", "x", "a", ""); status != http.StatusTeapot || !strings.HasPrefix(body, "a unavailable") {
		t.Errorf("call without a cloud: got %d %s", status, body)
	}
}

// TestIDs proves that the function ID is the inverse of the function Number. It also proves that
// the function Name returns valid names, and different names for different arguments.
func TestIDs(t *testing.T) {
	for id, n := range map[string]int64{"i-000001": 1, "i-00002a": 42, "i-1000000": 1 << 24} {
		if got := dialect.Number(id); got != n || dialect.ID[string]("i", n) != id {
			t.Errorf("%s: got number %d and id %s, want number %d and the same id", id, got, dialect.ID[string]("i", n), n)
		}
	}
	for _, bad := range []string{"", "i", "i-", "i-xyz", "i--1", "i-ffffffffffffffffff"} {
		if n := dialect.Number(bad); n != 0 {
			t.Errorf("invalid id %q: got number %d, want 0", bad, n)
		}
	}
	seen := map[string]bool{}
	for _, name := range []string{"node-1", "Node-1", "node_1", "", strings.Repeat("a", 64), strings.Repeat("a", 65), "ä"} {
		own := dialect.Name(name)
		if err := (cloudsim.CreateInstance{Name: own, Zone: "z", Type: "t"}).Validate(); err != nil || seen[own] {
			t.Errorf("%q: got name %q, error %v; want a new valid name", name, own, err)
		}
		seen[own] = true
	}
	if dialect.Name("node-1") != "node-1" {
		t.Error("the dialect changed a valid name")
	}
}

// TestLabels proves that callers can neither read nor set the labels in which dialects store their
// own values.
func TestLabels(t *testing.T) {
	hidden := dialect.LabelPrefix + "type"
	if got := dialect.Visible(map[string]string{"a": "b", hidden: "c"}); len(got) != 1 || got["a"] != "b" {
		t.Errorf("visible labels: got %v, want a=b", got)
	}
	got, err := dialect.WithLabels(map[string]string{"a": "c"}, map[string]string{"a": "b", "d": "e", hidden: "f"})
	if err != nil || len(got) != 2 || got["a"] != "c" || got[hidden] != "f" {
		t.Errorf("labels: got %v, error %v", got, err)
	}
	if _, err := dialect.WithLabels(map[string]string{hidden: "x"}, nil); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("reserved label: got error %v, want Invalid", err)
	}
}

// FuzzDecode proves that Decode does not panic for any body. Each error of Decode is
// either NotJSON or Invalid.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a":1}`, `{"a":{"b":[{"c":true}]}}`, `{"x":1}`, "[]", `{}{}`, `{"a":"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var into struct {
			A any            `json:"a"`
			B *int           `json:"b"`
			C map[string]any `json:"c"`
		}
		err := dialect.Decode(raw, &into)
		if _, notJSON := errors.AsType[dialect.NotJSON](err); err != nil && !notJSON && !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("body %q: got error %v, want NotJSON or Invalid", raw, err)
		}
	})
}

// TestSelect proves that the function Select of a dialect selects the call for a request, and that
// the function Write writes the answer. The header Date of an answer contains the cloud's time. If
// the function Token returns an error, the caller gets this error.
func TestSelect(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	cloud := cloudtest.Start(t, cloudtest.WithFrozenClock(at))
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	d := oneCallDialect(func(r *dialect.Request) (int, any, error) {
		me, err := r.Cloud.WhoAmI(r.Context())
		return http.StatusOK, me.Caller, err
	})
	d.Select = func(r *dialect.Request) (string, error) {
		raw, err := r.ReadBody()
		if err == nil && len(raw) == 0 {
			err = cloudsim.InvalidField("body", "is empty")
		}
		return string(raw), err
	}
	token := d.Token
	d.Token = func(r *dialect.Request) (string, error) {
		if raw, err := r.ReadBody(); err != nil || string(raw) != "things.do" { // a second read returns the same body
			t.Errorf("second read of the body: got %q, error %v", raw, err)
		}
		if r.Header.Get("Token") == "broken" {
			return "", cloudsim.Errorf(cloudsim.Unauthenticated, "no such token")
		}
		return token(r)
	}
	d.Write = func(w http.ResponseWriter, r *dialect.Request, status int, body any) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, r.ID+" is "+body.(string))
	}
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), d, dialect.Config{URL: cloud.URL, Transport: cloud.HTTP.Transport, Metrics: reg}))
	defer srv.Close()
	for _, tc := range []struct {
		token, body string
		status      int
		want        string
	}{
		{secret, "things.do", http.StatusOK, "my-id is admin"},
		{"broken", "things.do", http.StatusTeapot, "my-id unauthenticated no such token\n"},
		{"", "things.do", http.StatusTeapot, "my-id unauthenticated the request has no token\n"},
		{secret, "", http.StatusTeapot, "my-id invalid body is empty\n"},
		{secret, "things.undo", http.StatusTeapot, "my-id internal things.undo is not supported by cloudsim's dialect: 'allinone dialect calls plain' lists the supported calls\n"},
	} {
		if status, _, body := post(t, srv.URL+"/any/path", tc.token, "my-id", tc.body); status != tc.status || body != tc.want {
			t.Errorf("token %.10q, body %q: got %d %q, want %d %q", tc.token, tc.body, status, body, tc.status, tc.want)
		}
	}
	req, err := http.NewRequest(http.MethodPost, srv.URL, strings.NewReader("things.do"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Token", secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := resp.Header.Get("Date"); got != at.Format(http.TimeFormat) {
		t.Errorf("header Date: got %q, want the cloud's time", got)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP cloudsim_dialect_unsupported_total Unsupported calls, by the resource in their path, or by the name of the call.
# TYPE cloudsim_dialect_unsupported_total counter
cloudsim_dialect_unsupported_total{dialect="plain",resource="things.undo"} 1
`), "cloudsim_dialect_unsupported_total"); err != nil {
		t.Error(err)
	}
}

// TestCodedErrorIsNoInternalError proves that the server does not log a CodedError as an error of
// the dialect. The caller gets the text of a CodedError, but not the text of an internal error.
func TestCodedErrorIsNoInternalError(t *testing.T) {
	cloud := cloudtest.Start(t)
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		err    error
		logged bool
		body   string
	}{
		{dialect.CodedError{Failure: dialect.Failure{Status: http.StatusConflict, Code: "in_use"}, Msg: "it is in use"}, false, "my-id it is in use"},
		{errors.New("broken"), true, "my-id internal error: the log of the dialect contains the cause, under the request id my-id"},
	} {
		var log strings.Builder
		d := oneCallDialect(func(*dialect.Request) (int, any, error) { return 0, nil, tc.err })
		d.Refuse = func(w http.ResponseWriter, r *dialect.Request, err error) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, r.ID+" "+dialect.Message(r, err))
		}
		srv := httptest.NewServer(dialect.New(slog.New(slog.NewTextHandler(&log, nil)), d, dialect.Config{URL: cloud.URL, Transport: cloud.HTTP.Transport}))
		_, _, body := post(t, srv.URL+"/things/1", secret, "my-id", "")
		srv.Close()
		if logged := strings.Contains(log.String(), "request failed"); body != tc.body || logged != tc.logged {
			t.Errorf("%v: got body %q, log %q; want body %q, logged %t", tc.err, body, log.String(), tc.body, tc.logged)
		}
	}
}

// TestServeFinishesRequests ends Serve's context while a request runs. It proves that this request
// can still call the cloud, and succeeds.
func TestServeFinishesRequests(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cloud := cloudtest.Start(t)
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := oneCallDialect(func(r *dialect.Request) (int, any, error) {
		i, err := r.Cloud.CreateInstance(r.Context(), cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1a", Type: "small"})
		if err != nil {
			return 0, nil, err
		}
		stop()
		i, err = r.Cloud.GetInstance(r.Context(), i.ID)
		return http.StatusOK, i.ID, err
	})
	ended := make(chan error, 1)
	h := dialect.New(slog.New(slog.DiscardHandler), d, dialect.Config{URL: cloud.URL, Transport: cloud.HTTP.Transport, Project: cloud.Project})
	go func() { ended <- dialect.Serve(ctx, ln, h) }()
	if status, _, body := post(t, "http://"+ln.Addr().String()+"/things/1", secret, "my-id", ""); status != http.StatusOK {
		t.Errorf("request that runs when Serve's context ends: got %d %q, want 200", status, body)
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

// TestServeEndsWaitingRequests proves that Serve does not wait forever for a running request. After
// Serve's context has ended, the request can call the cloud only for a limited time. Then Serve
// cancels the request.
func TestServeEndsWaitingRequests(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	d := oneCallDialect(func(r *dialect.Request) (int, any, error) {
		stop()
		<-r.Context().Done()
		return 0, nil, r.Context().Err()
	})
	h := dialect.New(slog.New(slog.DiscardHandler), d, dialect.Config{URL: "http://127.0.0.1:1"})
	go func() { ended <- dialect.Serve(ctx, ln, h) }()
	if status, _, body := post(t, "http://"+ln.Addr().String()+"/things/1", "x", "my-id", ""); status == http.StatusOK {
		t.Errorf("request that waits when Serve's context ends: got %d %q, want an error", status, body)
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

// TestDetached proves that the context of a detached request does not end while the client is
// connected. After the client has disconnected, the context ends after one minute. This also applies
// to a request that the dialect detaches after the client has disconnected.
func TestDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, disconnect := context.WithCancel(t.Context())
		defer disconnect()
		r := &dialect.Request{Request: httptest.NewRequestWithContext(ctx, http.MethodPost, "/things/1", nil)}
		early, cancel := r.Detached()
		defer cancel()
		time.Sleep(time.Hour)
		disconnect()
		late, cancel := r.Detached()
		defer cancel()
		for _, step := range []struct {
			wait  time.Duration
			ended bool
		}{{59 * time.Second, false}, {time.Second, true}} {
			time.Sleep(step.wait)
			synctest.Wait()
			for name, d := range map[string]*dialect.Request{"detached before the disconnection": early, "detached after it": late} {
				if ended := d.Context().Err() != nil; ended != step.ended {
					t.Errorf("request %s: got the end of the context %t, want %t", name, ended, step.ended)
				}
			}
		}
	})
}

func TestDisconnectIsNoInternalError(t *testing.T) {
	var log strings.Builder
	ctx, disconnect := context.WithCancel(t.Context())
	defer disconnect()
	d := oneCallDialect(func(r *dialect.Request) (int, any, error) {
		disconnect()
		_, err := r.Cloud.WhoAmI(r.Context())
		return http.StatusOK, nil, err
	})
	h := dialect.New(slog.New(slog.NewTextHandler(&log, nil)), d, dialect.Config{URL: "http://127.0.0.1:1"})
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/things/1", nil)
	r.Header.Set("Token", "x")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if log.Len() > 0 {
		t.Errorf("got the log %q, want no lines", log.String())
	}
}
