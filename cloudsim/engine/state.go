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

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
	"github.com/cloudsim-dev/allinone/internal/durable"
)

const stateSuffix = ".state"

// statePath is where a state is kept.
func (e *Engine) statePath(name string) (string, error) {
	if e.cfg.StateDir == "" {
		return "", cloudsim.Errorf(cloudsim.Unavailable, "this cloud has no folder to keep states in")
	}
	if err := (cloudsim.SaveState{Name: name}).Validate(); err != nil {
		return "", err
	}
	return filepath.Join(e.cfg.StateDir, name+stateSuffix), nil
}

// SaveState saves the whole cloud as it is now. Calls go on meanwhile and are
// not in it.
func (e *Engine) SaveState(ctx context.Context, req cloudsim.SaveState) (s cloudsim.State, err error) {
	if _, err := callOf(ctx); err != nil {
		return s, err
	}
	if err := req.Validate(); err != nil {
		return s, err
	}
	if e.cfg.DiskFiles != nil && !req.RecordsOnly {
		return e.saveWithData(ctx, req.Name)
	}
	return e.keepState(req.Name, func(f *os.File, _ string) error {
		return e.store.Archive(f, func(tx *store.Tx) (bool, error) {
			if e.cfg.DiskData && disks.Any(tx) && !req.RecordsOnly {
				return false, cloudsim.Errorf(cloudsim.Conflict, "there are disks, whose data somebody keeps who saves none: set recordsOnly to save the records alone")
			}
			return false, nil
		})
	})
}

// keepState makes the file of a state, whole or not at all. Write may make the
// folder data, for what is too much for a file.
func (e *Engine) keepState(name string, write func(f *os.File, data string) error) (s cloudsim.State, err error) {
	path, err := e.statePath(name)
	if err != nil {
		return s, err
	}
	if err := os.MkdirAll(e.cfg.StateDir, 0o700); err != nil {
		return s, err
	}
	if _, err := os.Stat(path); err == nil { // before the work; the link below is what counts
		return s, stateTaken(name)
	}
	f, err := os.CreateTemp(e.cfg.StateDir, scratchPattern) // mode 0600
	if err != nil {
		return s, err
	}
	data := f.Name() + dataSuffix
	defer func() { _, _ = os.Remove(f.Name()), os.RemoveAll(data) }()
	err = write(f, data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return s, err
	}
	renamed := os.Rename(data, dataPath(path))
	switch {
	case errors.Is(renamed, fs.ErrExist):
		return s, stateTaken(name)
	case renamed != nil && !errors.Is(renamed, fs.ErrNotExist):
		return s, renamed
	}
	if err := os.Link(f.Name(), path); err != nil {
		if renamed == nil { // it is nobody's now, and in the way
			err = errors.Join(err, os.RemoveAll(dataPath(path)))
		}
		if errors.Is(err, fs.ErrExist) {
			return s, stateTaken(name)
		}
		return s, err
	}
	if err := durable.Names(e.cfg.StateDir); err != nil {
		return s, err
	}
	return stateAt(path)
}

func stateTaken(name string) error {
	return cloudsim.Errorf(cloudsim.Exists, "there is a state named %q: delete it first, or choose another name", name)
}

// scratchPattern names files that are made on the way; see forgetScratch.
const (
	scratchPattern = scratchPrefix + "*"
	scratchPrefix  = ".making-"
)

// forgetScratch removes what a cloud that was killed had on the way.
func (e *Engine) forgetScratch() error {
	names, err := e.stateNames()
	for _, name := range names {
		state, isData := strings.CutSuffix(name, dataSuffix)
		switch {
		case strings.HasPrefix(name, scratchPrefix):
		case isData && !slices.Contains(names, state+stateSuffix): // of a state that was not there yet, or no more
		default:
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(e.cfg.StateDir, name)))
	}
	return err
}

// stateNames are the names of all that is in the folder of states, in order.
func (e *Engine) stateNames() (names []string, err error) {
	if e.cfg.StateDir == "" {
		return nil, nil
	}
	there, err := os.ReadDir(e.cfg.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // none was ever saved
	}
	for _, entry := range there {
		names = append(names, entry.Name())
	}
	return names, err
}

// withState unpacks a saved state and checks all of it before fn sees it.
func (e *Engine) withState(path string, fn func(*store.Store) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cloudsim.Errorf(cloudsim.NotFound, "no state named %q", strings.TrimSuffix(filepath.Base(path), stateSuffix))
	} else if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was read
	return e.withUnpacked(f, fn)
}

// withUnpacked unpacks a state into a file of its own, which it removes, and
// checks all of it before fn sees it. One that is damaged is Invalid.
func (e *Engine) withUnpacked(r io.Reader, fn func(*store.Store) error) error {
	dir, err := os.MkdirTemp(e.cfg.StateDir, scratchPattern)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	st, err := store.Unarchive(r, filepath.Join(dir, "unpacked.db"))
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }() // it goes away
	other := New(e.log, st, e.cfg)
	if err := errors.Join(other.checkRecords(), other.loadFaults(), other.loadRates()); err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "the state is damaged, or no cloud wrote it: %w", err)
	}
	return fn(st)
}

// stateAt tells about the state in a file; of one that is damaged, that it is.
func stateAt(path string) (s cloudsim.State, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer func() { _ = f.Close() }() // it was read
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	s = cloudsim.State{Name: strings.TrimSuffix(filepath.Base(path), stateSuffix), SavedAt: info.ModTime().UTC(), Bytes: info.Size()}
	head, err := store.ReadArchiveHead(f)
	if errors.Is(err, cloudsim.Invalid) {
		s.Damage, err = err.Error(), nil
	}
	s.Revision, s.DiskData = head.Revision, head.DiskData
	if err != nil || !s.DiskData {
		return s, err
	}
	return withData(s, path)
}

// ListStates returns every state that was saved.
func (e *Engine) ListStates(ctx context.Context) (l cloudsim.States, err error) {
	if _, err := callOf(ctx); err != nil {
		return l, err
	}
	l.Items = []cloudsim.State{}
	names, err := e.stateNames()
	if err != nil {
		return l, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, stateSuffix) {
			continue
		}
		path := filepath.Join(e.cfg.StateDir, name)
		s, err := stateAt(path)
		if err != nil {
			return l, fmt.Errorf("%s: %w", path, err)
		}
		l.Items = append(l.Items, s)
	}
	return l, nil
}

// DeleteState forgets a saved state.
func (e *Engine) DeleteState(ctx context.Context, name string) error {
	if _, err := callOf(ctx); err != nil {
		return err
	}
	path, err := e.statePath(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return cloudsim.Errorf(cloudsim.NotFound, "no state named %q", name)
	} else if err != nil {
		return err
	}
	return os.RemoveAll(dataPath(path))
}

// LoadState makes the cloud what it was when the state was saved, in one
// transaction: after a crash it is the old one or the new one, and so is the
// data of disks, if it is in the state. Ids, addresses
// and open operations are those of then; work that is due by now settles. Who
// could call before the load still can, with the same token and as the same, if
// that was there then. Watches end with Gone.
func (e *Engine) LoadState(ctx context.Context, name string, req cloudsim.LoadState) error {
	path, err := e.statePath(name)
	if err != nil {
		return err
	}
	return e.withState(path, func(from *store.Store) error {
		folder, err := e.dataToLoad(path, req)
		if err != nil {
			return err
		}
		return e.replace(ctx, from, folder, func(tx *store.Tx) error {
			if folder != "" {
				if err := unattached(tx); err != nil {
					return err
				}
			}
			own, err := ownTokens(tx)
			if err != nil {
				return err
			}
			if err := errors.Join(tx.Replace(from), e.prepare(tx)); err != nil {
				return cloudsim.Errorf(cloudsim.Conflict, "the state does not fit this cloud: %w", err)
			}
			return keepTokens(tx, own)
		})
	})
}

// accessKinds are what a reset leaves: who may call, and as what.
var accessKinds = []cloudsim.ResourceKind{
	cloudsim.KindProject, cloudsim.KindToken, cloudsim.KindServiceAccount, cloudsim.KindRole, cloudsim.KindRoleBinding,
	cloudsim.KindWorkloadTrust,
}

// ResetState makes the cloud empty, in one transaction. Projects stay, and who
// may call; so does the clock. Ids begin anew; revisions do not, and watches
// end with Gone.
func (e *Engine) ResetState(ctx context.Context) error {
	return e.replace(ctx, nil, "", func(tx *store.Tx) error {
		return errors.Join(tx.Replace(nil, accessKinds...), serviceAccounts.CountUses(tx), keepEnds(tx), e.prepare(tx))
	})
}

// replace changes the contents by fn, to those of from, and the data of disks
// to that of a folder (see stage), while nobody settles work. It makes anew
// what the engine keeps in memory of them.
func (e *Engine) replace(ctx context.Context, from *store.Store, folder string, fn func(*store.Tx) error) error {
	e.loading.Lock()
	defer e.loading.Unlock()
	stage, err := e.stage(ctx, from, folder)
	if err != nil {
		return err
	}
	var late error
	return errors.Join(e.swap(stage, func() error {
		e.settling.Lock()
		defer e.settling.Unlock()
		if ctx.Err() != nil { // it waited, and who asked is gone: what was made since must stay
			return cloudsim.Errorf(cloudsim.Unavailable, "who asked did not wait; nothing was changed: %w", context.Cause(ctx))
		}
		if err := e.update(ctx, func(tx *store.Tx, _ Call) error {
			return errors.Join(fn(tx), staged.Put(tx, ofDisks, stage))
		}); err != nil {
			return errors.Join(err, e.loadZones())
		}
		late = errors.Join(e.loadFaults(), e.loadRates()) // the data must follow its records in any case
		return nil
	}), late)
}

// ExportState writes a state as one file that ImportState of any cloud reads.
func (e *Engine) ExportState(ctx context.Context, name string, w io.Writer) error {
	if _, err := callOf(ctx); err != nil {
		return err
	}
	path, err := e.statePath(name)
	if err != nil {
		return err
	}
	return e.withState(path, func(*store.Store) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was read
		s, err := stateAt(path)
		switch {
		case err != nil:
			return err
		case s.DiskData && e.cfg.DiskFiles == nil:
			return cloudsim.Errorf(cloudsim.Conflict, "the state has the data of disks, and this cloud keeps none: start it with its data plane")
		case s.Damage != "":
			return cloudsim.Errorf(cloudsim.Invalid, "the state is damaged: %s", s.Damage)
		case s.DiskData:
			return e.writeBundle(ctx, f, dataPath(path), w)
		}
		_, err = io.Copy(w, f)
		return err
	})
}

// ImportState keeps a state that was exported, under a name; it changes nothing
// else. What is not whole and right is Invalid, and not kept.
func (e *Engine) ImportState(ctx context.Context, name string, r io.Reader) (cloudsim.State, error) {
	if _, err := callOf(ctx); err != nil {
		return cloudsim.State{}, err
	}
	return e.keepState(name, func(f *os.File, data string) error { return e.unbundle(ctx, r, f, data) })
}

// DiffStates compares two states; "" is the cloud as it is now.
func (e *Engine) DiffStates(ctx context.Context, from, to string) (d cloudsim.StateDiff, err error) {
	if _, err := callOf(ctx); err != nil {
		return d, err
	}
	a, err := e.objectsOf(from)
	if err != nil {
		return d, err
	}
	b, err := e.objectsOf(to)
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

func change(k objectKey, object map[string]any, what string) cloudsim.StateChange {
	name, _ := object["name"].(string)
	return cloudsim.StateChange{Kind: k.kind, ID: k.id, Name: name, Change: what}
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

// objectsOf reads every object of a state, but what is different in any two:
// revisions, times, and the secrets of tokens.
func (e *Engine) objectsOf(name string) (all map[objectKey]map[string]any, err error) {
	all = map[objectKey]map[string]any{}
	read := func(st *store.Store) error {
		return st.View(func(tx *store.Tx) error {
			return tx.Objects(func(kind cloudsim.ResourceKind, id string, raw []byte) error {
				object := map[string]any{}
				if err := json.Unmarshal(raw, &object); err != nil {
					return fmt.Errorf("%s %s: %w", kind, id, err)
				}
				for _, k := range []string{"revision", "createdAt", "updatedAt", "hash"} {
					delete(object, k)
				}
				all[objectKey{kind, id}] = object
				return nil
			})
		})
	}
	if name == "" {
		return all, read(e.store)
	}
	path, err := e.statePath(name)
	if err != nil {
		return nil, err
	}
	return all, e.withState(path, read)
}
