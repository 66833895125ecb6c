// Package proxy forwards the calls of a cloud controller manager (CCM) to the API of its cloud. It
// counts, records and disturbs these calls. It does not record headers. The package needs no
// description of the API, so it can inject faults into the calls to any HTTP API.
package proxy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
)

const (
	// maxBody is the maximum length in bytes of the body of a request. It is also the maximum
	// length of an answer that emptyLists can change.
	maxBody = 16 << 20
	// maxRecordedBody is the maximum length in bytes of a recorded body. For a longer body, the
	// recording contains only its length.
	maxRecordedBody = 4 << 10
	// maxRecording is the maximum number of calls in the recording. If the recording is full, the
	// proxy deletes the oldest calls.
	maxRecording = 10_000
	// maxNames is the maximum number of different names of calls. After the proxy has counted this
	// number of names, it counts calls with a new name under the name "other".
	maxNames = 1000
	// maxLatency is the maximum latency of a fault. It is also the time after which the proxy
	// closes the connection of a call with the fault FaultTimeout.
	maxLatency = 5 * time.Minute
)

// Kinds returns the faults that the proxy can inject.
func Kinds() []conform.FaultKind {
	return []conform.FaultKind{
		conform.FaultError, conform.FaultUnauthorized, conform.FaultTimeout, conform.FaultEmptyList, conform.FaultLoseReply, conform.FaultThrottle, conform.FaultLatency,
	}
}

// Proxy is an http.Handler that forwards calls to the API of a cloud. It also implements
// conform.Faults and conform.Recorder.
type Proxy struct {
	forward *httputil.ReverseProxy

	mu          sync.Mutex // protects all fields below
	fault       conform.Fault
	replaced    chan struct{}  // closed when another fault replaces the fault
	matched     map[string]int // number of calls that match the fault, by the name of the call
	calls       map[string]conform.Count
	recording   []*conform.Call                              // in the order of their start
	chooseFault func(name string, writes bool) conform.Fault // see Intercept
	onLost      func()
}

var (
	_ conform.Faults   = (*Proxy)(nil)
	_ conform.Recorder = (*Proxy)(nil)
)

// New returns a proxy for the API at an http or https URL.
func New(upstream string) (*Proxy, error) {
	u, err := url.Parse(upstream)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("the URL of the API is not valid: want http://HOST:PORT/PATH or https://HOST:PORT/PATH, without a user or a query")
	}
	p := &Proxy{replaced: make(chan struct{}), matched: map[string]int{}, calls: map[string]conform.Count{}}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Header.Del("Accept-Encoding") // so that the transport decodes the answer
		},
		ModifyResponse: modifyAnswer,
		ErrorHandler:   answerFailure,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // discards the errors, because the recording contains them
	}
	return p, nil
}

// contextKey is a key for the context of a request. The value of this key is the kind of the fault.
type contextKey struct{}

// errTooLong means that the answer of the cloud is too long for emptyLists.
var errTooLong = fmt.Errorf("the recording proxy cannot empty the lists in an answer of the cloud that is longer than %d bytes", maxBody)

// errLost means that the proxy drops the answer of the cloud.
var errLost = errors.New("the injected fault loses the reply")

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("proxy: the body is not complete, or it is longer than %d bytes", maxBody), http.StatusRequestEntityTooLarge)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	name, writes := describe(r, body)
	call, fault, replaced := p.recordCall(name, writes, r, body)
	seen := &statusWriter{ResponseWriter: w}
	defer func() { p.end(call, seen.status, fault) }() // runs even after the panic with which the proxy loses a reply
	ctx := context.WithValue(r.Context(), contextKey{}, fault.Kind)
	switch fault.Kind {
	case conform.FaultError:
		refuse(seen, http.StatusInternalServerError, "internal_error", byFault)
		return
	case conform.FaultUnauthorized:
		refuse(seen, http.StatusUnauthorized, "unauthorized", byFault)
		return
	case conform.FaultThrottle:
		seen.Header().Set("Retry-After", "1")
		refuse(seen, http.StatusTooManyRequests, "rate_limit_exceeded", byFault)
		return
	case conform.FaultTimeout:
		wait(ctx, maxLatency, replaced)
		panic(http.ErrAbortHandler) //nolint:forbidigo // closes the connection without an answer
	case conform.FaultLatency:
		wait(ctx, time.Duration(fault.LatencySeconds*float64(time.Second)), replaced)
	case conform.FaultEmptyList, conform.FaultLoseReply: // modifyAnswer changes the answer
	}
	p.forward.ServeHTTP(seen, r.WithContext(ctx))
}

// wait returns after the duration d. It returns earlier if ctx ends, or if the proxy replaces or
// clears the current fault.
func wait(ctx context.Context, d time.Duration, replaced <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-replaced:
	}
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the wrapped writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// byFault is the message of the error answers that the proxy sends for a fault.
const byFault = "the recording proxy refused this call, because a fault is set"

// refuse answers a call with an error of the proxy, not of the cloud.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The proxy ignores the error, because the caller itself notices a lost connection.
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": code, "message": message}})
}

func modifyAnswer(resp *http.Response) error {
	switch resp.Request.Context().Value(contextKey{}) {
	case conform.FaultLoseReply:
		return errLost
	case conform.FaultEmptyList:
		if resp.Request.Method == http.MethodGet && resp.StatusCode == http.StatusOK {
			return emptyLists(resp)
		}
	}
	return nil
}

// emptyLists empties a JSON answer that is a list. If the answer is a JSON object, emptyLists
// empties each field of this object that is a list. It does not change other answers.
func emptyLists(resp *http.Response) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if len(raw) > maxBody {
		return errTooLong
	}
	var list []json.RawMessage
	var object map[string]json.RawMessage
	switch {
	case json.Unmarshal(raw, &list) == nil:
		raw = []byte("[]")
	case json.Unmarshal(raw, &object) == nil:
		for key, value := range object {
			if bytes.HasPrefix(bytes.TrimSpace(value), []byte("[")) {
				object[key] = json.RawMessage("[]")
			}
		}
		if raw, err = json.Marshal(object); err != nil {
			return err
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	resp.Header.Set("Content-Length", strconv.Itoa(len(raw)))
	return nil
}

// answerFailure closes the connection if err is errLost. For all other errors, answerFailure
// answers with the status 502.
func answerFailure(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, errLost) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // closes the connection without an answer
	}
	if errors.Is(err, errTooLong) {
		refuse(w, http.StatusBadGateway, "answer_too_long", errTooLong.Error())
		return
	}
	refuse(w, http.StatusBadGateway, "upstream_unreachable", "the recording proxy cannot reach the cloud's API: check the URL in --upstream")
}

// recordCall counts and records a call. It returns the fault that disturbs the call, and a
// channel that replaceFault closes when another fault replaces this fault.
func (p *Proxy) recordCall(name string, writes bool, r *http.Request, body []byte) (*conform.Call, conform.Fault, <-chan struct{}) {
	call := &conform.Call{At: time.Now(), Name: name, Request: conform.Redact(r.URL.RequestURI())}
	if writes {
		call.Body = recordedBody(r.URL.Path, body)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	counted := name
	if _, known := p.calls[name]; !known && len(p.calls) >= maxNames {
		counted = "other"
	}
	p.calls[counted] = conform.Count{Calls: p.calls[counted].Calls + 1, Writes: p.calls[counted].Writes || writes}
	if len(p.recording) == maxRecording {
		p.recording = slices.Delete(p.recording, 0, maxRecording/10)
	}
	p.recording = append(p.recording, call)
	if p.chooseFault != nil {
		return call, p.chooseFault(name, writes), p.replaced
	}
	f := p.fault
	if f.Kind == "" || f.Writes && !writes || f.Call != "" && f.Call != name {
		return call, conform.Fault{}, p.replaced
	}
	p.matched[counted]++
	if n := p.matched[counted]; n <= f.Skip || f.Count > 0 && n > f.Skip+f.Count {
		return call, conform.Fault{}, p.replaced
	}
	return call, f, p.replaced
}

// end completes the record of a call. If the fault loses the reply, the method also calls
// onLost (see Intercept). The proxy closes the connection to its client only after this method has
// returned.
func (p *Proxy) end(call *conform.Call, status int, f conform.Fault) {
	if lost := p.completeRecord(call, status, f); lost != nil && f.Kind == conform.FaultLoseReply {
		lost()
	}
}

// completeRecord completes the record of a call. It returns the function onLost that the
// last call of Intercept has set.
func (p *Proxy) completeRecord(call *conform.Call, status int, f conform.Fault) (onLost func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call.Fault, call.Took = f.Kind, time.Since(call.At)
	if status > 0 {
		call.Result = strconv.Itoa(status)
	}
	return p.onLost
}

// Intercept sets the function that selects the fault of each call. After Intercept, the fault of
// SetFault has no effect. The proxy passes two values to chooseFault: the name of the call, and
// true if the call changes the cloud. chooseFault must not call the proxy. If chooseFault returns
// FaultLoseReply, the proxy calls onLost after the answer of the cloud. The proxy also calls onLost
// if the cloud does not answer. The client of the proxy waits until onLost returns.
func (p *Proxy) Intercept(chooseFault func(name string, writes bool) conform.Fault, onLost func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chooseFault, p.onLost = chooseFault, onLost
}

// sensitivePath matches the paths of calls that can contain secrets, for example the path of
// OpenStack's tokens. The proxy must not record the bodies of these calls.
var sensitivePath = regexp.MustCompile(`(?i)token|auth|login|session|secret|key|credential|certificate`)

// recordedBody returns the body of a call for the recording. It replaces the secrets in this body.
// If the body is large, sensitive or not JSON, recordedBody returns the length of the body instead.
func recordedBody(path string, body []byte) string {
	switch {
	case len(body) == 0:
		return ""
	case len(body) > maxRecordedBody, sensitivePath.MatchString(path), !json.Valid(body):
		return fmt.Sprintf("(%d bytes)", len(body))
	}
	return conform.Redact(string(body))
}

// version matches a path segment that is a version, such as v1 or v2.0.
var version = regexp.MustCompile(`^v[0-9]+(\.[0-9]+)?((alpha|beta)[0-9]+)?$`)

// describe returns the name of a call, and whether the call changes the cloud. In the APIs of AWS,
// the name is the action. In other APIs, the name contains the method and the path. In this path,
// {id} replaces each segment that contains a digit and is not a version.
func describe(r *http.Request, body []byte) (name string, writes bool) {
	action := r.URL.Query().Get("Action")
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		if form, err := url.ParseQuery(string(body)); err == nil {
			action = cmp.Or(action, form.Get("Action"))
		}
	}
	_, target, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if action = cmp.Or(action, target); action != "" {
		read := strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "Get") || strings.HasPrefix(action, "List")
		return action, !read
	}
	segments := strings.Split(r.URL.Path, "/")
	for i, s := range segments {
		if strings.ContainsAny(s, "0123456789") && !version.MatchString(s) {
			segments[i] = "{id}"
		}
	}
	return r.Method + " " + strings.Join(segments, "/"), !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.Method)
}

// SetFault implements conform.Faults. It also ends the delay of all calls that the previous fault
// delays.
func (p *Proxy) SetFault(_ context.Context, f conform.Fault) error {
	if !slices.Contains(Kinds(), f.Kind) {
		return fmt.Errorf("fault %q: %w", f.Kind, conform.ErrUnsupported)
	}
	if f.LatencySeconds < 0 || f.LatencySeconds > maxLatency.Seconds() {
		return fmt.Errorf("the field latencySeconds is %g: want 0 to %g", f.LatencySeconds, maxLatency.Seconds())
	}
	p.replaceFault(f)
	return nil
}

// ClearFault implements conform.Faults.
func (p *Proxy) ClearFault(context.Context) error {
	p.replaceFault(conform.Fault{})
	return nil
}

func (p *Proxy) replaceFault(f conform.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.replaced)
	p.fault, p.replaced, p.matched = f, make(chan struct{}), map[string]int{}
}

// Calls implements conform.Faults.
func (p *Proxy) Calls(context.Context) (map[string]conform.Count, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls), nil
}

// Recording implements conform.Recorder.
func (p *Proxy) Recording(_ context.Context, after time.Time) ([]conform.Call, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []conform.Call{}
	for _, c := range p.recording {
		if c.At.After(after) {
			all = append(all, *c)
		}
	}
	return all, nil
}
