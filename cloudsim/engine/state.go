package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
	"github.com/cloudsim-dev/allinone/internal/fsync"
)

const (
	stateSuffix = ".state"
	// scratchPrefix is the prefix of the temporary files of a save, load or
	// import.
	scratchPrefix = ".making-"
)

func (ss *stateManager) statePath(name string) (string, error) {
	if ss.cfg.StateDir == "" {
		return "", cloudsim.Errorf(cloudsim.Unavailable, "this cloud has no folder for saved states")
	}
	if err := (cloudsim.SaveState{Name: name}).Validate(); err != nil {
		return "", err
	}
	return filepath.Join(ss.cfg.StateDir, name+stateSuffix), nil
}

// SaveState saves the whole cloud. The saved records are from one instant, and the saved disk data
// is from one later instant. Other calls continue during the save. A load or a reset waits until a
// save with disk data ends. SaveState returns Exists if the name is in use, and Conflict if it
// cannot save the data of the disks.
func (ss *stateManager) SaveState(ctx context.Context, req cloudsim.SaveState) (s cloudsim.State, err error) {
	if _, err := callOf(ctx); err != nil {
		return s, err
	}
	if err := req.Validate(); err != nil {
		return s, err
	}
	withData := ss.cfg.DiskFiles != nil && !req.RecordsOnly
	if withData {
		ss.loading.Lock()
		defer ss.loading.Unlock()
	}
	return ss.keepState(req.Name, func(f *os.File) error {
		var sizes map[string]cloudsim.DataSize
		w := statefile.NewWriter(f)
		if err := ss.store.Archive(w, func(tx *store.Tx) (_ bool, err error) {
			if withData {
				sizes, err = dataSizes(tx)
			} else if ss.cfg.DiskData && !req.RecordsOnly && disks.Any(tx) {
				err = cloudsim.Errorf(cloudsim.Conflict, "this cloud has no access to the data of its disks: set recordsOnly to save the state without this data")
			}
			return len(sizes) > 0, err
		}); err != nil || len(sizes) == 0 {
			return err
		}
		w.BeginData()
		// The method Archive has read the records at an earlier instant. If the cloud has deleted
		// a disk or a snapshot since then, the method Save returns NotFound.
		err := ss.cfg.DiskFiles.Save(ctx, w, sizes)
		if errors.Is(err, cloudsim.NotFound) {
			return cloudsim.Errorf(cloudsim.Conflict, "%w: save again, or set recordsOnly to save the state without this data", err)
		}
		return errors.Join(err, w.End())
	})
}

// keepState creates the file of a saved state. It calls writeContent to write the content. If
// writeContent fails, no file remains. keepState returns Exists if the name is in use.
func (ss *stateManager) keepState(name string, writeContent func(*os.File) error) (s cloudsim.State, err error) {
	path, err := ss.statePath(name)
	if err != nil {
		return s, err
	}
	taken := cloudsim.Errorf(cloudsim.Exists, "state %q already exists: delete it first, or choose another name", name)
	if _, err := os.Stat(path); err == nil { // this check only avoids useless work; os.Link below decides whether the name is free
		return s, taken
	}
	if err := os.MkdirAll(ss.cfg.StateDir, 0o700); err != nil {
		return s, fullDiskError(err)
	}
	f, err := os.CreateTemp(ss.cfg.StateDir, scratchPrefix) // CreateTemp creates the file with mode 0600
	if err != nil {
		return s, fullDiskError(err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // if this fails, the next start removes the file
	err = writeContent(f)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return s, fullDiskError(err)
	}
	if err := os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		return s, taken
	} else if err != nil {
		return s, fullDiskError(err)
	}
	if err := fsync.Dir(ss.cfg.StateDir); err != nil {
		return s, fullDiskError(err)
	}
	return stateAt(path)
}

// fullDiskError returns Unavailable if a write failed because of a full disk, a disk quota or a
// limit of the file size. Otherwise it returns err. During an import, err can be an Invalid error
// that wraps the error of the write. The reason is that statefile.Reader reads the uploaded state
// through a reader that also writes the bytes to a file.
func fullDiskError(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, full) {
			return cloudsim.Errorf(cloudsim.Unavailable, "the cloud cannot write to the folder of saved states: %w: free some space, then repeat the request", full)
		}
	}
	return err
}

// forgetScratch removes temporary files that a killed process left.
func (ss *stateManager) forgetScratch() (err error) {
	left, _ := fs.Glob(os.DirFS(ss.cfg.StateDir), scratchPrefix+"*") // Glob returns an error only for an invalid pattern
	for _, name := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(ss.cfg.StateDir, name)))
	}
	return err
}

func (ss *stateManager) openState(name string) (*os.File, error) {
	path, err := ss.statePath(name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cloudsim.Errorf(cloudsim.NotFound, "no state named %q", name)
	}
	return f, err
}

func (ss *stateManager) withState(name string, fn func(from *store.Store, data *statefile.Reader) error) error {
	f, err := ss.openState(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file was only read, so an error of Close does not matter
	return ss.withUnpacked(f, fn)
}

// withUnpacked unpacks the records of a saved state into a temporary store and
// checks the records. It then calls fn with that store and a reader of the disk
// data. The reader is nil if the saved state has no disk data. withUnpacked
// returns Invalid for a damaged file. It does not change the store of the
// running cloud.
func (ss *stateManager) withUnpacked(f io.Reader, fn func(from *store.Store, data *statefile.Reader) error) error {
	r, err := statefile.NewReader(f)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(ss.cfg.StateDir, scratchPrefix)
	if err != nil {
		return fullDiskError(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // if this fails, the next start removes the directory
	from, err := store.Unarchive(r, filepath.Join(dir, "unpacked.db"))
	if err != nil {
		return fullDiskError(err)
	}
	defer func() { _ = from.Close() }() // an error does not matter, because the deferred call above removes the directory
	if err := r.EndSection(r.Head.DiskData); err != nil {
		return err
	}
	other := New(ss.log, from, ss.cfg)
	if err := errors.Join(other.checkRecords(), other.loadRates()); err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "the file is damaged, or is not a saved state of cloudsim: %w", err)
	}
	if !r.Head.DiskData {
		r = nil
	}
	return fn(from, r)
}

// stateAt returns the description of the saved state at path, from the header of the file. If the
// header is damaged, stateAt describes the damage in the field Damage and returns no error. It
// returns NotFound if another caller has deleted the saved state.
func stateAt(path string) (s cloudsim.State, err error) {
	name := strings.TrimSuffix(filepath.Base(path), stateSuffix)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, cloudsim.Errorf(cloudsim.NotFound, "no state named %q", name)
	} else if err != nil {
		return s, err
	}
	defer func() { _ = f.Close() }() // the file was only read, so an error of Close does not matter
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	s = cloudsim.State{Name: name, SavedAt: info.ModTime().UTC(), Bytes: info.Size()}
	if r, err := statefile.NewReader(f); err != nil {
		s.Damage = err.Error()
	} else {
		s.Revision, s.DiskData = r.Head.Revision, r.Head.DiskData
	}
	return s, nil
}

// ListStates returns all saved states.
func (ss *stateManager) ListStates(ctx context.Context) (l cloudsim.States, err error) {
	if _, err := callOf(ctx); err != nil {
		return l, err
	}
	l.Items = []cloudsim.State{}
	names, _ := fs.Glob(os.DirFS(ss.cfg.StateDir), "*"+stateSuffix) // Glob returns an error only for an invalid pattern
	for _, name := range names {
		s, err := stateAt(filepath.Join(ss.cfg.StateDir, name))
		if errors.Is(err, cloudsim.NotFound) {
			continue
		} else if err != nil {
			return l, err
		}
		l.Items = append(l.Items, s)
	}
	return l, nil
}

// DeleteState deletes a saved state.
func (ss *stateManager) DeleteState(ctx context.Context, name string) error {
	if _, err := callOf(ctx); err != nil {
		return err
	}
	path, err := ss.statePath(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return cloudsim.Errorf(cloudsim.NotFound, "no state named %q", name)
	} else if err != nil {
		return err
	}
	return nil
}

// LoadState replaces the contents of the cloud with a saved state in one transaction. After a crash
// the cloud has either the old or the new contents, with the matching disk data. After the load,
// the cloud has the ids, addresses and open operations of the saved state, and the engine completes
// the work that is due. Tokens of the running cloud stay valid if their project and service account
// exist with the same ids and names in the saved state. Open watches end with the error Gone.
// LoadState returns Conflict if the saved state does not fit the cloud's configuration. If
// LoadState must replace disk data, it also returns Conflict if a disk is attached, or if the cloud
// has no data plane.
func (ss *stateManager) LoadState(ctx context.Context, name string, req cloudsim.LoadState) error {
	return ss.withState(name, func(from *store.Store, data *statefile.Reader) error {
		if req.RecordsOnly {
			data = nil
		}
		if data != nil && ss.cfg.DiskFiles == nil {
			return cloudsim.Errorf(cloudsim.Conflict, "the state contains disk data, but this cloud runs without a data plane: set recordsOnly, or start the cloud with a data plane")
		}
		return ss.replaceAll(ctx, from, data, func(tx *store.Tx) error {
			if data != nil {
				if err := checkUnattached(tx); err != nil {
					return err
				}
			}
			cloudTokens, err := ownTokens(tx)
			if err != nil {
				return err
			}
			if err := errors.Join(tx.Replace(from), ss.cloud.prepare(tx)); err != nil {
				return cloudsim.Errorf(cloudsim.Conflict, "the state does not fit this cloud: %w", err)
			}
			return keepTokens(tx, cloudTokens)
		})
	})
}

// accessKinds are the kinds that a reset keeps: projects and access rights.
var accessKinds = []cloudsim.ResourceKind{
	cloudsim.KindProject, cloudsim.KindToken, cloudsim.KindServiceAccount, cloudsim.KindRole, cloudsim.KindRoleBinding,
	cloudsim.KindWorkloadTrust, cloudsim.KindAccessKey,
}

// ResetState deletes the resources of the cloud in one transaction. ResetState does not change
// projects, access rights or the clock. Quotas, rate limits and durations get their default values,
// and the cloud creates new signing keys. For each kind of deleted resources, the next id has the
// number 1 again. The revisions do not begin at 1 again. Open watches end with the error Gone.
func (ss *stateManager) ResetState(ctx context.Context) error {
	return ss.replaceAll(ctx, nil, nil, func(tx *store.Tx) error {
		return errors.Join(tx.Replace(nil, accessKinds...), serviceAccounts.CountUses(tx), keepEnds(tx), ss.cloud.prepare(tx))
	})
}

// replaceAll replaces the records and the disk data of the cloud. It first prepares the new disk
// data from source and dataReader (see the method stage). Then it calls fn to replace the records.
// The engine completes no work while fn runs. After the commit of the new records, replaceAll
// updates the faults and the rate limits that the engine keeps in memory.
func (ss *stateManager) replaceAll(ctx context.Context, source *store.Store, dataReader *statefile.Reader, fn func(*store.Tx) error) error {
	ss.loading.Lock()
	defer ss.loading.Unlock()
	if err := ss.store.Probe(); err != nil { // a store that cannot commit would keep the staged data until the next start
		return err
	}
	s, err := ss.stage(ctx, source, dataReader)
	if err != nil {
		return err
	}
	var late error
	return errors.Join(ss.swapDiskData(s, func() error {
		ss.settling.Lock()
		defer ss.settling.Unlock()
		if ctx.Err() != nil { // a caller that no longer waits must not cause a change
			return cloudsim.Errorf(cloudsim.Unavailable, "the request ended before the change; nothing was changed: %w", context.Cause(ctx))
		}
		if err := ss.update(ctx, func(tx *store.Tx, _ Call) error {
			return errors.Join(fn(tx), stagedDisks.Put(tx, stagedKey, s))
		}); err != nil {
			return err
		}
		late = errors.Join(ss.cloud.loadFaults(), ss.cloud.loadRates()) // replaceAll returns this error only after the swap of the disk data, because the error must not prevent the swap
		return nil
	}), late)
}

// ExportState opens the file of a saved state. The caller must close the result. Another cloud can
// import this file with ImportState.
func (ss *stateManager) ExportState(ctx context.Context, name string) (io.ReadCloser, error) {
	if _, err := callOf(ctx); err != nil {
		return nil, err
	}
	return ss.openState(name)
}

// ImportState stores an exported state under a name. It checks the whole file except the ids and
// offsets of disk data. Only LoadState checks these ids and offsets. ImportState returns Exists if
// the name is in use, and Invalid for a damaged state.
func (ss *stateManager) ImportState(ctx context.Context, name string, r io.Reader) (cloudsim.State, error) {
	if _, err := callOf(ctx); err != nil {
		return cloudsim.State{}, err
	}
	return ss.keepState(name, func(f *os.File) error {
		return ss.withUnpacked(io.TeeReader(r, f), func(_ *store.Store, data *statefile.Reader) error {
			if data == nil {
				return nil
			}
			for {
				if _, err := data.Next(); errors.Is(err, io.EOF) {
					return data.EndSection(false)
				} else if err != nil {
					return err
				}
			}
		})
	})
}

// DiffStates compares two saved states. The name "" selects the present contents of the cloud.
func (ss *stateManager) DiffStates(ctx context.Context, from, to string) (d cloudsim.StateDiff, err error) {
	if _, err := callOf(ctx); err != nil {
		return d, err
	}
	a, err := ss.objectsOf(from)
	if err != nil {
		return d, err
	}
	b, err := ss.objectsOf(to)
	if err != nil {
		return d, err
	}
	d.Items = []cloudsim.StateChange{}
	for k, was := range a {
		switch is, ok := b[k]; {
		case !ok:
			d.Items = append(d.Items, change(k, was, "removed"))
		case !reflect.DeepEqual(was, is):
			c := change(k, is, "changed")
			c.Fields = fieldsThatDiffer(was, is)
			d.Items = append(d.Items, c)
		}
	}
	for k, is := range b {
		if _, ok := a[k]; !ok {
			d.Items = append(d.Items, change(k, is, "added"))
		}
	}
	slices.SortFunc(d.Items, func(x, y cloudsim.StateChange) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.ID, y.ID))
	})
	return d, nil
}

type objectKey struct {
	kind cloudsim.ResourceKind
	id   string
}

func change(k objectKey, object map[string]any, changeType string) cloudsim.StateChange {
	name, _ := object["name"].(string)
	return cloudsim.StateChange{Kind: k.kind, ID: k.id, Name: name, Change: changeType}
}

func fieldsThatDiffer(was, is map[string]any) (names []string) {
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if !reflect.DeepEqual(was[k], is[k]) {
			names = append(names, k)
		}
	}
	return names
}

// objectsOf reads the objects of a saved state. For the name "" it reads the
// present objects of the cloud. It omits the revisions, times and secrets of the
// objects, because a comparison of two states must ignore these values.
func (ss *stateManager) objectsOf(name string) (objects map[objectKey]map[string]any, err error) {
	objects = map[objectKey]map[string]any{}
	read := func(st *store.Store) error {
		return st.View(func(tx *store.Tx) error {
			return tx.Objects(func(kind cloudsim.ResourceKind, id string, raw []byte) error {
				object := map[string]any{}
				if err := json.Unmarshal(raw, &object); err != nil {
					return fmt.Errorf("%s %s: %w", kind, id, err)
				}
				for _, k := range []string{"revision", "createdAt", "updatedAt", "hash", "storedSecret"} {
					delete(object, k)
				}
				objects[objectKey{kind, id}] = object
				return nil
			})
		})
	}
	if name == "" {
		return objects, read(ss.store)
	}
	return objects, ss.withState(name, func(st *store.Store, _ *statefile.Reader) error { return read(st) })
}
