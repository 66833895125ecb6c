package disks

import (
	"context"
	"sync"

	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// atOnce is the maximum number of concurrent copies. With more concurrent copies, each copy
// would only take longer.
const atOnce = 2

// jobs contains the running and waiting copies. The key of a copy is the id of the new disk,
// snapshot or snapshot group. A call of manager.watchCloud returns only after the end of all copies
// that this call started.
type jobs struct {
	turns   chan struct{}
	running sync.WaitGroup

	mu  sync.Mutex
	all map[string]*job
}

type job struct {
	cancel context.CancelFunc
	over   chan struct{}
}

func newJobs() *jobs { return &jobs{turns: make(chan struct{}, atOnce), all: map[string]*job{}} }

// start begins a job that calls fn repeatedly. The job ends when fn returns nil, when a caller
// calls stop, or when ctx ends. After each error, the job waits for the duration retryEvery. If a
// job with the given name exists, start does nothing.
func (j *jobs) start(ctx context.Context, name string, fn func(context.Context) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.all[name] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	own := &job{cancel: cancel, over: make(chan struct{})}
	j.all[name] = own
	j.running.Go(func() {
		defer close(own.over)
		defer cancel()
		for fn(ctx) != nil && ctx.Err() == nil {
			backoff.Sleep(ctx, retryEvery)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.all, name)
	})
}

// stop cancels the job with the given name and waits for its end.
func (j *jobs) stop(name string) {
	j.mu.Lock()
	own := j.all[name]
	j.mu.Unlock()
	if own != nil {
		own.cancel()
		<-own.over
	}
}

// runLimited waits until fewer than atOnce copies run, and then calls fn. If ctx ends first,
// runLimited returns the error of ctx.
func (j *jobs) runLimited(ctx context.Context, fn func() error) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case j.turns <- struct{}{}:
		defer func() { <-j.turns }()
		return fn()
	}
}

// reportResult reports the result of one try of a copy job. The parameter copyErr is the error of
// the copy, or nil. If isKnown is true, the cloud already has this result, and reportResult sends
// no report. If the report fails, reportResult returns an error, so that the job tries again. It
// also returns an error after a failed copy, unless the source is lost. If the job is finished or
// stopped, it returns nil.
func (k *manager) reportResult(ctx context.Context, id any, copyErr error, isKnown bool, report func() error, lost bool) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the job was stopped, so its error has no meaning
	}
	if !isKnown {
		if copyErr != nil {
			k.log.Error("cannot copy the data of a disk or snapshot", "to", id, "error", copyErr)
		}
		if err := report(); err != nil {
			if ctx.Err() == nil {
				k.log.Warn("cannot report the result of a copy to the cloud; trying again", "to", id, "error", err)
			}
			return err
		}
	}
	if lost {
		return nil
	}
	return copyErr
}
