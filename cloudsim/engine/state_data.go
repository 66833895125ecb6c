package engine

import (
	"context"
	"errors"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// DiskFiles saves and restores the data of disks and snapshots. It identifies
// the data by the ids of the disks and snapshots.
type DiskFiles interface {
	// Save writes the data of disks and snapshots to w. All data is from the
	// same instant. The parameter sizes contains the size of each disk or
	// snapshot, by id. If a data file is missing and the field Optional of its
	// DataSize is true, Save omits the data. If the field is false, Save returns
	// NotFound for the missing file.
	Save(ctx context.Context, w *statefile.Writer, sizes map[string]cloudsim.DataSize) error
	// Stage reads data that Save has written, and prepares this data for Swap.
	// If r is nil, Stage prepares the present data of the disks and snapshots
	// with the given ids. It returns Invalid for damaged data.
	Stage(ctx context.Context, r *statefile.Reader, ids []string) (cloudsim.StagedData, error)
	// Swap calls commitState while no data file of a disk or snapshot is in use. Then Swap replaces
	// all present data with the staged data that commitState returns, and deletes all remaining
	// staged data. If commitState fails, Swap keeps the present data, and deletes only the staged
	// data that commitState returned with the error.
	Swap(commitState func() (cloudsim.StagedData, error)) error
}

// stagedDisks describes the staged data. The staged data is the new disk data, which waits in a
// folder while the cloud loads a saved state. The transaction that replaces the records also stores
// this description. So after a crash, recoverData uses the disk data that belongs to the records.
var stagedDisks = store.Notes[cloudsim.StagedData]{Name: "stagedDisks"}

const stagedKey = "disks"

// dataSizes returns the sizes of all disks and snapshots that can have data.
func dataSizes(tx *store.Tx) (map[string]cloudsim.DataSize, error) {
	sizes := map[string]cloudsim.DataSize{}
	for d, err := range disks.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		reported := d.Status.SizeGiB > 0
		if reported && !d.Status.Lost || !reported && d.Source() == "" {
			sizes[string(d.ID)] = cloudsim.DataSize{Bytes: int64(d.SizeGiB) << 30, Optional: !reported}
		}
	}
	for s, err := range snapshots.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		if s.Status.SizeGiB > 0 && !s.Status.Lost {
			sizes[string(s.ID)] = cloudsim.DataSize{Bytes: int64(s.SizeGiB) << 30}
		}
	}
	return sizes, nil
}

func diskIDs(tx *store.Tx) (ids []string, err error) {
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

// stage prepares the disk data for the records in source:
//   - If r is not nil, stage reads the disk data from r.
//   - If only r is nil, stage uses the running cloud's present data of the disks and snapshots in
//     source.
//   - If r and source are nil, or if the cloud has no data plane, stage prepares no data.
func (ss *stateManager) stage(ctx context.Context, source *store.Store, r *statefile.Reader) (s cloudsim.StagedData, err error) {
	if ss.cfg.DiskFiles == nil {
		return s, nil
	}
	var ids []string
	if source != nil && r == nil {
		if err := source.View(func(tx *store.Tx) error {
			ids, err = diskIDs(tx)
			return err
		}); err != nil {
			return s, err
		}
	}
	return ss.cfg.DiskFiles.Stage(ctx, r, ids)
}

// swapDiskData calls replaceRecords, and then replaces the disk data with the staged data s. The
// function replaceRecords must store s in the table stagedDisks, because recoverData reads s from
// this table after a restart. If replaceRecords returns store.ErrReadOnly, the store's file
// contains either the old or the new records. So swapDiskData keeps the staged data for
// recoverData.
func (ss *stateManager) swapDiskData(s cloudsim.StagedData, replaceRecords func() error) error {
	if ss.cfg.DiskFiles == nil {
		return replaceRecords()
	}
	return ss.cfg.DiskFiles.Swap(func() (cloudsim.StagedData, error) {
		err := replaceRecords()
		if errors.Is(err, store.ErrReadOnly) {
			return cloudsim.StagedData{}, err
		}
		return s, err
	})
}

// recoverData completes or reverts an interrupted load of a saved state. If the store contains the
// new records, recoverData replaces the disk data with the staged data. Otherwise it deletes the
// staged data.
func (ss *stateManager) recoverData() error {
	if ss.cfg.DiskFiles == nil {
		return nil
	}
	return ss.cfg.DiskFiles.Swap(func() (s cloudsim.StagedData, err error) {
		err = ss.store.View(func(tx *store.Tx) error {
			s, _, err = stagedDisks.Get(tx, stagedKey)
			return err
		})
		return s, err
	})
}

func checkUnattached(tx *store.Tx) error {
	for d, err := range disks.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		for _, a := range d.Attachments {
			return cloudsim.Errorf(cloudsim.Conflict, "cannot load the disk data of the saved state: the attachment of disk %s to instance %s is in state %s, and the instance would continue to use the present data: detach the disk first, or set recordsOnly to keep the present data of all disks", d.ID, a.Instance, a.State)
		}
	}
	return nil
}
