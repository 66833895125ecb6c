// Package disks makes disks true: each is a sparse file of its size in one
// folder, DIR/disk-000001.img. The bytes are whoever's the disk is attached to;
// this package makes the file, lets it grow, removes it with the disk, and
// reports how far that is. It never shrinks a file, and never makes one anew
// for a disk that had its data already.
package disks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Cloud is what the keeper of the files asks of a cloud.
type Cloud interface {
	ListDisks(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.Disk], error)
	Watch(context.Context, cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error]
	ReportDisk(context.Context, cloudsim.DiskID, cloudsim.DiskStatus) error
}

// Config says where the files are.
type Config struct {
	Dir string // folder of its own; made if it is missing
}

// Validate reports what cannot work.
func (c Config) Validate() error {
	if c.Dir == "" {
		return errors.New("a folder is required in Dir")
	}
	return nil
}

const (
	suffix     = ".img"
	retryEvery = 10 * time.Second // for a disk whose file could not be made
	askAgain   = time.Second      // for a cloud that does not answer
)

// Path is where the data of a disk is below dir.
func Path(dir string, id cloudsim.DiskID) string {
	return filepath.Join(dir, string(id)+suffix)
}

// Run keeps the files as the cloud's records say until ctx ends. It fails if
// the folder cannot be made. What goes wrong with one disk is reported as its
// status, and tried again.
func Run(ctx context.Context, log *slog.Logger, cfg Config, cloud Cloud) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("disks: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("disks: %w", err)
	}
	k := &keeper{log: log, dir: cfg.Dir, cloud: cloud}
	for ctx.Err() == nil {
		if err := k.follow(ctx); ctx.Err() == nil {
			log.Warn("cannot follow the cloud's disks; asking again", "error", err)
		}
		pause := time.NewTimer(askAgain)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
	return nil
}

// keeper is Run at work.
type keeper struct {
	log    *slog.Logger
	dir    string
	cloud  Cloud
	failed map[cloudsim.DiskID]cloudsim.Disk // to be tried again
}

// follow lists, removes what no disk has, and then watches; it says why it
// ended. A list makes everything true, so nothing is remembered between two.
func (k *keeper) follow(ctx context.Context) error {
	k.failed = map[cloudsim.DiskID]cloudsim.Disk{}
	known := map[string]bool{}
	rev, after := uint64(0), ""
	for {
		l, err := k.cloud.ListDisks(ctx, cloudsim.ListOptions{After: after})
		if err != nil {
			return err
		}
		if after == "" {
			rev = l.Revision
		}
		for _, d := range l.Items {
			known[string(d.ID)+suffix] = true
			if err := k.put(ctx, d); err != nil {
				return err
			}
		}
		if after = l.Next; after == "" {
			break
		}
	}
	if err := k.sweep(known); err != nil {
		return err
	}
	for e, err := range k.cloud.Watch(ctx, cloudsim.WatchOptions{
		Since: rev, Kinds: []cloudsim.ResourceKind{cloudsim.KindDisk}, Bookmark: retryEvery,
	}) {
		if err != nil {
			return err
		}
		if err := k.handle(ctx, e); err != nil {
			return err
		}
	}
	return cloudsim.Errorf(cloudsim.Unavailable, "the watch ended")
}

func (k *keeper) handle(ctx context.Context, e cloudsim.Event) error {
	switch e.Type {
	case cloudsim.EventBookmark:
		for _, d := range k.failed {
			if err := k.put(ctx, d); err != nil {
				return err
			}
		}
		return nil
	case cloudsim.EventDelete:
		id := cloudsim.DiskID(e.ID)
		delete(k.failed, id)
		if err := os.Remove(Path(k.dir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			k.log.Error("the data of a disk that is gone stays until the next start", "disk", id, "error", err)
		}
		return nil
	}
	var d cloudsim.Disk
	if err := json.Unmarshal(e.Object, &d); err != nil {
		return cloudsim.Errorf(cloudsim.Internal, "event %d, %s %s: %w", e.Rev, e.Kind, e.ID, err)
	}
	return k.put(ctx, d)
}

// put makes the file of d true and reports it. The error is the cloud's; the
// file's own is in the report.
func (k *keeper) put(ctx context.Context, d cloudsim.Disk) error {
	if d.State == cloudsim.DiskDeleting {
		return nil
	}
	status := cloudsim.DiskStatus{SizeGiB: d.SizeGiB}
	delete(k.failed, d.ID)
	if err := k.make(d); err != nil {
		k.failed[d.ID] = d
		status = cloudsim.DiskStatus{SizeGiB: d.Status.SizeGiB, Error: reason(err)}
		if status != d.Status {
			k.log.Error("cannot make the data of a disk", "disk", d.ID, "error", err)
		}
	}
	if status == d.Status {
		return nil
	}
	if err := k.cloud.ReportDisk(ctx, d.ID, status); err != nil && !errors.Is(err, cloudsim.NotFound) {
		return err
	}
	return nil
}

var errLost = errors.New("its data is gone: there is no file for it any more")

// make makes the file, or lets it grow to its size.
func (k *keeper) make(d cloudsim.Disk) (err error) {
	flags := os.O_WRONLY | os.O_CREATE
	if d.Status.SizeGiB > 0 {
		flags = os.O_WRONLY // it had data; an empty file would hide that it is lost
	}
	f, err := os.OpenFile(Path(k.dir, d.ID), flags, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errLost
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if want := int64(d.SizeGiB) << 30; info.Size() < want {
		return f.Truncate(want)
	}
	return nil
}

// reason is err for who owns the disk: without the machine's paths.
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// sweep removes the files of disks that went while nobody looked.
func (k *keeper) sweep(known map[string]bool) error {
	there, err := os.ReadDir(k.dir)
	if err != nil {
		return err
	}
	for _, f := range there {
		if known[f.Name()] || !strings.HasPrefix(f.Name(), "disk-") || !strings.HasSuffix(f.Name(), suffix) {
			continue
		}
		if err := os.Remove(filepath.Join(k.dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}
