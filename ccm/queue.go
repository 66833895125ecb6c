package ccm

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// newQueue is a queue of names whose work is tried again after first, twice as
// late each time and at the latest after most. Its metrics have its name.
func newQueue(name string, first, most time.Duration) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, most),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: name},
	)
}

// drain has workers do what the queue holds, until ctx ends. A name whose work
// failed comes again later; one with a positive wait, after that.
func drain(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], workers int, work func(context.Context, string) (wait time.Duration, err error)) {
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
