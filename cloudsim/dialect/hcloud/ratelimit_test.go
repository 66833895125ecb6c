package hcloud_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sdk "github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
)

// TestRateLimit proves that each answer contains the rate limit of the caller. The reset time in
// the answer is a time on the cloud's clock. If the caller has no rate limit, the answer contains
// no rate limit.
func TestRateLimit(t *testing.T) {
	ctx := context.Background()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	w := start(t, cloudtest.WithFrozenClock(at))
	if _, err := w.cloud.SetRateLimits(ctx, cloudsim.RateLimits{Read: cloudsim.Rate{PerSecond: 0.5, Burst: 3}}); err != nil {
		t.Fatal(err)
	}
	secret, err := cloudtest.As(t, w.cloud, "limited", cloudsim.RoleReader).Token()
	if err != nil {
		t.Fatal(err)
	}
	limited := sdk.NewClient(sdk.WithEndpoint(w.url+"/v1"), sdk.WithToken(secret), sdk.WithRetryOpts(sdk.RetryOpts{MaxRetries: 0}))
	for n := 1; n <= 3; n++ {
		_, resp, err := limited.Volume.List(ctx, sdk.VolumeListOpts{})
		must(t, 0, nil, err)
		want := sdk.Ratelimit{Limit: 3, Remaining: 3 - n, Reset: at.Add(time.Duration(n) * 2 * time.Second)}
		if got := resp.Meta.Ratelimit; got.Limit != want.Limit || got.Remaining != want.Remaining || !got.Reset.Equal(want.Reset) {
			t.Errorf("rate limit after call %d: got %+v, want %+v", n, got, want)
		}
	}
	_, _, err = limited.Volume.List(ctx, sdk.VolumeListOpts{})
	expectError(t, err, sdk.ErrorCodeRateLimitExceeded)
	e, ok := errors.AsType[sdk.Error](err)
	if !ok {
		t.Fatalf("got error %v, want an error of Hetzner's API", err)
	}
	got, reset := e.Response().Meta.Ratelimit, at.Add(6*time.Second)
	if wait := e.Response().Header.Get("Retry-After"); got.Limit != 3 || got.Remaining != 0 || !got.Reset.Equal(reset) || wait != "2" {
		t.Errorf("refused call: got %+v and Retry-After %q, want limit 3, no remaining calls, reset at %s and 2", got, wait, reset)
	}

	if _, err := w.cloud.SetRateLimits(ctx, cloudsim.RateLimits{}); err != nil {
		t.Fatal(err)
	}
	_, resp, err := w.Volume.List(ctx, sdk.VolumeListOpts{})
	must(t, 0, nil, err)
	for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
		if value := resp.Header.Get(name); value != "" {
			t.Errorf("caller without a rate limit: got header %s: %s", name, value)
		}
	}
}
