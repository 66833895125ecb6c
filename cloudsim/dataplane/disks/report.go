package disks

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/pause"
)

const (
	// reportsAtOnce is how many reports are under way at a time.
	reportsAtOnce = 64
	// gather is how long a report waits for others, for who uses the disk to be
	// served first, and for the disk to be gone again. The price is that status
	// is so much later; reports of copies, which others wait for, are not.
	gather = 100 * time.Millisecond
)

// reports are what the cloud has yet to be told of disks. They are sent beside
// the work on files: a report costs the cloud a commit, which those of several
// disks share. Of one disk only the latest is sent, and never two at once.
type reports struct {
	mu      sync.Mutex
	waiting map[cloudsim.DiskID]cloudsim.DiskStatus
	bell    chan struct{} // holds one
}

func newReports() *reports {
	return &reports{waiting: map[cloudsim.DiskID]cloudsim.DiskStatus{}, bell: make(chan struct{}, 1)}
}

func (r *reports) add(id cloudsim.DiskID, s cloudsim.DiskStatus) {
	r.mu.Lock()
	r.waiting[id] = s
	r.mu.Unlock()
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// drop forgets what the cloud was to be told of a disk that is gone.
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

// send sends reports until ctx ends, or the cloud does not take one.
func (k *keeper) send(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.reports.bell:
		}
		pause.For(ctx, gather)
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
