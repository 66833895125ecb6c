package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var snapshotGroups = store.Table[cloudsim.SnapshotGroup]{
	Kind: cloudsim.KindSnapshotGroup, Prefix: "sgrp",
	ID:   func(g *cloudsim.SnapshotGroup) string { return string(g.ID) },
	Meta: func(g *cloudsim.SnapshotGroup) *cloudsim.Meta { return &g.Meta },
}

// CreateSnapshotGroup begins to take snapshots of several disks at one instant, or returns the
// existing group that matches the request. If the cloud cannot take a snapshot of one of the disks,
// CreateSnapshotGroup returns an error and takes no snapshots.
func (e *Engine) CreateSnapshotGroup(ctx context.Context, req cloudsim.CreateSnapshotGroup) (g cloudsim.SnapshotGroup, err error) {
	if err := req.Validate(); err != nil {
		return g, err
	}
	req.Disks = slices.Sorted(slices.Values(req.Disks)) // the order of disks does not matter
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		g, err = idempotent(tx, call, snapshotGroups, req, func() (cloudsim.SnapshotGroup, error) { return e.groupByName(tx, call, req) })
		return err
	})
	return g, err
}

// groupByName returns the existing group that matches the request, or begins to
// create a group.
func (e *Engine) groupByName(tx *store.Tx, call Call, req cloudsim.CreateSnapshotGroup) (g cloudsim.SnapshotGroup, err error) {
	project, err := e.projectOf(tx, call)
	if err != nil {
		return g, err
	}
	switch have, err := snapshotGroups.Named(tx, project, req.Name); {
	case errors.Is(err, cloudsim.NotFound):
		return e.newGroup(tx, call, project, req)
	case err != nil:
		return g, err
	case have.State == cloudsim.SnapshotDeleting:
		return g, cloudsim.Errorf(cloudsim.Conflict, "the earlier snapshot group %q (%s) is still being deleted: try again when it is deleted", req.Name, have.ID)
	case !slices.Equal(have.Disks, req.Disks):
		return g, errNameTaken(cloudsim.KindSnapshotGroup, req.Name, string(have.ID), "other disks")
	case !sameLabels(have.Labels, req.Labels):
		return g, errNameTaken(cloudsim.KindSnapshotGroup, req.Name, string(have.ID), "other labels")
	default:
		return have, nil
	}
}

func (e *Engine) newGroup(tx *store.Tx, call Call, project cloudsim.ProjectID, req cloudsim.CreateSnapshotGroup) (g cloudsim.SnapshotGroup, err error) {
	if err := e.checkQuota(tx, project, store.Use{Name: cloudsim.QuotaSnapshots, N: int64(len(req.Disks))}); err != nil {
		return g, err
	}
	members := make([]cloudsim.Snapshot, len(req.Disks))
	for i, d := range req.Disks {
		if members[i], err = e.newSnapshot(tx, project, d, "disks"); err != nil {
			return g, err
		}
	}
	id, err := snapshotGroups.NextID(tx)
	if err != nil {
		return g, err
	}
	g = cloudsim.SnapshotGroup{
		ID: cloudsim.SnapshotGroupID(id), Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		Disks: req.Disks, State: cloudsim.SnapshotCreating,
	}
	for i := range members {
		m := &members[i]
		m.Group, m.Labels = g.ID, req.Labels
		g.Snapshots = append(g.Snapshots, m.ID)
		if err := snapshots.Put(tx, m); err != nil {
			return g, err
		}
	}
	return g, beginWork(e, tx, call, snapshotGroups, &g, cloudsim.Create, e.cfg.Profile.Disk, e.settledSnapshotGroup)
}

func membersOf(tx *store.Tx, g *cloudsim.SnapshotGroup) ([]cloudsim.Snapshot, error) {
	members := make([]cloudsim.Snapshot, len(g.Snapshots))
	for i, id := range g.Snapshots {
		var err error
		if members[i], err = snapshots.Get(tx, string(id)); err != nil {
			return nil, err
		}
	}
	return members, nil
}

// moveGroup changes the state of a group and of its members, as the given verb requires. It deletes
// each member that now has the state SnapshotDeleted, and stores the other members. The caller must
// store the group.
func moveGroup(tx *store.Tx, g *cloudsim.SnapshotGroup, members []cloudsim.Snapshot, verb cloudsim.Verb) error {
	for i := range members {
		m := &members[i]
		if err := m.Move(verb); err != nil {
			return err
		}
		put := snapshots.Put
		if m.State == cloudsim.SnapshotDeleted {
			put = snapshots.Delete
		}
		if err := put(tx, m); err != nil {
			return err
		}
	}
	return g.Move(verb)
}

func (e *Engine) settledSnapshotGroup(tx *store.Tx, g *cloudsim.SnapshotGroup) error {
	members, err := membersOf(tx, g)
	if err != nil {
		return err
	}
	lacksData := slices.ContainsFunc(members, func(m cloudsim.Snapshot) bool { return e.lacksData(m.Status) })
	if g.State == cloudsim.SnapshotCreating && lacksData {
		if err := moveGroup(tx, g, members, cloudsim.Copy); err != nil {
			return err
		}
	}
	if g.State == cloudsim.SnapshotCopying && lacksData { // the due list can contain a released operation twice
		return e.copiedGroup(tx, g, members)
	}
	if err := moveGroup(tx, g, members, cloudsim.Settle); err != nil {
		return err
	}
	if err := e.endOperation(tx, g.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if g.State == cloudsim.SnapshotDeleted {
		return snapshotGroups.Delete(tx, g)
	}
	return snapshotGroups.Put(tx, g)
}

// copiedGroup stores the group g, which must be in state copying. If the data of all members is
// complete, the group becomes ready and its operation ends. If the data of a
// member is lost, the group and its operation fail. If a hold blocks the
// operation, copiedGroup only stores the group.
func (e *Engine) copiedGroup(tx *store.Tx, g *cloudsim.SnapshotGroup, members []cloudsim.Snapshot) error {
	lost := slices.IndexFunc(members, func(m cloudsim.Snapshot) bool { return e.lacksData(m.Status) && m.Status.Lost })
	if lost < 0 && slices.ContainsFunc(members, func(m cloudsim.Snapshot) bool { return e.lacksData(m.Status) }) {
		return snapshotGroups.Put(tx, g)
	}
	held, err := mustNotSettle(tx, g.Operation)
	switch {
	case err != nil:
		return err
	case held:
		return snapshotGroups.Put(tx, g)
	case lost >= 0:
		if err := moveGroup(tx, g, members, cloudsim.Fail); err != nil {
			return err
		}
		if err := e.endOperation(tx, g.Operation, cloudsim.Fail, lostDataError(members[lost].Status)); err != nil {
			return err
		}
		return snapshotGroups.Put(tx, g)
	}
	return e.settledSnapshotGroup(tx, g)
}

// copiedGroups calls copiedGroup for each group in ids that is in state
// copying.
func (e *Engine) copiedGroups(tx *store.Tx, ids []cloudsim.SnapshotGroupID) error {
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		g, err := snapshotGroups.Get(tx, string(id))
		if err != nil {
			return err
		}
		if g.State != cloudsim.SnapshotCopying {
			continue
		}
		members, err := membersOf(tx, &g)
		if err != nil {
			return err
		}
		if err := e.copiedGroup(tx, &g, members); err != nil {
			return err
		}
	}
	return nil
}

// GetSnapshotGroup returns a group, or NotFound after the group is deleted.
func (e *Engine) GetSnapshotGroup(ctx context.Context, id cloudsim.SnapshotGroupID) (cloudsim.SnapshotGroup, error) {
	return read(ctx, e.core, snapshotGroups, string(id))
}

// ListSnapshotGroups returns one page of groups.
func (e *Engine) ListSnapshotGroups(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.SnapshotGroup], error) {
	return listPage(ctx, e.core, snapshotGroups, o, nil)
}

// DeleteSnapshotGroup begins to delete a group and its members, and returns the
// group. It does not change a group that is already in state deleting.
// DeleteSnapshotGroup returns Conflict while the cloud creates a disk from a
// member.
func (e *Engine) DeleteSnapshotGroup(ctx context.Context, id cloudsim.SnapshotGroupID) (g cloudsim.SnapshotGroup, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if g, err = get(tx, call, snapshotGroups, string(id)); err != nil || g.State == cloudsim.SnapshotDeleting {
			return err
		}
		for _, m := range g.Snapshots {
			if err := checkNoCopy(tx, cloudsim.Delete, cloudsim.KindSnapshot, string(m)); err != nil {
				return err
			}
		}
		members, err := membersOf(tx, &g)
		if err != nil {
			return err
		}
		if err := moveGroup(tx, &g, members, cloudsim.Delete); err != nil {
			return err
		}
		return beginWork(e, tx, call, snapshotGroups, &g, cloudsim.Delete, e.cfg.Profile.Disk, e.settledSnapshotGroup)
	})
	return g, err
}
