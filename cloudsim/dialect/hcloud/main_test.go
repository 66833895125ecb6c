package hcloud_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/hcloud"
)

// callCounter counts the successful calls of a dialect by the name of the call.
type callCounter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *callCounter) count(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

type world struct {
	*sdk.Client
	cloud   *client.Client
	url     string
	seen    *callCounter
	metrics *prometheus.Registry

	unsupported atomic.Int64 // number of answers with the status 501
}

type countingWriter struct {
	http.ResponseWriter
	unsupported *atomic.Int64
}

func (n countingWriter) WriteHeader(code int) {
	if code == http.StatusNotImplemented {
		n.unsupported.Add(1)
	}
	n.ResponseWriter.WriteHeader(code)
}

// start runs a cloud and a dialect until the test ends.
func start(tb testing.TB, opts ...cloudtest.Option) *world {
	tb.Helper()
	w := &world{cloud: cloudtest.Start(tb, opts...), seen: &callCounter{}, metrics: prometheus.NewRegistry()}
	d := hcloud.New()
	for i := range d.Calls {
		name, do := d.Calls[i].Name, d.Calls[i].Do
		d.Calls[i].Do = func(r *dialect.Request) (int, any, error) {
			status, body, err := do(r)
			if err == nil {
				w.seen.count(name)
			}
			return status, body, err
		}
	}
	h := dialect.New(slog.New(slog.DiscardHandler), d, dialect.Config{
		URL: w.cloud.URL, Transport: w.cloud.HTTP.Transport, Project: w.cloud.Project, Metrics: w.metrics,
	})
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h.ServeHTTP(countingWriter{rw, &w.unsupported}, r) }))
	tb.Cleanup(srv.Close)
	w.url = srv.URL
	w.Client = w.clientOf(tb, w.cloud)
	return w
}

// clientOf returns a client of Hetzner's library. This client has the same token as c, which is a
// client of this cloud.
func (w *world) clientOf(tb testing.TB, c *client.Client) *sdk.Client {
	tb.Helper()
	secret, err := c.Token()
	if err != nil {
		tb.Fatal(err)
	}
	return w.with(secret)
}

func (w *world) with(secret string) *sdk.Client {
	return sdk.NewClient(sdk.WithEndpoint(w.url+"/v1"), sdk.WithToken(secret), sdk.WithApplication("test", "1"),
		sdk.WithPollOpts(sdk.PollOpts{BackoffFunc: sdk.ConstantBackoff(time.Millisecond)}), sdk.WithRetryOpts(sdk.RetryOpts{BackoffFunc: sdk.ConstantBackoff(time.Millisecond)}))
}

func must[T any](tb testing.TB, v T, _ *sdk.Response, err error) T {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func (w *world) wait(tb testing.TB, action *sdk.Action, _ *sdk.Response, err error) {
	tb.Helper()
	if err == nil && action != nil {
		err = w.Action.WaitFor(context.Background(), action)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func expectError(tb testing.TB, err error, code sdk.ErrorCode) {
	tb.Helper()
	if !sdk.IsError(err, code) {
		tb.Errorf("got error %v, want code %s", err, code)
	}
}

func (w *world) instance(tb testing.TB, name string) cloudsim.Instance {
	tb.Helper()
	i, err := w.cloud.CreateInstance(context.Background(), cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"})
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

func (w *world) server(tb testing.TB, i cloudsim.Instance) *sdk.Server {
	tb.Helper()
	s, resp, err := w.Server.GetByID(context.Background(), dialect.Number(i.ID))
	return must(tb, s, resp, err)
}
