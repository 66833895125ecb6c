package disks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/durable"
)

// Files is the folder as a whole: it keeps a copy of the data of disks and
// snapshots for a saved state, and brings one back. Make it with NewFiles, and
// give it to Run, which stands aside meanwhile.
type Files struct {
	dir string

	// gate keeps Run from following the cloud, turn is held while it does, and
	// leave ends that.
	gate, turn sync.Mutex
	leave      context.CancelFunc
	// late is the stage that is the data by the records and is not in its place;
	// until it is, nothing else is done. Who has gate knows that none becomes late,
	// and who has turn that none ceases to be.
	late atomic.Pointer[string]
}

// NewFiles is the folder dir, which need not be there yet.
func NewFiles(dir string) *Files { return &Files{dir: dir} }

const (
	stagePrefix = ".load-"               // of folders with what is about to be the data
	listName    = cloudsim.StateDataList // in a folder: which data it has, or is to have
)

// follow runs fn while nobody changes the folder as a whole, and returns nil when
// that is why fn ended.
func (f *Files) follow(ctx context.Context, fn func(context.Context) error) error {
	f.gate.Lock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.leave = cancel
	f.turn.Lock() // only Swap holds it besides, and that has the gate
	defer f.turn.Unlock()
	f.gate.Unlock()
	if err := f.catchUp(); err != nil {
		return err
	}
	if err := fn(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// Save copies the data of disks and snapshots, as all of them are at one
// instant, to a new folder to. Sizes are by id. It is Conflict when that is more
// than a state may hold, or when something is written to all the time, NotFound
// when one of them is gone, and Unavailable while what was loaded is not in its
// place. No other data is brought in meanwhile.
func (f *Files) Save(ctx context.Context, to string, sizes map[string]cloudsim.DataSize) error {
	f.gate.Lock()
	defer f.gate.Unlock()
	if f.late.Load() != nil {
		return cloudsim.Errorf(cloudsim.Unavailable, "the data of disks that was loaded is not in its place yet: it is tried again, and no disk is served until it is")
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	var all []copying
	var without []string
	left := int64(cloudsim.MaxStateData)
	for _, id := range slices.Sorted(maps.Keys(sizes)) {
		c := copying{from: f.path(id), to: filepath.Join(to, id+suffix), bytes: sizes[id].Bytes, mode: 0o600}
		n, err := held(c.from)
		switch {
		case errors.Is(err, fs.ErrNotExist) && sizes[id].Unsaid:
			without = append(without, id)
			continue
		case errors.Is(err, fs.ErrNotExist):
			return cloudsim.Errorf(cloudsim.NotFound, "the data of %s is gone", id)
		case err != nil:
			return err
		}
		if left -= n; left < 0 {
			return cloudsim.Errorf(cloudsim.Conflict, "the disks and snapshots hold more data than a state may, which is %d GiB: set recordsOnly to save the records alone", cloudsim.MaxStateData>>30)
		}
		all = append(all, c)
	}
	if len(all) > 0 {
		switch err := copyTogether(ctx, all); {
		case errors.Is(err, errBusy):
			return cloudsim.Errorf(cloudsim.Conflict, "a disk cannot be saved: %w; or set recordsOnly to save the records alone", err)
		case errors.Is(err, errLost):
			return cloudsim.Errorf(cloudsim.NotFound, "a disk went while it was saved: %w", err)
		case err != nil:
			return err
		}
	}
	var list cloudsim.StateData
	for _, c := range all {
		if err := os.Truncate(c.to, c.bytes); err != nil { // it may have grown meanwhile
			return err
		}
		file, err := describe(ctx, c.to, c.bytes)
		if err != nil {
			return err
		}
		list.Files = append(list.Files, file)
	}
	for _, id := range without { // at the instant that the others show
		if _, err := os.Stat(f.path(id)); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, cloudsim.Errorf(cloudsim.NotFound, "the data of %s came while others were saved", id))
		}
	}
	if err := list.Validate(); err != nil { // they may have grown beyond what a state may hold
		return cloudsim.Errorf(cloudsim.Conflict, "the disks and snapshots cannot be saved: %w; set recordsOnly to save the records alone", err)
	}
	return writeList(filepath.Join(to, listName), list)
}

// Stage prepares what is to be the data of ids, and of nothing else: what a
// folder has that Save or Unpack made, or, for "", what is there now. It
// returns the name that Swap knows it by. What was damaged meanwhile is Invalid.
func (f *Files) Stage(ctx context.Context, from string, ids []string) (stage string, err error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(f.dir, stagePrefix)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	var list cloudsim.StateData
	for _, id := range ids {
		list.Files = append(list.Files, cloudsim.StateFile{ID: id})
	}
	if from != "" {
		if list, err = readList(filepath.Join(from, listName)); err != nil {
			return "", err
		}
		if err := stageFiles(ctx, from, dir, list); err != nil {
			return "", err
		}
	}
	return filepath.Base(dir), errors.Join(writeList(filepath.Join(dir, listName), list), durable.Names(f.dir))
}

// stageFiles copies what is kept in from to dir, and checks each copy.
func stageFiles(ctx context.Context, from, dir string, list cloudsim.StateData) error {
	for _, file := range list.Files {
		c := copying{from: filepath.Join(from, file.ID+suffix), to: filepath.Join(dir, file.ID+suffix), bytes: file.SizeBytes, mode: 0o600}
		if strings.HasPrefix(file.ID, "snap-") {
			c.mode = 0o400
		}
		if err := copyTogether(ctx, []copying{c}); errors.Is(err, errLost) {
			return cloudsim.Errorf(cloudsim.Invalid, "the state is damaged: the data of %s is gone", file.ID)
		} else if err != nil {
			return err
		}
		switch is, err := describe(ctx, c.to, file.SizeBytes); {
		case err != nil:
			return err
		case is != file:
			return cloudsim.Errorf(cloudsim.Invalid, "the state is damaged: the data of %s does not match its SHA-256", file.ID)
		}
	}
	return nil
}

// Swap makes what was staged the data, if commit says so: nobody touches the
// files from before it is called until the data is in its place. What else was
// staged is forgotten, and all of it when commit fails. Swapping in the same stage
// again is harmless, so a cloud that was killed after the commit does it at its
// next start.
func (f *Files) Swap(commit func() (stage string, err error)) error {
	f.gate.Lock()
	defer f.gate.Unlock()
	if f.leave != nil {
		f.leave()
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	if err := f.catchUp(); err != nil {
		return err
	}
	stage, err := commit()
	if err != nil {
		return errors.Join(err, f.forgetStages())
	}
	if stage != "" { // "" if nothing was ever loaded
		f.late.Store(&stage)
	}
	if err := f.catchUp(); err != nil {
		return err
	}
	return f.forgetStages()
}

// catchUp puts the data in its place that is late.
func (f *Files) catchUp() error {
	stage := f.late.Load()
	if stage == nil {
		return nil
	}
	if err := f.adopt(*stage); err != nil {
		return fmt.Errorf("the data of disks is not in its place, and no disk is served until it is; it is tried again: %w", err)
	}
	f.late.Store(nil)
	return nil
}

// adopt removes what stage does not list, and puts in place what it has. Its
// list goes last.
func (f *Files) adopt(stage string) error {
	dir := filepath.Join(f.dir, stage)
	list, err := readList(filepath.Join(dir, listName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is in place
	}
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, file := range list.Files {
		keep[file.ID+suffix] = true
	}
	if err := f.removeAllBut(keep); err != nil {
		return err
	}
	for name := range keep {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// That it is in place is on the disk before the list goes, and that the list
	// is gone before anything comes that it would take away.
	return errors.Join(durable.Names(f.dir), os.RemoveAll(dir), durable.Names(f.dir))
}

// forgetStages removes what loads left that did not come to their end.
func (f *Files) forgetStages() error {
	there, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, file := range there {
		if strings.HasPrefix(file.Name(), stagePrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.dir, file.Name())))
		}
	}
	return err
}

// removeAllBut removes the files of this package but those to keep.
func (f *Files) removeAllBut(keep map[string]bool) error {
	there, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, file := range there {
		if keep[file.Name()] || !ours.MatchString(file.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(f.dir, file.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (f *Files) path(id string) string { return filepath.Join(f.dir, id+suffix) }

func writeList(path string, list cloudsim.StateData) error {
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(raw)
	return errors.Join(err, file.Sync(), file.Close(), durable.Names(filepath.Dir(path)))
}

func readList(path string) (list cloudsim.StateData, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return list, err
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return list, cloudsim.Errorf(cloudsim.Invalid, "the state is damaged: its list of data: %w", err)
	}
	return list, list.Validate()
}
