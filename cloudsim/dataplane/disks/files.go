package disks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
	"github.com/cloudsim-dev/allinone/internal/fsync"
)

// Files manages the folder of all disk files. It writes the data of disks and snapshots into a
// saved state. It also replaces the present data by the data of a saved state. The caller makes a
// Files with NewFiles and passes it to Run, so that Run serves no disk during a replacement.
type Files struct {
	dir string

	// A goroutine that needs both locks locks swapLock before runLock.
	//   - Run locks both locks, unlocks swapLock, and holds runLock while it serves disks.
	//   - Swap locks swapLock, calls cancelRun so that Run unlocks runLock, and locks runLock. It
	//     holds both locks while it replaces the data.
	//   - Save locks only swapLock.
	swapLock, runLock sync.Mutex
	cancelRun         context.CancelFunc
	// pendingData describes the disk data of a loaded state. This data is still in a temporary
	// folder (see Stage), although the cloud already has the records of the state. When all files
	// are at their final paths, pendingData is nil. A goroutine that sets pendingData holds
	// swapLock and runLock. A goroutine that clears pendingData holds runLock.
	pendingData atomic.Pointer[cloudsim.StagedData]
}

// NewFiles returns the Files of the folder dir. The folder does not have to exist yet.
func NewFiles(dir string) *Files { return &Files{dir: dir} }

// stagePrefix begins the names of temporary folders. These folders hold disk
// data while the cloud saves a state or loads a saved state.
const stagePrefix = ".load-"

// follow waits until no call of Swap or Save runs, and moves pending data to its final paths. If
// the move fails, follow returns the error. Otherwise it calls fn and returns the error of fn. If
// the context of fn has ended, for example because Swap was called, follow returns nil.
func (f *Files) follow(ctx context.Context, fn func(context.Context) error) error {
	f.swapLock.Lock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.cancelRun = cancel
	f.runLock.Lock() // cannot block for long: Swap locks runLock only while it holds swapLock
	defer f.runLock.Unlock()
	f.swapLock.Unlock()
	if err := f.finish(); err != nil {
		return err
	}
	if err := fn(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// Save writes the data of disks and snapshots to w. The data of all files is from the same instant.
// The parameter sizes contains the size of each disk or snapshot, by id. Save returns:
//
//   - Conflict if there is more data than MaxStateData
//   - Conflict if programs write so often that Save cannot read all data between two writes
//   - Conflict if a file is a link, a folder or a device
//   - NotFound if a file is missing, unless the field Optional of its entry in sizes is true
//   - Unavailable while the files of a loaded state are not at their final paths
func (f *Files) Save(ctx context.Context, w *statefile.Writer, sizes map[string]cloudsim.DataSize) error {
	f.swapLock.Lock()
	defer f.swapLock.Unlock()
	if f.pendingData.Load() != nil {
		return cloudsim.Errorf(cloudsim.Unavailable, "the disk data of the last loaded state is not in place yet; the cloud tries again and serves no disk until then")
	}
	scratch, err := f.scratch()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }() // if this fails, the next start removes the folder
	var ids []string
	var all []fileCopy
	var total int64
	for _, id := range slices.Sorted(maps.Keys(sizes)) {
		n, err := dataIn(f.path(id))
		switch {
		case errors.Is(err, fs.ErrNotExist) && sizes[id].Optional:
			continue
		case errors.Is(err, fs.ErrNotExist):
			return cloudsim.Errorf(cloudsim.NotFound, "the file of %s is missing", id)
		case errors.Is(err, errNotRegular):
			return cloudsim.Errorf(cloudsim.Conflict, "cannot save the data of %s: %w", id, err)
		case err != nil:
			return fmt.Errorf("cannot save the data of %s: %w", id, err)
		}
		if total += n; total > cloudsim.MaxStateData {
			return errTooBig
		}
		ids = append(ids, id)
		all = append(all, fileCopy{from: f.path(id), to: filepath.Join(scratch, id+suffix), bytes: sizes[id].Bytes, mode: made})
	}
	switch err := copyTogether(ctx, all); {
	case errors.Is(err, errBusy):
		return cloudsim.Errorf(cloudsim.Conflict, "cannot save a disk: %w. To save the state without the data of disks, set recordsOnly", err)
	case errors.Is(err, errLost):
		return cloudsim.Errorf(cloudsim.NotFound, "a disk, or its data file, was deleted during the save: save the state again")
	case err != nil:
		return err
	}
	total = 0
	for i, id := range ids {
		n, err := pack(ctx, w, id, all[i].to, all[i].bytes)
		if total += n; err == nil && total > cloudsim.MaxStateData { // a disk has grown since the first check
			err = errTooBig
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dataIn returns the number of bytes of data in a file, without its holes. It returns errNotRegular
// if the path is not a regular file.
func dataIn(path string) (n int64, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errNotRegular
	}
	for e, err := range listExtents(file) {
		if err != nil {
			return 0, err
		}
		n += e.end - e.begin
	}
	return n, nil
}

// Stage prepares the data that Save wrote, so that Swap can move it to the final paths. It returns
// Invalid if the data is damaged.
//
// If r is not nil, Stage ignores ids. If r is nil, the state has no disk data. Swap will then keep
// the present files of the disks and snapshots in ids, and delete all other files.
func (f *Files) Stage(ctx context.Context, r *statefile.Reader, ids []string) (s cloudsim.StagedData, err error) {
	dir, err := f.scratch()
	if err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir) // if this fails, the next start removes the folder
		}
	}()
	if r != nil {
		if ids, err = unpack(ctx, r, dir); err != nil {
			return s, err
		}
	}
	return cloudsim.StagedData{Folder: filepath.Base(dir), Keep: ids}, errors.Join(fsync.Dir(dir), fsync.Dir(f.dir))
}

func (f *Files) scratch() (string, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(f.dir, stagePrefix)
}

// Swap replaces the present data by the data of a loaded state, in these steps:
//
//  1. Swap stops Run until Swap returns.
//  2. If an earlier call of Swap could not move its data, Swap tries this move again. If the move
//     fails, Swap returns the error.
//  3. Swap calls commitState, which returns the staged data of the loaded state. If commitState
//     fails, Swap removes this staged data, keeps the present data, and returns the error.
//  4. Swap moves the staged data to the final paths.
//  5. Swap removes the temporary folders that earlier loads and saves left.
//
// A cloud calls Swap again at its next start, because it may have been killed after the commit. If
// the data is already at the final paths, this call does not change the data.
func (f *Files) Swap(commitState func() (cloudsim.StagedData, error)) error {
	f.swapLock.Lock()
	defer f.swapLock.Unlock()
	if f.cancelRun != nil {
		f.cancelRun()
	}
	f.runLock.Lock()
	defer f.runLock.Unlock()
	if err := f.finish(); err != nil {
		return err
	}
	stage, err := commitState()
	if err != nil {
		if stage.Folder != "" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.dir, stage.Folder)))
		}
		return err
	}
	f.pendingData.Store(&stage)
	if err := f.finish(); err != nil {
		return err
	}
	left, _ := fs.Glob(os.DirFS(f.dir), stagePrefix+"*") // the pattern is valid
	for _, name := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(f.dir, name)))
	}
	return err
}

// finish moves the files of the pending data to their final paths.
func (f *Files) finish() error {
	stage := f.pendingData.Load()
	if stage == nil {
		return nil
	}
	if err := f.adopt(*stage); err != nil {
		return fmt.Errorf("load of disk data failed; the cloud tries again and serves no disk until then: %w", err)
	}
	f.pendingData.Store(nil)
	return nil
}

// adopt deletes the present files of disks and snapshots, except those in stage.Keep. It then moves
// the staged files to their final paths, and removes the folder of the staged data. If this folder
// is missing, an earlier call has already moved the files, and adopt does nothing.
func (f *Files) adopt(stage cloudsim.StagedData) error {
	dir := filepath.Join(f.dir, stage.Folder)
	if _, err := os.Stat(dir); stage.Folder == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	keep := map[string]bool{}
	for _, id := range stage.Keep {
		keep[id+suffix] = true
	}
	failed, err := f.removeAllBut(keep)
	if err := errors.Join(append(failed, err)...); err != nil {
		return err // a remaining file could become the data of a new disk with the same id
	}
	for name := range keep {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// The first sync makes the moved files durable before RemoveAll removes the folder. The second
	// sync makes the removal durable before Run makes a new file. Without the second sync, the
	// folder could exist again after a crash. The next call of adopt would then delete all files
	// that are not in stage.Keep, including the new file.
	return errors.Join(fsync.Dir(f.dir), os.RemoveAll(dir), fsync.Dir(f.dir))
}

// removeAllBut deletes the files that match ownFiles, except the files with names in keep. If a
// deletion fails, the method adds the error to the slice failed and continues. If the method cannot
// read the folder, it returns the error in err.
func (f *Files) removeAllBut(keep map[string]bool) (failed []error, err error) {
	all, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	for _, file := range all {
		if keep[file.Name()] || !ownFiles.MatchString(file.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(f.dir, file.Name())); err != nil {
			failed = append(failed, err)
		}
	}
	return failed, nil
}

func (f *Files) path(id string) string { return filepath.Join(f.dir, id+suffix) }
