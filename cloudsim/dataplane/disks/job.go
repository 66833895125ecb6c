package disks

import (
	"context"
	"sync"

	"github.com/cloudsim-dev/allinone/internal/pause"
)

// atOnce is how many copies are made at a time; more only make all of them slower.
const atOnce = 2

// jobs are the copies that are being made, by what they are of. They end with
// the list that began them.
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

// start runs do until it returns nil, the job is stopped or ctx ends, with a
// pause after each error. One that runs already goes on.
func (j *jobs) start(ctx context.Context, name string, do func(context.Context) error) {
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
		for do(ctx) != nil && ctx.Err() == nil {
			pause.For(ctx, retryEvery)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.all, name)
	})
}

// stop ends a job, if there is one, and returns when it is over.
func (j *jobs) stop(name string) {
	j.mu.Lock()
	own := j.all[name]
	j.mu.Unlock()
	if own != nil {
		own.cancel()
		<-own.over
	}
}

// within runs do when it is its turn.
func (j *jobs) within(ctx context.Context, do func() error) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case j.turns <- struct{}{}:
		defer func() { <-j.turns }()
		return do()
	}
}

// told ends one try of a job whose copy ended with failed: it reports, unless
// that was said before, and returns what makes the job try again: a failure
// that need not stay, or a report that did not arrive.
func (k *keeper) told(ctx context.Context, of any, failed error, before bool, report func() error, lost bool) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was stopped: what became of it says nothing
	}
	if before {
		return failed
	}
	if failed != nil {
		k.log.Error("cannot copy data", "to", of, "error", failed)
	}
	if err := report(); err != nil {
		if ctx.Err() == nil {
			k.log.Warn("cannot report what was copied; doing it again", "to", of, "error", err)
		}
		return err
	}
	if lost {
		return nil
	}
	return failed
}
