package run_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/internal/run"
)

func TestFirstReturnStopsAll(t *testing.T) {
	boom := errors.New("boom")
	for name, want := range map[string]error{"error": boom, "clean exit": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drained := false
				err := run.All(t.Context(),
					func(context.Context) error { time.Sleep(time.Second); return want },
					func(ctx context.Context) error {
						<-ctx.Done()
						time.Sleep(time.Minute) // simulates work that ends a minute after the cancellation
						drained = true
						return ctx.Err()
					})
				if err != want || !drained {
					t.Fatalf("All = %v, drained %v; want %v, true", err, drained, want)
				}
			})
		})
	}
}
