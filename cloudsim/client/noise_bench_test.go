package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// openWatches opens up to n watches of the whole journal with the token of c. Each watch has its
// own connection. In the background, goroutines read the events of all watches. openWatches returns
// the number of watches that the cloud allowed.
func openWatches(t testing.TB, ctx context.Context, c *client.Client, n int) int {
	t.Helper()
	secret, err := c.Token()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/v1/watch", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusTooManyRequests {
			resp.Body.Close()
			return i
		}
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: got status %s, want 200", i, resp.Status)
		}
		t.Cleanup(func() { resp.Body.Close() })
		go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
	}
	return n
}

// BenchmarkNoisyWatcher measures the time of a write in a project while a reader has many open
// watches. The reader belongs to another project or to the same project. It tries to open 512
// watches, and the cloud may allow fewer. Each write includes an fsync, and the time of an fsync
// varies. Rounds with and without watches alternate, so that this variation affects both medians.
// The metric named ratio(<=2) is the median time with watches, divided by the median time without
// watches. This ratio should be at most 2.
func BenchmarkNoisyWatcher(b *testing.B) {
	const rounds, writes = 12, 40
	for _, noise := range []string{"other", "own"} {
		b.Run(noise, func(b *testing.B) {
			admin := cloudtest.Start(b)
			if _, err := admin.CreateProject(b.Context(), cloudsim.CreateProject{Name: "quiet"}); err != nil {
				b.Fatal(err)
			}
			reader := cloudtest.As(b, admin, "reader", cloudsim.RoleReader)
			writer := *admin
			if noise == "other" {
				writer.Project = "quiet"
			}
			var serial int
			var with, without []time.Duration
			measure := func(all *[]time.Duration) {
				for range writes {
					serial++
					began := time.Now()
					if _, err := writer.CreateAddress(b.Context(), cloudsim.CreateAddress{Name: fmt.Sprintf("a-%d", serial)}); err != nil {
						b.Fatal(err)
					}
					*all = append(*all, time.Since(began))
				}
			}
			open := 0
			for range rounds * b.N {
				measure(&without)
				ctx, cancel := context.WithCancel(b.Context())
				open = openWatches(b, ctx, reader, 512)
				measure(&with)
				cancel()
			}
			median := func(all []time.Duration) float64 {
				slices.Sort(all)
				return all[len(all)/2].Seconds() * 1000
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(open), "watches")
			b.ReportMetric(median(without), "quiet-ms")
			b.ReportMetric(median(with), "noisy-ms")
			b.ReportMetric(median(with)/median(without), "ratio(<=2)")
		})
	}
}
