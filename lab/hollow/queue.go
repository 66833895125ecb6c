package hollow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// workers bounds how many nodes are worked on at once.
const workers = 8

// queue is the names of nodes to be brought in order. Nobody gets a name that
// another works on.
type queue struct {
	log   *slog.Logger
	wrong string // what is said, once, of a node that fails
	sync  func(ctx context.Context, node string) error
	names workqueue.TypedRateLimitingInterface[string]
}

func newQueue(log *slog.Logger, wrong string, sync func(ctx context.Context, node string) error) *queue {
	return &queue{log, wrong, sync, workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second))}
}

func (q *queue) add(node string) { q.names.Add(node) }

// run works until ctx ends, once begin says that all is known; begin reports
// whether that came before ctx ended.
func (q *queue) run(ctx context.Context, begin func(context.Context) bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer q.names.ShutDown()
	if !begin(ctx) {
		return
	}
	for range workers {
		wg.Go(func() {
			for q.work(ctx) {
			}
		})
	}
	<-ctx.Done()
}

// work takes one name, and reports whether there will be more.
func (q *queue) work(ctx context.Context) bool {
	node, shut := q.names.Get()
	if shut {
		return false
	}
	defer q.names.Done(node)
	err := q.sync(ctx, node)
	if err == nil || ctx.Err() != nil {
		q.names.Forget(node)
		return true
	}
	if q.names.NumRequeues(node) == 0 {
		q.log.Warn(q.wrong+"; trying again", "node", node, "err", err)
	}
	q.names.AddRateLimited(node)
	return true
}
