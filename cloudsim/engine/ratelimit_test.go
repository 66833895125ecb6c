package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// TestProjectRate proves that all callers of a project share the rate limit of
// the project. The limit does not affect other projects, or callers with a role
// in all projects. The limit uses the machine's clock, so it still works while
// the cloud's clock is frozen.
func TestProjectRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, down := boot(t, file(t), instant, frozen, func(c *engine.Config) { c.ProjectRate = cloudsim.Rate{PerSecond: 2, Burst: 4} })
		defer down()
		ctx := engine.AsCloud(t.Context())
		secret := map[string]string{}
		for _, name := range []string{"noisy", "quiet"} {
			p := must(e.CreateProject(ctx, cloudsim.CreateProject{Name: name}))(t)
			for _, of := range []string{name + "-1", name + "-2"} {
				secret[of] = must(e.CreateToken(ctx, cloudsim.CreateToken{Name: of, Role: cloudsim.RoleReader, Project: p.ID}))(t).Secret
			}
		}
		limit := func(secret string) (engine.RateLimit, error) {
			ctx, err := e.Authorize(context.Background(), engine.Request{Secret: secret, Access: engine.Read})
			c, _ := engine.CallOf(ctx)
			c.RateLimit.Reset = c.RateLimit.Reset.Add(-time.Duration(c.At.UnixNano())) // make Reset relative to the time of the call, so that the test can compare Reset
			return c.RateLimit, err
		}
		call := func(secret string) error {
			_, err := limit(secret)
			return err
		}
		for n, of := range []string{"noisy-1", "noisy-2", "noisy-1", "noisy-2"} {
			want := engine.RateLimit{Limit: 4, Remaining: 3 - n, Reset: time.Unix(0, 0).Add(time.Duration(n+1) * 500 * time.Millisecond)}
			got, err := limit(secret[of])
			if err != nil {
				t.Fatal(err)
			}
			if got.Limit != want.Limit || got.Remaining != want.Remaining || !got.Reset.Equal(want.Reset) {
				t.Errorf("rate limit after call %d: got %+v, want %+v", n+1, got, want)
			}
		}
		refusedWith, err := limit(secret["noisy-2"])
		if refusedWith.Remaining != 0 || refusedWith.Limit != 4 {
			t.Errorf("rate limit of a refused call: got %+v, want no remaining calls of 4", refusedWith)
		}
		var refused *cloudsim.Error
		if !errors.As(err, &refused) || refused.Kind != cloudsim.Exhausted || refused.RetryAfter != 500*time.Millisecond || !strings.Contains(err.Error(), "--project-rate-limit") {
			t.Errorf("fifth call of a project: got error %v, want Exhausted with 500 ms and the flag --project-rate-limit", err)
		}
		for _, of := range []string{secret["quiet-1"], "secret"} {
			for range 4 {
				if err := call(of); err != nil {
					t.Errorf("call of another caller: got error %v", err)
				}
			}
		}
		if got, _ := limit("secret"); got.Limit != 0 {
			t.Errorf("rate limit of a caller without one: got %+v", got)
		}
		time.Sleep(500 * time.Millisecond)
		if err := call(secret["noisy-1"]); err != nil {
			t.Errorf("call after half a second: got error %v", err)
		}
	})
}

// TestRateLimitWhenTheClockIsSetBack proves that a throttled caller does not have to wait longer if
// a user sets the clock back.
func TestRateLimitWhenTheClockIsSetBack(t *testing.T) {
	e, down := boot(t, file(t), frozen, instant)
	defer down()
	ctx := engine.AsCloud(t.Context())
	must(e.SetRateLimits(ctx, cloudsim.RateLimits{Read: cloudsim.Rate{PerSecond: 1, Burst: 1}}))(t)
	read := func() error {
		_, err := e.Authorize(t.Context(), engine.Request{Secret: "secret", Access: engine.Read})
		return err
	}
	advance(t, e, ctx, time.Hour)
	if err := read(); err != nil {
		t.Fatal(err)
	}
	expectRefused(t, "second call of the caller", read(), cloudsim.Exhausted, "")
	must(e.SetClock(ctx, cloudsim.SetClock{Time: &newYear}))(t)
	advance(t, e, ctx, 10*time.Second)
	if err := read(); err != nil {
		t.Errorf("call after the clock was set back: got error %v", err)
	}
}
