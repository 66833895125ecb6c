// Package dialecttest contains types and functions for the tests and benchmarks of dialects.
package dialecttest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
)

// InProcess is an http.RoundTripper that calls the API of a cloud in the same process, without a
// network connection. A dialect in the cloud's own process calls the API in the same way.
type InProcess struct{ api chan http.Handler }

// NewInProcess returns a transport that has no cloud yet. To connect the transport to a cloud,
// start the cloud with the option that the method Part returns.
func NewInProcess() InProcess { return InProcess{make(chan http.Handler, 1)} }

// Part returns the option that connects the transport to a cloud when the cloud starts.
func (p InProcess) Part() cloudtest.Option {
	return cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
		p.api <- httpapi.New(slog.New(slog.DiscardHandler), e, httpapi.Config{Metrics: prometheus.NewRegistry()}) //nolint:contextcheck // a request has its own context
		<-ctx.Done()
		return nil
	})
}

// RoundTrip implements http.RoundTripper. If the cloud has not started yet, RoundTrip waits until
// it has started.
func (p InProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	api := <-p.api
	p.api <- api
	r = r.Clone(r.Context()) // a RoundTripper must not change the caller's request
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w.Result(), nil
}

// Pair contains two functions with the same purpose. Ours calls the cloud directly, and Theirs
// calls the cloud through a dialect.
type Pair struct {
	Name         string
	N            int     // number of measured calls, at least 5
	Most         float64 // largest permitted ratio: the duration of Theirs divided by the duration of Ours
	Ours, Theirs func() error
}

// Compare measures the two functions of each pair. The benchmark of a pair fails if the median
// duration of Theirs, divided by the median duration of Ours, is greater than Pair.Most.
func Compare(b *testing.B, pairs []Pair) {
	b.Helper()
	for _, p := range pairs {
		b.Run(p.Name, func(b *testing.B) {
			var ratio float64
			for b.Loop() {
				p.medians(b, p.N/5) // warm up
				cloudTime, dialectTime := p.medians(b, p.N)
				ratio = float64(dialectTime) / float64(cloudTime)
				b.ReportMetric(float64(cloudTime.Microseconds()), "cloud-us")
				b.ReportMetric(float64(dialectTime.Microseconds()), "dialect-us")
			}
			b.ReportMetric(ratio, "ratio")
			if ratio > p.Most {
				b.Errorf("the dialect takes %.2f times as long as the cloud, want at most %.0f", ratio, p.Most)
			}
		})
	}
}

// medians calls p.Ours n times and p.Theirs n times, and returns the median durations. It calls the
// two functions alternately, so that other load on the machine affects both durations.
func (p Pair) medians(b *testing.B, n int) (cloudTime, dialectTime time.Duration) {
	b.Helper()
	all := [2][]time.Duration{}
	for range n {
		for i, call := range []func() error{p.Ours, p.Theirs} {
			begin := time.Now()
			if err := call(); err != nil {
				b.Fatal(err)
			}
			all[i] = append(all[i], time.Since(begin))
		}
	}
	slices.Sort(all[0])
	slices.Sort(all[1])
	return all[0][n/2], all[1][n/2]
}
