// Package queue runs workers on a work queue of client-go. The queue contains
// names of objects. A worker takes a name and then reads the current state of
// the object with this name.
// If callers add a name several times while the name waits in the queue, a
// worker handles the name only once.
package queue

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Interface is a work queue of names.
type Interface = workqueue.TypedRateLimitingInterface[string]

// New returns a queue. If a worker fails to handle a name, the queue returns the name again after a
// delay. After the first failure, the delay is firstDelay. Each additional failure doubles the
// delay, up to maxDelay. The metrics of the queue have a label with the value metricsName. If
// metricsName is empty, the queue has no metrics.
func New(metricsName string, firstDelay, maxDelay time.Duration) Interface {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstDelay, maxDelay),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: metricsName},
	)
}

// Drain calls workFn for each name of the queue until ctx ends. It runs the
// given number of workers in parallel. When ctx ends, Drain shuts the queue
// down and waits for the workers. Two workers never handle the same name at the
// same time. If workFn returns an error, the queue returns the name again after a delay,
// which grows with each failure (see New). If workFn returns a positive wait,
// the queue returns the name again after this time.
func Drain(ctx context.Context, queue Interface, workers int, workFn func(context.Context, string) (wait time.Duration, err error)) {
	one := func() (more bool) {
		name, shutdown := queue.Get()
		if shutdown {
			return false
		}
		defer queue.Done(name)
		wait, err := workFn(ctx, name)
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
