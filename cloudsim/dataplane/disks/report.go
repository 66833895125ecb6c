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
	// reportsAtOnce is how many reports are sent at a time.
	reportsAtOnce = 64
	// gather is how long send waits before it sends reports. Meanwhile more reports arrive, the
	// instance that uses the disk can go on first, and short-lived disks are deleted again. The
	// price is that the status of a disk arrives this much later. Reports of copies are sent
	// without this delay, because clients wait for them.
	gather = 100 * time.Millisecond
)

// reports are the disk statuses that have not been sent to the cloud yet. They are sent in a
// goroutine of their own, because each report costs the cloud a commit. Reports of several
// disks share a commit. For each disk only the latest status is sent, and never two at a time.
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

// drop removes the waiting report of a deleted disk.
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

// send sends reports until ctx ends or a report fails. It returns the error.
func (k *keeper) send(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.reports.changed:
		}
		backoff.Sleep(ctx, gather)
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
