// Package queue runs workers on a work queue of client-go. The queue contains
// names. A worker takes a name and then reads the current state for this name.
// Several additions of a waiting name therefore cause one call only.
package queue

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Interface is a work queue of names.
type Interface = workqueue.TypedRateLimitingInterface[string]

// New returns a queue. After a failure the queue returns the name after the time
// first. Each further failure doubles this time, up to most. The metrics of the
// queue have the label name. An empty name creates no metrics.
func New(name string, first, most time.Duration) Interface {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](first, most),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: name},
	)
}

// Drain calls work for the names of the queue from the given number of workers,
// until ctx ends. It then shuts the queue down and waits for the workers. Two
// workers never have the same name at the same time. If work returns an error,
// the name comes again with the queue's backoff. If work returns a positive wait,
// the name comes again after this time.
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
