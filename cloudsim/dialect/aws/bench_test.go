package aws_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/aws"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
)

// inProcess is a transport that calls the API in this process, as the cloud does for its own
// dialects.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}

// BenchmarkDialect measures the answers of the dialect to signed requests, and the same calls
// directly to the cloud. It does not measure the time in which a client decodes XML. It fails if
// an answer of the dialect takes more than twice as long as the direct call. For a list of 1,000
// instances, the limit is three times.
func BenchmarkDialect(b *testing.B) {
	ctx := context.Background()
	var api http.Handler
	began := make(chan struct{})
	w := start(b, cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
		api = httpapi.New(slog.New(slog.DiscardHandler), e, httpapi.Config{Metrics: prometheus.NewRegistry()})
		close(began)
		<-ctx.Done()
		return nil
	}))
	<-began
	srv := httptest.NewServer(dialect.New(slog.New(slog.DiscardHandler), aws.New(), dialect.Config{URL: "http://cloud", Transport: inProcess{api}}))
	b.Cleanup(srv.Close)
	w.url = srv.URL
	for i := range 1000 {
		if _, err := w.cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", i), Zone: "sim-1a", Type: "small"}); err != nil {
			b.Fatal(err)
		}
	}
	theirs := func(form url.Values) func() error {
		return func() error {
			resp, err := http.DefaultClient.Do(w.request(b, time.Now(), form))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
			return errors.Join(err, resp.Body.Close())
		}
	}
	for _, c := range []struct {
		name         string
		n            int
		most         float64
		ours, theirs func() error
	}{
		{
			"instance", 400, 2, func() error { _, err := w.cloud.GetInstance(ctx, "i-000007"); return err },
			theirs(url.Values{"Action": {"DescribeInstances"}, "InstanceId.1": {"i-00000000000000007"}}),
		},
		{
			"list", 15, 3, func() error {
				_, _, err := cloudsim.All(ctx, w.cloud.ListInstances, cloudsim.ListOptions{})
				return err
			},
			theirs(url.Values{"Action": {"DescribeInstances"}}),
		},
	} {
		b.Run(c.name, func(b *testing.B) {
			var ratio float64
			for b.Loop() {
				medians(b, c.n/5, c.ours, c.theirs) // warm up
				ours, theirs := medians(b, c.n, c.ours, c.theirs)
				ratio = float64(theirs) / float64(ours)
				b.ReportMetric(float64(ours.Microseconds()), "cloud-us")
				b.ReportMetric(float64(theirs.Microseconds()), "dialect-us")
			}
			b.ReportMetric(ratio, "ratio")
			if ratio > c.most {
				b.Errorf("the dialect takes %.2f times as long as the cloud, want at most %.0f", ratio, c.most)
			}
		})
	}
}

// medians returns the median durations of n calls of each function. It calls the functions in
// turn, so that other load on the machine affects both.
func medians(b *testing.B, n int, ours, theirs func() error) (our, their time.Duration) {
	b.Helper()
	all := [2][]time.Duration{}
	for range n {
		for i, call := range []func() error{ours, theirs} {
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
