package hollow

import (
	"context"
	"log/slog"
	"time"

	"github.com/cloudsim-dev/allinone/internal/queue"
)

// workers is the maximum number of nodes that a queue handles concurrently.
const workers = 8

// nodeQueue holds the names of nodes that need a sync.
type nodeQueue struct {
	log     *slog.Logger
	failure string // log message for a failed sync of a node
	sync    func(ctx context.Context, node string) error
	names   queue.Interface
}

func newNodeQueue(log *slog.Logger, failure string, sync func(ctx context.Context, node string) error) *nodeQueue {
	return &nodeQueue{log, failure, sync, queue.New("", 50*time.Millisecond, 5*time.Second)}
}

func (q *nodeQueue) add(node string) { q.names.Add(node) }

// run first calls beginFn, and returns if beginFn returns false. Otherwise run handles
// nodes until ctx ends.
func (q *nodeQueue) run(ctx context.Context, beginFn func(context.Context) bool) {
	if !beginFn(ctx) {
		q.names.ShutDown()
		return
	}
	queue.Drain(ctx, q.names, workers, func(ctx context.Context, node string) (time.Duration, error) {
		err := q.sync(ctx, node)
		if err != nil && ctx.Err() == nil && q.names.NumRequeues(node) == 0 { // log only the first failure
			q.log.Warn(q.failure+"; trying again", "node", node, "err", err)
		}
		return 0, err
	})
}
