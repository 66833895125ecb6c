// Package cloudtest runs a complete simulated cloud for a test. The cloud has an HTTP
// server, and a bbolt file in a temporary folder. Use the package to test a controller for
// this cloud:
//
//	func TestMyController(t *testing.T) {
//		cloud := cloudtest.Start(t)
//		vm, err := cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"})
//		…
//	}
//
// When the test ends, the cloud stops, and the package checks the cloud's file.
// The test fails if this file is damaged.
package cloudtest

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// Option changes the cloud that Start runs.
type Option func(*options)

type options struct {
	cfg          engine.Config
	log          *slog.Logger
	parts        []func(context.Context, *engine.Engine) error
	transcriptTo io.Writer
	pipes        *pipes // nil for TCP
	socket       bool   // Unix socket instead of TCP
}

// WithProfile sets how long the work of the simulated hardware takes. By default this work takes no
// time.
func WithProfile(p engine.Profile) Option { return func(o *options) { o.cfg.Profile = p } }

// WithFrozenClock stops the cloud's clock at the given time. The zero time means
// the beginning of 2030. The client's method AdvanceClock moves the clock.
func WithFrozenClock(start time.Time) Option {
	if start.IsZero() {
		start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return func(o *options) { o.cfg.FrozenAt = start }
}

// WithSeed makes all random values except secrets repeatable: the same seed gives the same
// values.
func WithSeed(seed uint64) Option { return func(o *options) { o.cfg.Seed = seed } }

// WithConfig changes the parts of the cloud's configuration that have no Option of their own. It
// cannot change the field Issuer, because Start sets this field after all options.
func WithConfig(change func(*engine.Config)) Option { return func(o *options) { change(&o.cfg) } }

// WithTranscript records every call, and writes the records to w. The client's method Replay can
// send the calls to another cloud that a test has started with the same options.
func WithTranscript(w io.Writer) Option { return func(o *options) { o.transcriptTo = w } }

// WithLog sets the logger of the cloud.
func WithLog(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithPart adds another component to the cloud, such as a data plane. Start calls the function run
// in a new goroutine. When the test ends, the package cancels the context of run, and waits until
// run returns. If run returns an error, the test fails.
func WithPart(run func(context.Context, *engine.Engine) error) Option {
	return func(o *options) { o.parts = append(o.parts, run) }
}

// InBubble lets a test run a cloud in a bubble of testing/synctest. The cloud uses the bubble's
// clock. This clock advances only when all goroutines of the bubble wait. A goroutine that waits
// for a TCP connection does not count as waiting. So the cloud uses connections in memory instead
// of TCP.
func InBubble() Option { return func(o *options) { o.pipes = newPipes() } }

// OnSocket makes the cloud listen on a Unix socket instead of TCP.
func OnSocket() Option { return func(o *options) { o.socket = true } }

// Start runs a cloud until the test ends. It returns a client with the admin's
// token and the default project.
func Start(tb testing.TB, opts ...Option) *client.Client {
	tb.Helper()
	o := options{cfg: engine.Default(), log: slog.New(slog.DiscardHandler)}
	o.cfg.Profile = engine.Instant
	for _, opt := range opts {
		opt(&o)
	}
	o.cfg.StateDir = cmp.Or(o.cfg.StateDir, filepath.Join(tb.TempDir(), "states"))
	st, err := store.Open(filepath.Join(tb.TempDir(), "cloud.db"))
	if err != nil {
		tb.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(nil)
	o.cfg.Issuer = "http://" + srv.Listener.Addr().String()
	e := engine.New(o.log, st, o.cfg)
	secret := engine.NewSecret()
	for _, step := range []func() error{e.Prepare, func() error { return e.EnsureAdmin(secret) }} {
		if err := step(); err != nil {
			tb.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	parts := append(o.parts, func(ctx context.Context, e *engine.Engine) error { return e.Run(ctx) })
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part(ctx, e) }()
	}
	srv.Config.Handler = httpapi.New(o.log, e, httpapi.Config{
		Version: "test", Profile: o.cfg.Profile.Name, Metrics: prometheus.NewRegistry(), Transcript: o.beginTranscript(tb, e),
	})
	transport := o.serve(tb, srv)
	tb.Cleanup(func() {
		cancel()
		for range parts {
			if err := <-done; err != nil {
				tb.Errorf("the cloud stopped: %v", err)
			}
		}
		srv.CloseClientConnections() // this ends the watches
		srv.Close()
		if err := e.Check(); err != nil {
			tb.Errorf("the cloud's file is damaged: %v", err)
		}
		if err := st.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &client.Client{
		URL: srv.URL, HTTP: &http.Client{Timeout: 30 * time.Second, Transport: transport},
		Token: client.StaticToken(secret), Project: engine.DefaultProject, UserAgent: "cloudtest",
	}
}

// maxIdleConns is the number of idle connections that the client keeps. With
// Go's default of two, most calls of a controller's workers would open a new
// connection.
const maxIdleConns = 64

func (o *options) serve(tb testing.TB, srv *httptest.Server) http.RoundTripper {
	tb.Helper()
	if o.socket {
		return serveSocket(tb, srv)
	}
	if o.pipes == nil {
		srv.Start()
		if t, ok := srv.Client().Transport.(*http.Transport); ok {
			t.MaxIdleConnsPerHost = maxIdleConns
		}
		return srv.Client().Transport
	}
	_ = srv.Listener.Close()
	srv.Listener = o.pipes
	srv.Start()
	return &http.Transport{DialContext: o.pipes.dial}
}

func serveSocket(tb testing.TB, srv *httptest.Server) http.RoundTripper {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "cloud.sock")
	ln, err := run.Socket(tb.Context(), path)
	if err != nil {
		tb.Fatal(err)
	}
	_ = srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	srv.URL = "unix://" + path
	t := &http.Transport{MaxIdleConnsPerHost: maxIdleConns}
	client.Reach(t, srv.URL)
	return t
}

// beginTranscript begins the recording that WithTranscript requests. Without this
// option, it returns nil.
func (o *options) beginTranscript(tb testing.TB, e *engine.Engine) *httpapi.Transcript {
	tb.Helper()
	if o.transcriptTo == nil {
		return nil
	}
	head, err := e.TranscriptHead()
	if err != nil {
		tb.Fatal(err)
	}
	t, err := httpapi.NewTranscript(o.log, o.transcriptTo, head)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// As creates a service account that has one role in the project of c. It returns a client of the
// same cloud with a token of this account. Run a controller with this client to test
// whether the role has all permissions that the controller needs.
func As(tb testing.TB, c *client.Client, name string, role cloudsim.RoleName) *client.Client {
	tb.Helper()
	ctx := context.Background()
	a, err := c.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: name})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := c.CreateRoleBinding(ctx, cloudsim.CreateRoleBinding{Name: name + "-" + string(role), Role: role, ServiceAccount: string(a.ID)}); err != nil {
		tb.Fatal(err)
	}
	t, err := c.CreateToken(ctx, cloudsim.CreateToken{ServiceAccount: string(a.ID)})
	if err != nil {
		tb.Fatal(err)
	}
	as := *c
	as.Token, as.Project, as.UserAgent = client.StaticToken(t.Secret), "", name
	return &as
}
