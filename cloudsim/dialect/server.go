package dialect

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// CallHeader is a header of the calls that a dialect makes to this cloud. Its value is the name of
// the call that the dialect translates, e.g. "hcloud.servers.list". Fault rules can match this
// name.
const CallHeader = "Dialect-Call"

// maxBody is the largest request body in bytes.
const maxBody = 256 << 10

// Config configures the server of a dialect.
type Config struct {
	URL       string            // URL of the cloud; see client.Client
	Transport http.RoundTripper // transport to the cloud; nil means http.DefaultTransport
	// Project is the project of all calls. If it is empty, each call is for the project to which
	// the caller's token belongs.
	Project cloudsim.ProjectID
	Metrics prometheus.Registerer // nil means no metrics
}

// Request is a request to the API that the dialect serves.
type Request struct {
	*http.Request
	ID    string         // id of the request; the calls to this cloud have the same id
	Cloud *client.Client // client of this cloud with the caller's token

	body io.Reader
	raw  []byte // the body, after ReadBody
	done bool   // whether ReadBody has returned the body
}

// ReadBody returns the body of the request. Later calls return the same body. ReadBody returns an
// Invalid error for a body that is too large or cannot be read.
func (r *Request) ReadBody() ([]byte, error) {
	if r.done {
		return r.raw, nil
	}
	raw, err := io.ReadAll(r.body)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "the body must be at most %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "reading the body: %w", err)
	}
	r.raw, r.done = raw, true
	return raw, nil
}

// Decode reads the JSON body of the request, and decodes it with the function dialect.Decode. It
// returns an Invalid error for a body that is too large or cannot be read.
//
// A function Call.Do must call the cloud before it calls Decode, because only the cloud checks the
// caller's token. Otherwise the server would decode the body of a caller without a valid token.
func (r *Request) Decode(target any) error {
	raw, err := r.ReadBody()
	if err != nil {
		return err
	}
	return Decode(raw, target)
}

// Detached returns a copy of the request r. The context of the copy ends one minute after the
// context of r has ended, e.g. because the client has disconnected. If the context of r has already
// ended, the minute begins at once. The caller must call cancel.
func (r *Request) Detached() (out *Request, cancel context.CancelFunc) {
	ctx, end := context.WithCancel(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(r.Context(), func() { time.AfterFunc(time.Minute, end) })
	detached := *r
	detached.Request = r.WithContext(ctx)
	return &detached, func() { stop(); end() }
}

// NotJSON is the error for a body that is not exactly one JSON value.
type NotJSON struct{ error }

// Decode decodes a JSON body. It returns NotJSON for a body that is not exactly one JSON value. For
// an unknown field or a wrong type, it returns an Invalid error with the name of the field. If the
// body is empty, Decode returns nil and does not change target.
func Decode(raw []byte, target any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(target)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return cloudsim.InvalidField(cmp.Or(wrong.Field, "body"), "must have the type "+jsonType(wrong.Type)+", got "+wrong.Value)
	}
	if err != nil {
		// The package encoding/json has no error type for an unknown field. Therefore Decode reads
		// the name of the field from the text of the error.
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			if s, err := strconv.Unquote(name); err == nil {
				name = s
			}
			return cloudsim.InvalidField(cloudsim.Clip(name), "is not known")
		}
		return NotJSON{fmt.Errorf("the body is not valid JSON: %w", err)}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return NotJSON{errors.New("the body has data after the JSON object")}
	}
	return nil
}

// jsonType returns the name of the JSON type that decodes into the type t.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.String, reflect.Bool:
		return t.Kind().String()
	default:
		return "number"
	}
}

type server struct {
	log     *slog.Logger
	dialect Dialect
	cfg     Config
	mux     *http.ServeMux
	routes  map[string]Call // by pattern
	calls   map[string]Call // by name
	metrics metrics
}

// New returns an HTTP handler that serves a dialect. At the path /readyz, the handler reports
// whether the cloud is ready.
func New(log *slog.Logger, d Dialect, cfg Config) http.Handler {
	if cfg.Transport == nil {
		cfg.Transport = http.DefaultTransport
	}
	d.CloudHeaders = slices.Concat(d.CloudHeaders, []string{"Date"}) // programs that sign requests use this header to correct their clocks
	s := &server{log: log, dialect: d, cfg: cfg, mux: http.NewServeMux(), routes: map[string]Call{}, calls: map[string]Call{}, metrics: newMetrics(cfg.Metrics)}
	for _, c := range d.Calls {
		if d.Select != nil {
			s.calls[c.Name] = c
			continue
		}
		pattern := c.Method + " " + c.Path
		s.routes[pattern] = c
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, c) })
	}
	for pattern := range d.Refusals {
		s.mux.Handle(pattern, http.NotFoundHandler()) // ServeHTTP uses only the pattern, never this handler
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" && r.Method == http.MethodGet {
		s.ready(w, r)
		return
	}
	if s.dialect.Select != nil {
		s.serve(w, r, Call{})
		return
	}
	_, pattern := s.mux.Handler(r)
	if s.routes[pattern].Name != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	s.serve(w, r, Call{Do: func(r *Request) (int, any, error) {
		s.metrics.unsupported.WithLabelValues(s.dialect.Name, s.resource(r.URL.Path)).Inc()
		why, ok := s.dialect.Refusals[pattern]
		if !ok {
			why = "'allinone dialect calls " + s.dialect.Name + "' lists the supported calls"
		}
		return 0, nil, Unsupported{What: cloudsim.Clip(r.Method + " " + r.URL.Path), Why: why}
	}})
}

// selectedCall returns the call that the dialect's function Select selects. If Select returns an
// error, the result is a call that returns this error. If the dialect does not support the selected
// call, the result is a call that returns Unsupported.
func (s *server) selectedCall(r *Request) Call {
	name, err := s.dialect.Select(r)
	if err != nil {
		return Call{Do: func(*Request) (int, any, error) { return 0, nil, err }}
	}
	if c, ok := s.calls[name]; ok {
		return c
	}
	return Call{Do: func(*Request) (int, any, error) {
		resource := name
		if !s.metrics.admit(name) {
			resource = "other"
		}
		s.metrics.unsupported.WithLabelValues(s.dialect.Name, resource).Inc()
		return 0, nil, Unsupported{What: cloudsim.Clip(name), Why: "'allinone dialect calls " + s.dialect.Name + "' lists the supported calls"}
	}}
}

var resourceRE = regexp.MustCompile(`^[a-z_]{1,32}$`)

// resource returns the resource in a path, for the metric of unsupported calls. It
// returns "other" if the path contains no resource. It also returns "other" for a new
// resource if the metric already contains maxResources resources.
func (s *server) resource(path string) string {
	for elem := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if resourceRE.MatchString(elem) && s.metrics.admit(elem) {
			return elem
		}
	}
	return "other"
}

func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	cl := client.Client{URL: s.cfg.URL, HTTP: &http.Client{Transport: s.cfg.Transport}}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := cl.Ready(ctx); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, "the cloud is", err) // an error means that the client has disconnected
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

var requestIDRE = regexp.MustCompile(`^[-_.A-Za-z0-9]{1,64}$`)

func newRequestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return "req-" + hex.EncodeToString(b[:])
}

func (s *server) serve(w http.ResponseWriter, r *http.Request, c Call) {
	begin := time.Now()
	out := &reply{ResponseWriter: w}
	req := &Request{Request: r, ID: r.Header.Get("X-Request-Id"), body: http.MaxBytesReader(w, r.Body, maxBody)}
	if !requestIDRE.MatchString(req.ID) {
		req.ID = newRequestID()
	}
	w.Header().Set("X-Request-Id", req.ID)
	if s.dialect.IDHeader != "" {
		w.Header().Set(s.dialect.IDHeader, req.ID)
	}
	defer func() { //nolint:contextcheck // the function uses the context of the request
		p := recover()
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p) //nolint:forbidigo // net/http then closes the connection without a log line
		}
		if p != nil {
			s.log.ErrorContext(r.Context(), "panic", "requestId", req.ID, "call", c.Name, "panic", p, "stack", string(debug.Stack()))
			if out.status == 0 {
				s.dialect.Refuse(out, req, cloudsim.Errorf(cloudsim.Internal, "panic: %v", p))
			}
		}
		s.metrics.requests.WithLabelValues(s.dialect.Name, c.Name, strconv.Itoa(out.status)).Inc()
		s.log.DebugContext(r.Context(), "request", "dialect", s.dialect.Name, "call", c.Name, "status", out.status, "took", time.Since(begin), "requestId", req.ID)
	}()
	if s.dialect.Select != nil {
		c = s.selectedCall(req)
	}
	to := &transport{next: s.cfg.Transport, id: req.ID, call: s.dialect.Name + "." + c.Name}
	status, body, err := s.do(req, to, c) //nolint:contextcheck // req has the context
	// The server ignores the error, because some connections do not support deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(replyTimeout))
	for _, name := range s.dialect.CloudHeaders {
		if value := to.header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		// The client has disconnected, or Serve has cancelled the request. This is no error of the
		// dialect.
		err = cloudsim.Errorf(cloudsim.Unavailable, "the request was cancelled")
	}
	if err != nil && to.dropped {
		// The cloud closed the connection, e.g. because of a fault. Therefore the dialect also
		// closes the connection to its caller without a reply.
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http has no other way that works for every protocol
	}
	if err != nil {
		if isInternal(err) {
			s.log.ErrorContext(r.Context(), "request failed", "call", c.Name, "requestId", req.ID, "err", err)
		}
		s.dialect.Refuse(out, req, err)
		return
	}
	switch {
	case body == nil:
		out.WriteHeader(status)
	case s.dialect.Write != nil:
		s.dialect.Write(out, req, status, body)
	default:
		out.WriteJSON(status, body)
	}
}

func (s *server) do(req *Request, to *transport, c Call) (status int, body any, err error) {
	if c.Name == "" {
		return c.Do(req) // an error without a call to the cloud
	}
	secret, err := s.dialect.Token(req)
	if err != nil {
		return 0, nil, err
	}
	if secret == "" {
		return 0, nil, cloudsim.Errorf(cloudsim.Unauthenticated, "the request has no token")
	}
	to.authenticated = func() { run.Authenticated(req.Context()) }
	req.Cloud = &client.Client{
		URL: s.cfg.URL, HTTP: &http.Client{Transport: to}, Token: client.StaticToken(secret),
		Project: s.cfg.Project, UserAgent: req.UserAgent(),
	}
	return c.Do(req)
}

type reply struct {
	http.ResponseWriter
	status int
}

func (r *reply) WriteHeader(code int) {
	if r.status == 0 {
		r.status = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Unwrap returns the inner http.ResponseWriter, which http.ResponseController needs to control the
// connection.
func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteJSON writes an answer with a JSON body.
func (r *reply) WriteJSON(status int, body any) {
	r.Header().Set("Content-Type", "application/json")
	r.WriteHeader(status)
	_ = json.NewEncoder(r.ResponseWriter).Encode(body) // an error means that the client has disconnected
}

// transport handles one request of a client: it sends the server's calls for this request to the
// cloud. It adds the id of the request and the header CallHeader to each call.
type transport struct {
	next          http.RoundTripper
	id, call      string
	authenticated func()      // called when the cloud has accepted the token
	dropped       bool        // whether the cloud closed a connection without a reply
	header        http.Header // headers of the last reply of the cloud; nil if there is no reply
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not change its request
	r.Header.Set("X-Request-Id", t.id)
	r.Header.Set(CallHeader, t.call)
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		t.dropped = t.dropped || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
		return nil, err
	}
	t.header = resp.Header
	if resp.StatusCode != http.StatusUnauthorized {
		t.authenticated()
	}
	return resp, nil
}

// replyTimeout is the time limit for writing an answer.
const replyTimeout = 30 * time.Second

// shutdownGrace is the maximum time for which Serve waits for running requests after ctx has ended.
const shutdownGrace = 5 * time.Second

// requestGrace is the time for which the running requests can still call the cloud after ctx has
// ended. Without this limit, a request could wait for an operation that a stopped cloud never
// completes. requestGrace is shorter than shutdownGrace. In the remaining time, the dialect can
// still send an error to the client. The limit does not apply to a request that uses
// Request.Detached: it can call the cloud for another minute, even after Serve has returned.
const requestGrace = time.Second

// Serve serves a dialect on ln until ctx ends. Then it waits until the running requests end, but at
// most for the time shutdownGrace.
func Serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(requestGrace, end) })()
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	return run.HTTP(ctx, srv, ln, shutdownGrace, run.Limits{})
}
