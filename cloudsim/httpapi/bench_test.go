package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// BenchmarkReads reads one instance through the whole API, including authorization and store. For
// comparison, the same run measures a bare net/http handler that encodes the same object. The
// benchmark alternates between rounds of the API and rounds of the handler, so that other load on
// the machine affects both measurements in the same way.
//
// The metric "of-bare" is the request rate of the API, divided by the request rate of the bare
// handler. This ratio should be at least 0.5.
func BenchmarkReads(b *testing.B) {
	c := cloudtest.Start(b)
	i, err := c.CreateInstance(b.Context(), cloudsim.CreateInstance{Name: "a", Zone: "sim-1a", Type: "small"})
	if err != nil {
		b.Fatal(err)
	}
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(i)
	}))
	defer bare.Close()
	secret, err := c.Token()
	if err != nil {
		b.Fatal(err)
	}
	const rounds = 10
	var cloudTime, limit time.Duration
	for range rounds {
		limit += hammer(b, bare.Client(), bare.URL, secret, b.N/rounds+1)
		cloudTime += hammer(b, c.HTTP, c.URL+"/v1/instances/"+string(i.ID), secret, b.N/rounds+1)
	}
	b.ReportMetric(float64(b.N)/cloudTime.Seconds(), "reads/s")
	b.ReportMetric(limit.Seconds()/cloudTime.Seconds(), "of-bare")
}

func hammer(b *testing.B, hc *http.Client, url, secret string, n int) time.Duration {
	b.Helper()
	hc.Transport.(*http.Transport).MaxIdleConnsPerHost = 8
	var next atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range 8 {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				req, _ := http.NewRequest(http.MethodGet, url, nil)
				req.Header.Set("Authorization", "Bearer "+secret)
				resp, err := hc.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Errorf("got status %s, error %v; want 200", resp.Status, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}
