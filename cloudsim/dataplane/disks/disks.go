// Package disks keeps the data of disks and snapshots. Each disk or snapshot has a sparse file in
// the folder DIR, for example DIR/disk-000001.img or DIR/snap-000001.img. The package creates,
// grows and deletes the file of each disk, and reports the state of the file to the cloud. If the
// disk has a source, the new file is a copy of the source. The only other writers of the file are
// the instances to which the disk is attached. The file of a snapshot is read-only. The package
// never shrinks a file. It never creates a new file for a disk that has lost its data.
//
// The package writes a copy under a temporary name and renames the copy when it is complete. So a
// process that is killed during a copy leaves no incomplete file under a disk's name.
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
	"regexp"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// Cloud is the part of the cloud API that Run calls.
type Cloud interface {
	ListDisks(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.Disk], error)
	Watch(context.Context, cloudsim.WatchOptions) iter.Seq2[cloudsim.Event, error]
	ListSnapshots(context.Context, cloudsim.ListOptions) (cloudsim.List[cloudsim.Snapshot], error)
	ReportDisk(context.Context, cloudsim.DiskID, cloudsim.DiskStatus) error
	ReportSnapshots(context.Context, []cloudsim.SnapshotReport) error
}

// Config configures Run.
type Config struct {
	Dir string // folder that contains only the files of disks and snapshots; Run makes the folder if it is missing
	// Files is the handle that the engine uses to save states and to load saved
	// states. It must be the handle of the folder in the field Dir. If Files is
	// nil, the engine does not save or load states with disk data.
	Files *Files
}

// Validate returns an error if Dir is empty, or if the handle in the field Files belongs to another
// folder.
func (c Config) Validate() error {
	if c.Dir == "" {
		return errors.New("the field Dir is required")
	}
	if c.Files != nil && c.Files.dir != c.Dir {
		return fmt.Errorf("Files must use the folder that Dir names, %s, not %s", c.Dir, c.Files.dir)
	}
	return nil
}

const (
	suffix       = ".img"
	made         = fs.FileMode(0o600) // mode of a disk's file
	snapshotMode = fs.FileMode(0o400)
	retryEvery   = 10 * time.Second // retry interval after a failure to make or copy a file
	askAgain     = time.Second      // retry interval after a failed list or watch
)

// Path returns the path of a disk's file in the folder dir.
func Path(dir string, id cloudsim.DiskID) string {
	return filepath.Join(dir, string(id)+suffix)
}

// SnapshotPath returns the path of a snapshot's file in the folder dir.
func SnapshotPath(dir string, id cloudsim.SnapshotID) string {
	return filepath.Join(dir, string(id)+suffix)
}

// Run makes the files match the cloud's records until ctx ends. It returns an error if cfg is not
// valid or if it cannot make the folder. It reports an error of one disk in the status of this
// disk, and then tries again. It also tries again after an error of the cloud.
func Run(ctx context.Context, log *slog.Logger, cfg Config, cloud Cloud) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("disks: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("disks: %w", err)
	}
	files := cfg.Files
	if files == nil {
		files = NewFiles(cfg.Dir)
	}
	k := &manager{log: log, dir: cfg.Dir, files: files, cloud: cloud}
	for ctx.Err() == nil {
		if err := files.follow(ctx, k.watchCloud); err != nil {
			log.Warn("cannot watch the cloud's disks; trying again", "error", err)
			backoff.Sleep(ctx, askAgain)
		}
	}
	return nil
}

// manager is the state of Run.
type manager struct {
	log   *slog.Logger
	dir   string
	files *Files
	cloud Cloud
	*jobs
	reports *reports

	mu      sync.Mutex
	failed  map[cloudsim.DiskID]cloudsim.Disk                                      // disks for which the last call of makeFile failed; each bookmark event repeats this call
	members map[cloudsim.SnapshotGroupID]map[cloudsim.SnapshotID]cloudsim.Snapshot // members of groups that wait for more members
}

// watchCloud lists disks and snapshots, deletes the files without a record, and then watches the
// cloud. It returns the error that ended the list or the watch. Each call begins with a full list,
// so watchCloud keeps no state from the previous call.
func (k *manager) watchCloud(ctx context.Context) error {
	k.failed = map[cloudsim.DiskID]cloudsim.Disk{}
	k.members = map[cloudsim.SnapshotGroupID]map[cloudsim.SnapshotID]cloudsim.Snapshot{}
	k.jobs, k.reports = newJobs(), newReports()
	defer k.running.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil) // runs before running.Wait, because deferred calls run in reverse order
	k.running.Go(func() { cancel(k.sendReports(ctx)) })
	ds, rev, err := cloudsim.All(ctx, k.cloud.ListDisks, cloudsim.ListOptions{})
	if err != nil {
		return err
	}
	ss, _, err := cloudsim.All(ctx, k.cloud.ListSnapshots, cloudsim.ListOptions{})
	if err != nil {
		return err
	}
	if err := k.sweep(ds, ss); err != nil {
		return err
	}
	for _, d := range ds {
		k.put(ctx, d)
	}
	if err := k.putSnapshots(ctx, ss); err != nil {
		return err
	}
	for e, err := range k.cloud.Watch(ctx, cloudsim.WatchOptions{
		Since: rev, Kinds: []cloudsim.ResourceKind{cloudsim.KindDisk, cloudsim.KindSnapshot, cloudsim.KindSnapshotGroup}, Bookmark: retryEvery,
	}) {
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if err := k.handle(ctx, e); err != nil {
			return fmt.Errorf("event %d, %s %s: %w", e.Rev, e.Kind, e.ID, err)
		}
	}
	return cloudsim.Errorf(cloudsim.Unavailable, "the watch ended")
}

func (k *manager) handle(ctx context.Context, e cloudsim.Event) error {
	switch {
	case e.Type == cloudsim.EventBookmark:
		for _, d := range k.failed {
			k.put(ctx, d)
		}
		return nil
	case e.Kind == cloudsim.KindSnapshot:
		return k.handleSnapshot(ctx, e)
	case e.Kind == cloudsim.KindSnapshotGroup:
		return k.handleGroup(ctx, e)
	}
	var d cloudsim.Disk
	if err := json.Unmarshal(e.Object, &d); err != nil {
		return err
	}
	if e.Type != cloudsim.EventDelete {
		k.put(ctx, d)
		return nil
	}
	k.setFailed(d, false)
	k.reports.drop(d.ID)
	k.forget(string(d.ID), Path(k.dir, d.ID))
	return nil
}

func (k *manager) forget(job, path string) {
	k.stop(job)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Error("cannot delete the data of a deleted disk or snapshot; trying again at the next start", "id", job, "error", reason(err))
	}
}

func (k *manager) setFailed(d cloudsim.Disk, failed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if failed {
		k.failed[d.ID] = d
	} else {
		delete(k.failed, d.ID)
	}
}

// put makes or grows the file of d, and queues a report if the status has changed. If d has a
// source and no data yet, put instead starts a copy of the source. If d is being deleted, put only
// stops this copy. put ignores a failed disk.
func (k *manager) put(ctx context.Context, d cloudsim.Disk) {
	switch {
	case d.State == cloudsim.DiskDeleting:
		k.setFailed(d, false)
		k.stop(string(d.ID))
		return
	case d.State == cloudsim.DiskFailed:
		k.setFailed(d, false)
		return
	case d.Source() != "" && d.Status.SizeGiB == 0:
		k.setFailed(d, false)
		k.fill(ctx, d)
		return
	}
	status := cloudsim.DiskStatus{SizeGiB: d.SizeGiB}
	err := k.makeFile(d)
	k.setFailed(d, err != nil) // only after makeFile, because a copy job may call notCreated during the retry
	if err != nil {
		status = cloudsim.DiskStatus{SizeGiB: d.Status.SizeGiB, Error: reason(err), Lost: errors.Is(err, errLost)}
		if status != d.Status {
			k.log.Error("cannot create or grow the data file of a disk", "disk", d.ID, "error", err)
		}
	}
	if status != d.Status {
		k.reports.add(d.ID, status)
	}
}

func (k *manager) reportDisk(ctx context.Context, id cloudsim.DiskID, s cloudsim.DiskStatus) error {
	if err := k.cloud.ReportDisk(ctx, id, s); err != nil && !errors.Is(err, cloudsim.NotFound) {
		return err
	}
	return nil
}

// fill starts a job that copies the data of the source to the file of d. The job reports the result
// of the copy to the cloud.
func (k *manager) fill(ctx context.Context, d cloudsim.Disk) {
	c := fileCopy{from: Path(k.dir, d.SourceDisk), to: Path(k.dir, d.ID), bytes: int64(d.SizeGiB) << 30, mode: made}
	if d.SourceSnapshot != "" {
		c.from = SnapshotPath(k.dir, d.SourceSnapshot)
	}
	lastStatus := d.Status
	k.start(ctx, string(d.ID), func(ctx context.Context) error {
		status := cloudsim.DiskStatus{SizeGiB: d.SizeGiB}
		// The job must call notCreated before the copy. If the source disk has no file yet, the
		// copy fails, and the method put may create the file directly after this failure. A later
		// call of notCreated would then return false, and the job would wrongly report lost data.
		notCreated := k.notCreated(d.SourceDisk)
		err := k.runLimited(ctx, func() error { return copyTogether(ctx, []fileCopy{c}) })
		if err != nil {
			status = cloudsim.DiskStatus{Error: "cannot copy the source: " + reason(err), Lost: errors.Is(err, errLost) && !notCreated}
		}
		return k.reportResult(ctx, d.ID, err, status == lastStatus, func() error {
			if err := k.reportDisk(ctx, d.ID, status); err != nil {
				return err
			}
			lastStatus = status
			return nil
		}, status.Lost)
	})
}

// notCreated returns true if a disk has no file yet and the last attempt to make its file failed.
func (k *manager) notCreated(id cloudsim.DiskID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, failed := k.failed[id]
	return failed && d.Status.SizeGiB == 0
}

var errLost = errors.New("the data is lost: the data file does not exist any more")

// makeFile creates the file of d, or grows it to the size of d. For most events, the file already
// has this size, and makeFile only calls Lstat. It returns errLost if the folder is missing, or if
// d had data and the file is missing. It returns errNotRegular if the path is not a regular file.
func (k *manager) makeFile(d cloudsim.Disk) error {
	path, want := Path(k.dir, d.ID), int64(d.SizeGiB)<<30
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return errNotRegular
	case err == nil && info.Size() >= want:
		return nil
	case err == nil:
		return grow(path, want)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case d.Status.SizeGiB > 0: // the disk had data; an empty new file would hide the loss
		return errLost
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, made)
	if errors.Is(err, fs.ErrNotExist) {
		return errLost // the folder is missing, too
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(want), f.Close())
}

// errNotRegular is the error if the file at the path of a disk is not a regular file, for example
// if it is a link. If a node mounts the folder with the disks' data, a root user on the node can
// write to this folder. So the folder can contain links to any file of the host. The data plane
// follows no link, so that it does not read or change these files.
var errNotRegular = errors.New("the data file must be a regular file, and not a link, a folder or a device: put the data file itself at this path")

func grow(path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|noFollow, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(bytes), f.Close())
}

// reason returns the text of err without the paths of this machine, because the owner of the disk
// reads the text in the status.
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err.Error()
	}
	return err.Error()
}

// sweep deletes incomplete copies and the files of disks and snapshots that were deleted while the
// data plane did not run. It also deletes the spare files of earlier versions (see ownFiles). It
// logs each failed deletion and continues, so that the data plane still serves the other disks.
func (k *manager) sweep(ds []cloudsim.Disk, ss []cloudsim.Snapshot) error {
	known := map[string]bool{}
	for _, d := range ds {
		known[string(d.ID)+suffix] = true
	}
	for _, s := range ss {
		known[string(s.ID)+suffix] = true
	}
	failed, err := k.files.removeAllBut(known)
	for _, err := range failed {
		k.log.Error("cannot delete the data of a deleted disk or snapshot; trying again at the next start", "error", err)
	}
	return err
}

// ownFiles matches the names of this package's files. Earlier versions kept the files of
// deleted disks under names such as spare-000001.img.
var ownFiles = regexp.MustCompile(`^(disk|snap|spare)-[0-9a-f]+\.img(\.part)?$`)
