package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/internal/queue"
)

// If workFn returns an error for a name, the queue passes this name to workFn again after a delay.
// The delay grows with each error. If workFn returns a waiting time and no error, the queue passes
// the name to workFn again after this time. After a call without an error, the next error causes
// only the first delay.
func TestDrainRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New("", time.Second, 3*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		q.Add("a")
		queue.Drain(ctx, q, 1, func(_ context.Context, name string) (time.Duration, error) {
			if name != "a" {
				t.Errorf("unexpected work for %q", name)
			}
			at = append(at, time.Since(began).Round(time.Second))
			switch len(at) {
			case 1, 2, 3, 5:
				return 0, errors.New("failed")
			case 4:
				return 10 * time.Second, nil
			}
			cancel()
			return 0, nil
		})
		want := []time.Duration{0, 1 * time.Second, 3 * time.Second, 6 * time.Second, 16 * time.Second, 17 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("time of the work: got %v, want %v", at, want)
		}
	})
}

// A caller may add a name while a worker handles this name. When the worker has finished, the queue
// passes the name to a worker again. Until then, no second worker gets the name.
func TestOneWorkerPerName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New("", time.Second, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var busy, calls int
		q.Add("a")
		queue.Drain(ctx, q, 4, func(context.Context, string) (time.Duration, error) {
			if busy++; busy > 1 {
				t.Error("two workers process the same name")
			}
			if calls++; calls == 1 {
				q.Add("a")
			} else {
				defer cancel()
			}
			time.Sleep(time.Second)
			busy--
			return 0, nil
		})
		if calls != 2 {
			t.Errorf("%d calls, want 2", calls)
		}
	})
}

func TestDrainWaitsForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New("", time.Second, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		q.Add("a")
		queue.Drain(ctx, q, 2, func(context.Context, string) (time.Duration, error) {
			cancel()
			time.Sleep(time.Minute)
			ended = true
			return 0, nil
		})
		if !ended {
			t.Error("Drain returned before the work ended")
		}
	})
}
