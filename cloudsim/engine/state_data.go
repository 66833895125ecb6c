package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// DiskFiles keeps the data of disks and snapshots, by their ids. The data of a
// state is a folder beside the state's own file, and is whole when that file is
// there: it comes before it, and goes after it.
type DiskFiles interface {
	// Save makes a folder of the data of disks and snapshots, as all are at one
	// instant. NotFound when one is gone.
	Save(ctx context.Context, to string, sizes map[string]cloudsim.DataSize) error
	// Pack writes such a folder, and Unpack makes one of what Pack wrote. What
	// is damaged is Invalid.
	Pack(ctx context.Context, from string, w io.Writer) error
	Unpack(ctx context.Context, r io.Reader, to string) error
	// Stage prepares the data of a folder to be the disks', or, for "", what
	// ids have now, and nothing else.
	Stage(ctx context.Context, from string, ids []string) (stage string, err error)
	// Swap makes a stage the data when commit returns it, while nobody touches
	// the files, and forgets all other stages, or all when commit fails. Again it
	// does nothing.
	Swap(commit func() (stage string, err error)) error
}

// staged notes which stage the data of disks is of, in the transaction that
// makes the records so. It is the word that counts after a crash.
var staged = store.Notes[string]{Name: "diskStage"}

const ofDisks = "disks"

// dataSuffix is of the folder with a state's data.
const dataSuffix = ".data"

func dataPath(path string) string { return strings.TrimSuffix(path, stateSuffix) + dataSuffix }

// dataSizes are the sizes of all disks and snapshots that have data. A disk that
// begins empty may have some before the data plane says so.
func dataSizes(tx *store.Tx) (map[string]cloudsim.DataSize, error) {
	sizes := map[string]cloudsim.DataSize{}
	add := func(id string, gib int, s cloudsim.DiskStatus) {
		if s.SizeGiB > 0 && !s.Lost {
			sizes[id] = cloudsim.DataSize{Bytes: int64(gib) << 30}
		}
	}
	for d, err := range disks.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		add(string(d.ID), d.SizeGiB, d.Status)
		if d.Source() == "" && d.Status.SizeGiB == 0 {
			sizes[string(d.ID)] = cloudsim.DataSize{Bytes: int64(d.SizeGiB) << 30, Unsaid: true}
		}
	}
	for s, err := range snapshots.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		add(string(s.ID), s.SizeGiB, s.Status)
	}
	return sizes, nil
}

// withFiles are the ids of all disks and snapshots, whatever is said of their
// data: each may have a file.
func withFiles(tx *store.Tx) (ids []string, err error) {
	for d, err := range disks.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		ids = append(ids, string(d.ID))
	}
	for s, err := range snapshots.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		ids = append(ids, string(s.ID))
	}
	return ids, nil
}

// savings is how often a save begins anew because a disk went meanwhile.
const savings = 3

// saveWithData saves records and then the data of their disks: the instant of
// the data lies between the two. A load or a reset waits for it.
func (e *Engine) saveWithData(ctx context.Context, name string) (s cloudsim.State, err error) {
	e.loading.Lock()
	defer e.loading.Unlock()
	for range savings {
		s, err = e.keepState(name, func(f *os.File, data string) error {
			var sizes map[string]cloudsim.DataSize
			if err := e.store.Archive(f, func(tx *store.Tx) (has bool, err error) {
				sizes, err = dataSizes(tx)
				return len(sizes) > 0, err
			}); err != nil || len(sizes) == 0 {
				return err
			}
			if err := e.cfg.DiskFiles.Save(ctx, data, sizes); err != nil {
				return err
			}
			return e.store.View(func(tx *store.Tx) error { return stillThere(tx, sizes) })
		})
		if !errors.Is(err, cloudsim.NotFound) {
			return s, err
		}
	}
	return s, cloudsim.Errorf(cloudsim.Conflict, "%w: set recordsOnly to save the records alone", err)
}

// stillThere is NotFound if a disk went while it was saved that the data plane
// had said nothing of: without a file it may have been written to all the same.
func stillThere(tx *store.Tx, saved map[string]cloudsim.DataSize) error {
	for id, size := range saved {
		if size.Unsaid && !disks.Has(tx, id) {
			return cloudsim.Errorf(cloudsim.NotFound, "%s went while it was saved", id)
		}
	}
	return nil
}

// withData completes what is told about a state.
func withData(s cloudsim.State, path string) (cloudsim.State, error) {
	raw, err := os.ReadFile(filepath.Join(dataPath(path), cloudsim.StateDataList))
	var list cloudsim.StateData
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Damage = "the data of its disks is gone"
		return s, nil
	case err != nil:
		return s, err
	}
	if err := errors.Join(json.Unmarshal(raw, &list), list.Validate()); err != nil {
		s.Damage = "the list of its disks' data is damaged: " + err.Error()
	}
	for _, f := range list.Files {
		s.Bytes += f.Blocks * cloudsim.StateBlock
	}
	return s, nil
}

// stage prepares the data that the records of from, none for nil, are to have,
// for swap to make theirs: that of the folder, or, for "", what they have now.
// It is "" in a cloud without data.
func (e *Engine) stage(ctx context.Context, from *store.Store, folder string) (stage string, err error) {
	if e.cfg.DiskFiles == nil {
		return "", nil
	}
	var ids []string
	if from != nil && folder == "" {
		if err := from.View(func(tx *store.Tx) error {
			ids, err = withFiles(tx)
			return err
		}); err != nil {
			return "", err
		}
	}
	return e.cfg.DiskFiles.Stage(ctx, folder, ids)
}

// dataToLoad is the folder of a state's data; "" for none, or none that is
// asked for.
func (e *Engine) dataToLoad(path string, req cloudsim.LoadState) (folder string, err error) {
	s, err := stateAt(path)
	switch {
	case err != nil || !s.DiskData || req.RecordsOnly:
		return "", err
	case e.cfg.DiskFiles == nil:
		return "", cloudsim.Errorf(cloudsim.Conflict, "the state has the data of disks, and this cloud keeps none: set recordsOnly, or start the cloud with its data plane")
	case s.Damage != "":
		return "", cloudsim.Errorf(cloudsim.Invalid, "the state is damaged: %s; set recordsOnly to load its records alone", s.Damage)
	}
	return dataPath(path), nil
}

// swap runs replace, which must note the stage, and makes that the data of disks.
func (e *Engine) swap(stage string, replace func() error) error {
	if e.cfg.DiskFiles == nil {
		return replace()
	}
	return e.cfg.DiskFiles.Swap(func() (string, error) { return stage, replace() })
}

// recoverData puts data in its place that a cloud was killed over.
func (e *Engine) recoverData() error {
	if e.cfg.DiskFiles == nil {
		return nil
	}
	return e.cfg.DiskFiles.Swap(func() (stage string, err error) {
		err = e.store.View(func(tx *store.Tx) error {
			stage, _, err = staged.Get(tx, ofDisks)
			return err
		})
		return stage, err
	})
}

// unattached is Conflict while a disk is attached.
func unattached(tx *store.Tx) error {
	for d, err := range disks.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		for _, a := range d.Attachments {
			return cloudsim.Errorf(cloudsim.Conflict, "disk %s is %s to %s, which would go on with the data of now: detach it first, or set recordsOnly to leave the data of disks as it is", d.ID, a.State, a.Instance)
		}
	}
	return nil
}

// An exported state with data is a line of JSON, its records as they are kept,
// and a pack of its data. One without data is its records alone.
const bundleFormat = "cloudsim-state-with-data"

type bundleHead struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Records int64  `json:"records"` // bytes
}

// maxBundleRecords bounds the records of a bundle, packed.
const maxBundleRecords = 1 << 30

// writeBundle writes a state and its data.
func (e *Engine) writeBundle(ctx context.Context, records *os.File, data string, w io.Writer) error {
	info, err := records.Stat()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(w).Encode(bundleHead{bundleFormat, 1, info.Size()}); err != nil { // ends the line
		return err
	}
	if _, err := io.Copy(w, records); err != nil {
		return err
	}
	return e.cfg.DiskFiles.Pack(ctx, data, w)
}

// readBundle takes a state apart: its records, and its data if it has any,
// which is to be unpacked after them.
func readBundle(r io.Reader) (records io.Reader, rest *bufio.Reader, err error) {
	in := bufio.NewReader(r)
	if first, err := in.Peek(1); err != nil || first[0] != '{' {
		return in, nil, nil //nolint:nilerr // whoever reads the records meets it again
	}
	line, err := in.ReadSlice('\n')
	var head bundleHead
	if err != nil || json.Unmarshal(line, &head) != nil || head.Format != bundleFormat {
		return nil, nil, cloudsim.Errorf(cloudsim.Invalid, "this is no exported state: it does not begin with what it is")
	}
	if head.Version != 1 || head.Records < 0 || head.Records > maxBundleRecords {
		return nil, nil, cloudsim.Errorf(cloudsim.Invalid, "the state has version %d and %d bytes of records; this program reads version 1 and at most %d", head.Version, head.Records, maxBundleRecords)
	}
	return io.LimitReader(in, head.Records), in, nil
}

// unbundle keeps what was exported: the records in f, the data in a folder.
func (e *Engine) unbundle(ctx context.Context, r io.Reader, f *os.File, data string) error {
	records, rest, err := readBundle(r)
	if err != nil {
		return err
	}
	if err := e.withUnpacked(io.TeeReader(records, f), func(*store.Store) error { return nil }); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	head, err := store.ReadArchiveHead(f)
	switch {
	case err != nil:
		return err
	case head.DiskData != (rest != nil):
		return cloudsim.Errorf(cloudsim.Invalid, "the state is damaged: what it says of the data of its disks is not so")
	case rest == nil:
		return nil
	case e.cfg.DiskFiles == nil:
		return cloudsim.Errorf(cloudsim.Conflict, "the state has the data of disks, and this cloud keeps none: export it with records only, or start the cloud with its data plane")
	}
	if err := e.cfg.DiskFiles.Unpack(ctx, rest, data); err != nil {
		return fmt.Errorf("the data of disks: %w", err)
	}
	return nil
}
