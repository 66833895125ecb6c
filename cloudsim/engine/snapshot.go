package engine

import (
	"context"
	"errors"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const (
	bySource = "source" // index of disks and snapshots by their source, which is a disk or a snapshot
	byCopied = "copied" // index of unfinished copies by their source, which is a disk or a snapshot
)

var snapshots = store.Table[cloudsim.Snapshot]{
	Kind: cloudsim.KindSnapshot, Prefix: "snap",
	ID:   func(s *cloudsim.Snapshot) string { return string(s.ID) },
	Meta: func(s *cloudsim.Snapshot) *cloudsim.Meta { return &s.Meta },
	Uses: store.One[cloudsim.Snapshot](cloudsim.QuotaSnapshots),
	Index: map[string]func(*cloudsim.Snapshot) []string{
		bySource: func(s *cloudsim.Snapshot) []string { return []string{string(s.Disk)} },
		byCopied: func(s *cloudsim.Snapshot) []string {
			if s.State == cloudsim.SnapshotCreating || s.State == cloudsim.SnapshotCopying {
				return []string{string(s.Disk)}
			}
			return nil
		},
	},
}

// CreateSnapshot begins to take a snapshot of a disk, or returns the existing snapshot that matches
// the request. It returns NotFound if the disk does not exist. It returns Conflict if the
// state of the disk permits no snapshot. Examples are the states creating and deleting.
func (e *Engine) CreateSnapshot(ctx context.Context, req cloudsim.CreateSnapshot) (s cloudsim.Snapshot, err error) {
	if err := req.Validate(); err != nil {
		return s, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		s, err = idempotent(tx, call, snapshots, req, func() (cloudsim.Snapshot, error) { return e.snapshotByName(tx, call, req) })
		return err
	})
	return s, err
}

// snapshotByName returns the existing snapshot that matches the request, or
// begins to take a snapshot.
func (e *Engine) snapshotByName(tx *store.Tx, call Call, req cloudsim.CreateSnapshot) (s cloudsim.Snapshot, err error) {
	project, err := e.projectOf(tx, call)
	if err != nil {
		return s, err
	}
	switch have, err := snapshots.Named(tx, project, req.Name); {
	case errors.Is(err, cloudsim.NotFound):
		if s, err = e.newSnapshot(tx, project, req.Disk, "disk"); err != nil {
			return s, err
		}
		s.Name, s.Labels = req.Name, req.Labels
		return s, beginWork(e, tx, call, snapshots, &s, cloudsim.Create, e.cfg.Profile.Disk, e.settledSnapshot)
	case err != nil:
		return s, err
	case have.State == cloudsim.SnapshotDeleting:
		return s, cloudsim.Errorf(cloudsim.Conflict, "the earlier snapshot %q (%s) is still being deleted: try again when it is deleted", req.Name, have.ID)
	case have.Disk != req.Disk:
		return s, errNameTaken(cloudsim.KindSnapshot, req.Name, string(have.ID), "disk "+string(have.Disk))
	case !sameLabels(have.Labels, req.Labels):
		return s, errNameTaken(cloudsim.KindSnapshot, req.Name, string(have.ID), "other labels")
	default:
		return have, nil
	}
}

// newSnapshot returns a new snapshot of a disk. The snapshot gets its id as its name. The caller
// can set another name, and must store the snapshot.
func (e *Engine) newSnapshot(tx *store.Tx, project cloudsim.ProjectID, diskID cloudsim.DiskID, field string) (s cloudsim.Snapshot, err error) {
	d, err := disks.Get(tx, string(diskID))
	switch {
	case errors.Is(err, cloudsim.NotFound) || err == nil && d.Project != project:
		return s, errReferenceNotFound(field, string(diskID), "see GET /v1/disks")
	case err != nil:
		return s, err
	case !d.HasData():
		return s, cloudsim.Errorf(cloudsim.Conflict, "cannot take a snapshot of disk %s: the disk is in state %s", diskID, d.State)
	}
	if err := e.checkQuota(tx, d.Project, store.Use{Name: cloudsim.QuotaSnapshots, N: 1}); err != nil {
		return s, err
	}
	id, err := snapshots.NextID(tx)
	return cloudsim.Snapshot{
		ID: cloudsim.SnapshotID(id), Meta: cloudsim.Meta{Name: id, Project: project},
		Disk: diskID, Region: d.Region, SizeGiB: d.SizeGiB, State: cloudsim.SnapshotCreating,
	}, err
}

func (e *Engine) settledSnapshot(tx *store.Tx, s *cloudsim.Snapshot) error {
	if s.State == cloudsim.SnapshotCreating && e.lacksData(s.Status) {
		if err := s.Move(cloudsim.Copy); err != nil {
			return err
		}
	}
	if s.State == cloudsim.SnapshotCopying && e.lacksData(s.Status) { // the due list can contain a released operation twice
		return e.copiedSnapshot(tx, s)
	}
	if err := s.Move(cloudsim.Settle); err != nil {
		return err
	}
	if err := e.endOperation(tx, s.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if s.State == cloudsim.SnapshotDeleted {
		return snapshots.Delete(tx, s)
	}
	return snapshots.Put(tx, s)
}

// lacksData reports whether a new disk or snapshot with status s must wait until the data plane
// has copied the data.
func (e *Engine) lacksData(s cloudsim.DiskStatus) bool { return e.cfg.DiskData && s.SizeGiB == 0 }

func lostDataError(s cloudsim.DiskStatus) *cloudsim.OperationError {
	return &cloudsim.OperationError{Kind: cloudsim.NotFound, Detail: s.Error}
}

// copiedSnapshot stores a snapshot after a change of its field State or Status. If the snapshot is
// in state copying and its data is complete, the snapshot becomes ready and its operation ends. If
// the data of a snapshot in state copying is lost, the snapshot and its operation fail. If a
// cloudsim.Hold blocks the operation, copiedSnapshot only stores the snapshot.
func (e *Engine) copiedSnapshot(tx *store.Tx, s *cloudsim.Snapshot) error {
	if s.State != cloudsim.SnapshotCopying || e.lacksData(s.Status) && !s.Status.Lost {
		return snapshots.Put(tx, s)
	}
	held, err := mustNotSettle(tx, s.Operation)
	switch {
	case err != nil:
		return err
	case held:
		return snapshots.Put(tx, s)
	case e.lacksData(s.Status):
		if err := s.Move(cloudsim.Fail); err != nil {
			return err
		}
		if err := e.endOperation(tx, s.Operation, cloudsim.Fail, lostDataError(s.Status)); err != nil {
			return err
		}
		return snapshots.Put(tx, s)
	}
	return e.settledSnapshot(tx, s)
}

// GetSnapshot returns a snapshot, or NotFound after the snapshot is deleted.
func (e *Engine) GetSnapshot(ctx context.Context, id cloudsim.SnapshotID) (cloudsim.Snapshot, error) {
	return read(ctx, e.core, snapshots, string(id))
}

// ListSnapshots returns one page of snapshots. The filter o.Source is the id of a disk, and selects
// the snapshots of this disk.
func (e *Engine) ListSnapshots(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Snapshot], error) {
	return listPage(ctx, e.core, snapshots, o, nil)
}

// DeleteSnapshot begins to delete a snapshot and returns the snapshot. It does
// not change a snapshot that is already in state deleting. DeleteSnapshot returns
// Conflict while the cloud creates a disk from the snapshot. It also returns
// Conflict for a member of a group, because only DeleteSnapshotGroup deletes the
// members of a group.
func (e *Engine) DeleteSnapshot(ctx context.Context, id cloudsim.SnapshotID) (s cloudsim.Snapshot, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if s, err = get(tx, call, snapshots, string(id)); err != nil {
			return err
		}
		switch {
		case s.Group != "":
			return cloudsim.Errorf(cloudsim.Conflict, "cannot delete snapshot %s: it belongs to snapshot group %s: delete the whole group instead", id, s.Group)
		case s.State == cloudsim.SnapshotDeleting:
			return nil
		}
		if err := checkNoCopy(tx, cloudsim.Delete, cloudsim.KindSnapshot, string(id)); err != nil {
			return err
		}
		if err := s.Move(cloudsim.Delete); err != nil {
			return err
		}
		return beginWork(e, tx, call, snapshots, &s, cloudsim.Delete, e.cfg.Profile.Disk, e.settledSnapshot)
	})
	return s, err
}

// checkNoCopy returns Conflict if the cloud is making a disk or a snapshot from the resource with
// the given id.
func checkNoCopy(tx *store.Tx, verb cloudsim.Verb, kind cloudsim.ResourceKind, id string) error {
	for d, err := range disks.Find(tx, byCopied, id, "") {
		if err != nil {
			return err
		}
		return cloudsim.Errorf(cloudsim.Conflict, "cannot %s %s %s: disk %s is being created from it", verb, kind, id, d.ID)
	}
	for s, err := range snapshots.Find(tx, byCopied, id, "") {
		if err != nil {
			return err
		}
		return cloudsim.Errorf(cloudsim.Conflict, "cannot %s %s %s: snapshot %s is being taken of it", verb, kind, id, s.ID)
	}
	return nil
}

// ReportSnapshots stores reports of the data plane about the data of snapshots. It uses one
// transaction for all reports, so that the members of a group become ready together. It ignores
// deleted snapshots. A report without changes writes no event.
func (e *Engine) ReportSnapshots(ctx context.Context, reports []cloudsim.SnapshotReport) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		var groups []cloudsim.SnapshotGroupID
		for _, r := range reports {
			s, err := get(tx, call, snapshots, string(r.ID))
			if errors.Is(err, cloudsim.NotFound) || err == nil && s.Status == r.Status {
				continue
			}
			if err != nil {
				return err
			}
			s.Status = r.Status
			if s.Group != "" {
				groups = append(groups, s.Group)
				err = snapshots.Put(tx, &s)
			} else {
				err = e.copiedSnapshot(tx, &s)
			}
			if err != nil {
				return err
			}
		}
		return e.copiedGroups(tx, groups)
	})
}
