// Package queue runs workers on a work queue of client-go. The queue holds names:
// a worker reads the state that belongs to a name when it takes the name, so
// names that are added while they wait cost one call.
package queue

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Interface is a work queue of names.
type Interface = workqueue.TypedRateLimitingInterface[string]

// New returns a queue. A name whose work failed comes again after first, then
// twice as late each time, and at most after most. The metrics of the queue are
// labelled with name; an empty name makes no metrics.
func New(name string, first, most time.Duration) Interface {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, most),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: name},
	)
}

// Drain calls work for the names of the queue from so many workers, until ctx
// ends, and then shuts the queue down and waits for the workers. No two workers
// have the same name at once. A name whose work failed comes again with the
// queue's backoff. A name whose work returned a positive wait comes again after
// that time.
func Drain(ctx context.Context, queue Interface, workers int, work func(context.Context, string) (wait time.Duration, err error)) {
	one := func() (more bool) {
		name, shutdown := queue.Get()
		if shutdown {
			return false
		}
		defer queue.Done(name)
		wait, err := work(ctx, name)
		if err != nil {
			queue.AddRateLimited(name)
			return true
		}
		queue.Forget(name)
		if wait > 0 {
			queue.AddAfter(name, wait)
		}
		return true
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for one() {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	all.Wait()
}
