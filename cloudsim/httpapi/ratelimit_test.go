package httpapi_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestRateLimitHeaders proves that an answer has headers with the state of the caller's rate limit.
// If several limits apply to the caller, the headers describe the limit with the fewest remaining
// calls. Answers to callers without a rate limit do not have these headers.
func TestRateLimitHeaders(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	cloud := cloudtest.Start(t, cloudtest.WithFrozenClock(at), cloudtest.WithConfig(func(c *engine.Config) {
		c.ProjectRate = cloudsim.Rate{PerSecond: 0.001, Burst: 9}
	}))
	mine := cloudtest.As(t, cloud, "mine", cloudsim.RoleReader)
	check := func(name string, c *client.Client, status int, limit, remaining string, reset time.Duration) {
		t.Helper()
		resp, _ := sendRequest(t, c, http.MethodGet, "/v1/zones", "")
		h := resp.Header
		wantReset := ""
		if limit != "" {
			wantReset = strconv.FormatInt(at.Add(reset).Unix(), 10)
		}
		if resp.StatusCode != status || h.Get("RateLimit-Limit") != limit || h.Get("RateLimit-Remaining") != remaining || h.Get("RateLimit-Reset") != wantReset {
			t.Errorf("%s: got status %d and headers %v, want status %d, limit %q, remaining %q and reset %q", name, resp.StatusCode, h, status, limit, remaining, wantReset)
		}
	}
	check("caller without a limit", cloud, http.StatusOK, "", "", 0)
	check("limit of the project", mine, http.StatusOK, "9", "8", 1000*time.Second)
	if _, err := cloud.SetRateLimits(t.Context(), cloudsim.RateLimits{Read: cloudsim.Rate{PerSecond: 0.4, Burst: 2}}); err != nil {
		t.Fatal(err)
	}
	check("limit of the caller", mine, http.StatusOK, "2", "1", 3*time.Second) // 2.5 s, rounded up
	check("last call", mine, http.StatusOK, "2", "0", 5*time.Second)
	check("refused call", mine, http.StatusTooManyRequests, "2", "0", 5*time.Second)
	if _, err := cloud.AdvanceClock(t.Context(), cloudsim.AdvanceClock{Seconds: 5}); err != nil {
		t.Fatal(err)
	}
	at = at.Add(5 * time.Second)
	check("call after a wait", mine, http.StatusOK, "2", "1", 3*time.Second)
}
