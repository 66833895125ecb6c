package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/httpdriver"
	"github.com/cloudsim-dev/allinone/conform/proxy"
)

// api is a fake API of a cloud. The field calls is a channel. For each call that the API receives,
// it sends one line to this channel.
type api struct {
	proxy   *proxy.Proxy
	url     string // URL of the proxy
	control conform.Faults
	calls   chan string
}

// start runs an API, a proxy in front of the API, and a server that controls the proxy, until the
// test ends.
func start(t *testing.T) *api {
	t.Helper()
	a := &api{calls: make(chan string, 100)}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		a.calls <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"servers":[{"id":1}],"meta":{"total":1}}`)
	}))
	t.Cleanup(upstream.Close)
	p, err := proxy.New(upstream.URL + "/api")
	if err != nil {
		t.Fatal(err)
	}
	front, control := httptest.NewServer(p), httptest.NewServer(httpdriver.FaultHandler(p))
	t.Cleanup(front.Close)
	t.Cleanup(control.Close)
	d, err := httpdriver.New(control.URL)
	if err != nil {
		t.Fatal(err)
	}
	a.proxy, a.url, a.control = p, front.URL, d
	return a
}

func (a *api) call(t *testing.T, method, path, body string) (*http.Response, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer header-secret")
	req.Header.Set("X-Auth-Token", "header-secret")
	req.Header.Set("Cookie", "session=header-secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

func (a *api) recording(t *testing.T) []conform.Call {
	t.Helper()
	r, ok := a.control.(conform.Recorder)
	if !ok {
		t.Fatal("the control client does not implement conform.Recorder")
	}
	all, err := r.Recording(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestForward proves that the proxy forwards calls, counts them and derives their names from the
// requests.
func TestForward(t *testing.T) {
	a := start(t)
	for _, path := range []string{"/v1/servers", "/v1/servers/42?x=1", "/v1/servers/43"} {
		resp, body, err := a.call(t, "GET", path, "")
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(body, `"id":1`) {
			t.Fatalf(`%s: got status %d, body %q, error %v; want status 200 and "id":1 in the body`, path, statusOf(resp), body, err)
		}
	}
	if _, _, err := a.call(t, "POST", "/v1/load_balancers", `{"name":"a"}`); err != nil {
		t.Fatal(err)
	}
	if got, want := <-a.calls, "GET /api/v1/servers Bearer header-secret"; got != want {
		t.Errorf("the API got %q, want %q", got, want)
	}
	calls, err := a.control.Calls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]conform.Count{"GET /v1/servers": {Calls: 1}, "GET /v1/servers/{id}": {Calls: 2}, "POST /v1/load_balancers": {Calls: 1, Writes: true}} {
		if calls[name] != want {
			t.Errorf("%s: got %+v, want %+v", name, calls[name], want)
		}
	}
	if got := a.recording(t); len(got) != 4 || got[3].Body != `{"name":"a"}` || got[3].Result != "200" {
		t.Errorf(`recording: got %+v, want 4 calls, the last with the body {"name":"a"} and the result 200`, got)
	}
}

// TestActions proves that the proxy uses the action of an AWS call as the name of the call.
func TestActions(t *testing.T) {
	a := start(t)
	for body, want := range map[string]conform.Count{"Action=DescribeInstances&Version=1": {Calls: 1}, "Action=CreateLoadBalancer": {Calls: 1, Writes: true}} {
		resp, err := http.Post(a.url, "application/x-www-form-urlencoded; charset=utf-8", strings.NewReader(body)) //nolint:noctx // the server is in this process
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		name, _, _ := strings.Cut(strings.TrimPrefix(body, "Action="), "&")
		calls, err := a.control.Calls(t.Context())
		if err != nil || calls[name] != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, calls, err, want)
		}
	}
}

// TestFaults checks the effect of each kind of fault except FaultTimeout. It also checks whether
// a call with this kind of fault reaches the API.
func TestFaults(t *testing.T) {
	for _, x := range []struct {
		kind    conform.FaultKind
		status  int // 0 if there is no answer
		reaches bool
	}{
		{conform.FaultError, 500, false},
		{conform.FaultUnauthorized, 401, false},
		{conform.FaultThrottle, 429, false},
		{conform.FaultLoseReply, 0, true},
		{conform.FaultEmptyList, 200, true},
		{conform.FaultLatency, 200, true},
	} {
		t.Run(string(x.kind), func(t *testing.T) {
			a, ctx := start(t), t.Context()
			method := "POST" // Go's client repeats a GET whose connection is closed
			if x.kind == conform.FaultEmptyList {
				method = "GET"
			}
			if err := a.control.SetFault(ctx, conform.Fault{Kind: x.kind, Count: 1, LatencySeconds: 0.001}); err != nil {
				t.Fatal(err)
			}
			resp, body, err := a.call(t, method, "/v1/servers", "{}")
			if got := statusOf(resp); got != x.status || (err != nil) != (x.status == 0) {
				t.Errorf("got status %d, %v, want %d", got, err, x.status)
			}
			if got := len(a.calls) > 0; got != x.reaches {
				t.Errorf("the API got the call: %t, want %t", got, x.reaches)
			}
			if x.kind == conform.FaultThrottle && resp.Header.Get("Retry-After") != "1" {
				t.Errorf("header Retry-After: got %q, want 1", resp.Header.Get("Retry-After"))
			}
			if x.kind == conform.FaultEmptyList && body != `{"meta":{"total":1},"servers":[]}` {
				t.Errorf(`body of the empty list: got %s, want {"meta":{"total":1},"servers":[]}`, body)
			}
			if got := a.recording(t); len(got) != 1 || got[0].Fault != x.kind {
				t.Errorf("recording: got %+v, want one call with the fault %s", got, x.kind)
			}
			if resp, body, err = a.call(t, method, "/v1/servers", "{}"); err != nil || resp.StatusCode != 200 || !strings.Contains(body, `"id":1`) {
				t.Errorf(`second call, after a fault with the count 1: got status %d, body %q, error %v; want status 200 and "id":1 in the body`, statusOf(resp), body, err)
			}
		})
	}
}

func statusOf(r *http.Response) int {
	if r == nil {
		return 0
	}
	return r.StatusCode
}

// TestTimeout proves that a call hangs until the test clears the fault.
func TestTimeout(t *testing.T) {
	a, ctx := start(t), t.Context()
	if err := a.control.SetFault(ctx, conform.Fault{Kind: conform.FaultTimeout, Writes: true}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.call(t, "GET", "/v1/servers", ""); err != nil {
		t.Errorf("a read: got error %v; the fault disturbs only writes", err)
	}
	<-a.calls
	hung := make(chan error)
	go func() {
		_, _, err := a.call(t, "POST", "/v1/servers", "{}")
		hung <- err
	}()
	for len(a.recording(t)) < 2 { // the second call has begun
		select {
		case err := <-hung:
			t.Fatalf("the call did not hang: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := a.control.ClearFault(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-hung; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want the end of the connection", err)
	}
	if len(a.calls) != 0 {
		t.Error("the API got the call")
	}
}

// TestRecordingHasNoSecret proves that a recording contains no secret from a header, a query or a
// body.
func TestRecordingHasNoSecret(t *testing.T) {
	a := start(t)
	for path, body := range map[string]string{
		"/v1/servers?X-Amz-Signature=query-secret&name=visible&X-Amz-Security-Token=query-secret&sig=query-secret": `{"user_data":"body-secret","name":"visible"}`,
		"/v3/auth/tokens": `{"auth":{"identity":{"password":{"user":{"name":"body-secret"}}}}}`,
		"/v1/keys/1":      `not JSON body-secret`,
		"/v1/large":       `"` + strings.Repeat("body-secret", 1000) + `"`,
	} {
		if _, _, err := a.call(t, "POST", path, body); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(a.recording(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"header-secret", "query-secret", "body-secret"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("the recording contains %s: %s", secret, raw)
		}
	}
	if n := strings.Count(string(raw), "visible"); n != 2 {
		t.Errorf(`word "visible" in the recording: got %d times, want 2: %s`, n, raw)
	}
}

// TestIntercept proves that the argument chooseFault of Intercept chooses the fault of each call.
// If a reply is lost, the proxy calls the function onLost. The caller notices the lost reply only
// after onLost has returned.
func TestIntercept(t *testing.T) {
	a := start(t)
	var names []string
	var lost atomic.Bool
	a.proxy.Intercept(func(name string, writes bool) conform.Fault {
		names = append(names, fmt.Sprint(name, " ", writes))
		if writes {
			return conform.Fault{Kind: conform.FaultLoseReply}
		}
		return conform.Fault{}
	}, func() { lost.Store(true) })
	if resp, _, err := a.call(t, "GET", "/v1/servers/1", ""); err != nil || resp.StatusCode != http.StatusOK || lost.Load() {
		t.Errorf("call without a fault: got status %d, error %v, onLost called %t; want 200, no error, false", statusOf(resp), err, lost.Load())
	}
	if _, _, err := a.call(t, "POST", "/v1/servers", "{}"); err == nil || !lost.Load() {
		t.Errorf("call whose reply is lost: got error %v, onLost called %t; want an error, true", err, lost.Load())
	}
	if want := []string{"GET /v1/servers/{id} false", "POST /v1/servers true"}; !slices.Equal(names, want) || len(a.calls) != 2 {
		t.Errorf("names that chooseFault received: got %q, want %q; calls that the API received: got %d, want 2", names, want, len(a.calls))
	}
}

// TestLimits proves that the proxy limits the size of bodies, the number of names, and the number
// of recorded calls.
func TestLimits(t *testing.T) {
	a := start(t)
	if resp, _, err := a.call(t, "POST", "/v1/servers", strings.Repeat("x", 17<<20)); err == nil && resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("long body: got status %d, want 413", resp.StatusCode)
	}
	p, err := proxy.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetFault(t.Context(), conform.Fault{Kind: conform.FaultError}); err != nil { // with this fault, the proxy sends no call to the API
		t.Fatal(err)
	}
	const n = 12_000
	for i := range n {
		p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/"+strings.Repeat("a", i/100)+strings.Repeat("b", i%100), nil))
	}
	all, err := p.Recording(t.Context(), time.Time{})
	if err != nil || len(all) > 10_000 || len(all) < 9000 {
		t.Errorf("got %d recorded calls, error %v; want 9000 to 10000", len(all), err)
	}
	calls, err := p.Calls(t.Context())
	if err != nil || len(calls) != 1001 || calls["other"].Calls == 0 {
		t.Errorf("got %d names of calls, %d calls with the name other, error %v; want 1001 names and at least one such call", len(calls), calls["other"].Calls, err)
	}
}

// TestErrors proves that the proxy refuses wrong inputs, and that it answers with an error if the
// API does not answer.
func TestErrors(t *testing.T) {
	for _, at := range []string{"", "api.example.com", "ftp://a", "http://user:secret@a", "http://a?b=c"} {
		if _, err := proxy.New(at); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("proxy.New(%q): got error %v, want an error without the password", at, err)
		}
	}
	p, err := proxy.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != http.StatusBadGateway {
		t.Errorf("call while the API does not answer: got status %d, want 502", w.Code)
	}
	for _, f := range []conform.Fault{{Kind: "unknown"}, {Kind: conform.FaultLatency, LatencySeconds: -1}, {Kind: conform.FaultLatency, LatencySeconds: 1e6}} {
		if err := p.SetFault(t.Context(), f); err == nil {
			t.Errorf("fault %+v: no error", f)
		}
	}
}

func ExampleProxy() {
	p, err := proxy.New("https://api.hetzner.cloud/v1")
	if err != nil {
		fmt.Println(err)
		return
	}
	// The CCM calls the cloud through this server. If your driver d cannot inject faults,
	// conform.WithFaults(d, p, proxy.Kinds()...) returns a driver that injects faults with this
	// proxy.
	srv := &http.Server{Addr: "127.0.0.1:8190", Handler: p, ReadHeaderTimeout: time.Minute}
	fmt.Println(srv.Addr, slices.Contains(proxy.Kinds(), conform.FaultLoseReply))
	// Output: 127.0.0.1:8190 true
}
