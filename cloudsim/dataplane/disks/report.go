package disks

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

const (
	reportsAtOnce = 64
	// gatherTime is the time that sendReports waits before it sends reports. More reports arrive
	// during this wait, and the cloud can store all of them in one commit. The disadvantage is that
	// the cloud gets the status of a disk with this delay. Reports of copies have no delay, because
	// clients wait for these reports.
	gatherTime = 100 * time.Millisecond
)

// reports are the disk statuses that the manager has not sent to the cloud yet. The call that sends
// a report returns only when the cloud has committed the status. So a separate goroutine makes
// these calls, and the manager does not wait. For each disk, the goroutine sends only the latest
// status. It never sends two reports of one disk at the same time.
type reports struct {
	mu      sync.Mutex
	waiting map[cloudsim.DiskID]cloudsim.DiskStatus
	changed chan struct{} // notification that waiting has changed; capacity 1
}

func newReports() *reports {
	return &reports{waiting: map[cloudsim.DiskID]cloudsim.DiskStatus{}, changed: make(chan struct{}, 1)}
}

func (r *reports) add(id cloudsim.DiskID, s cloudsim.DiskStatus) {
	r.mu.Lock()
	r.waiting[id] = s
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *reports) drop(id cloudsim.DiskID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, id)
}

func (r *reports) take() map[cloudsim.DiskID]cloudsim.DiskStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.waiting
	r.waiting = map[cloudsim.DiskID]cloudsim.DiskStatus{}
	return all
}

// sendReports sends reports until ctx ends or a report fails. It returns the error of ctx or of
// the report.
func (k *manager) sendReports(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.reports.changed:
		}
		backoff.Sleep(ctx, gatherTime)
		if err := ctx.Err(); err != nil {
			return err
		}
		var all errgroup.Group
		all.SetLimit(reportsAtOnce)
		for id, s := range k.reports.take() {
			all.Go(func() error { return k.reportDisk(ctx, id, s) })
		}
		if err := all.Wait(); err != nil {
			return err
		}
	}
}
