package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backoff.Backoff{First: time.Second, Most: 5 * time.Second}
		wait := func(most time.Duration) {
			t.Helper()
			began := time.Now()
			b.Wait(t.Context())
			if took := time.Since(began); took < most/2 || took > most {
				t.Errorf("got a sleep of %s, want between half of %s and all of it", took, most)
			}
		}
		for _, most := range []time.Duration{1, 2, 4, 5, 5} {
			wait(most * time.Second)
		}
		b.Reset()
		wait(time.Second)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	backoff.Sleep(ctx, time.Hour)
	b := backoff.Backoff{First: time.Hour, Most: time.Hour}
	b.Wait(ctx)
}
