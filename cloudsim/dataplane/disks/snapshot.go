package disks

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// isPending reports whether the data of a snapshot or a group is not complete yet.
func isPending(s cloudsim.SnapshotState) bool {
	return s == cloudsim.SnapshotCreating || s == cloudsim.SnapshotCopying
}

// putSnapshots starts the copies of all pending snapshots. For a snapshot group, it starts one job
// for all pending snapshots of the group. It also checks whether the file of each ready snapshot
// still exists, and reports a changed status to the cloud.
func (k *manager) putSnapshots(ctx context.Context, ss []cloudsim.Snapshot) error {
	for _, s := range ss {
		if err := k.putSnapshot(ctx, s); err != nil {
			return err
		}
	}
	for id := range k.members {
		k.takeGroup(ctx, id)
	}
	return nil
}

func (k *manager) putSnapshot(ctx context.Context, s cloudsim.Snapshot) error {
	switch {
	case isPending(s.State) && s.Group != "":
		if k.members[s.Group] == nil {
			k.members[s.Group] = map[cloudsim.SnapshotID]cloudsim.Snapshot{}
		}
		k.members[s.Group][s.ID] = s // takeGroup makes the snapshot when all members are known
		return nil
	case isPending(s.State):
		k.takeSnapshots(ctx, string(s.ID), []cloudsim.Snapshot{s})
		return nil
	case s.State != cloudsim.SnapshotReady || s.Status.SizeGiB == 0:
		return nil
	}
	status := cloudsim.DiskStatus{SizeGiB: s.Status.SizeGiB}
	if _, err := os.Lstat(SnapshotPath(k.dir, s.ID)); errors.Is(err, fs.ErrNotExist) {
		status.Error, status.Lost = errLost.Error(), true
	}
	if status == s.Status {
		return nil
	}
	return k.cloud.ReportSnapshots(ctx, []cloudsim.SnapshotReport{{ID: s.ID, Status: status}})
}

func (k *manager) handleSnapshot(ctx context.Context, e cloudsim.Event) error {
	var s cloudsim.Snapshot
	if err := json.Unmarshal(e.Object, &s); err != nil {
		return err
	}
	name := string(s.ID)
	if s.Group != "" {
		name = string(s.Group)
	}
	switch {
	case e.Type == cloudsim.EventDelete:
		k.forget(name, SnapshotPath(k.dir, s.ID))
		return nil
	case s.State == cloudsim.SnapshotDeleting:
		k.stop(name)
		return nil
	}
	return k.putSnapshot(ctx, s)
}

// handleGroup starts to copy the disks of a pending snapshot group. The event of the group comes
// after the events of its members. So k.members already contains all members of the group. If the
// group is deleted or no longer pending, handleGroup forgets its members.
func (k *manager) handleGroup(ctx context.Context, e cloudsim.Event) error {
	var g cloudsim.SnapshotGroup
	if err := json.Unmarshal(e.Object, &g); err != nil {
		return err
	}
	if isPending(g.State) && e.Type != cloudsim.EventDelete {
		k.takeGroup(ctx, g.ID)
	} else {
		delete(k.members, g.ID)
	}
	return nil
}

func (k *manager) takeGroup(ctx context.Context, id cloudsim.SnapshotGroupID) {
	ids := slices.Sorted(maps.Keys(k.members[id]))
	snapshots := make([]cloudsim.Snapshot, len(ids))
	for i, s := range ids {
		snapshots[i] = k.members[id][s]
	}
	k.takeSnapshots(ctx, string(id), snapshots)
}

// takeSnapshots starts one job that makes the given snapshots. All these snapshots contain the data
// of the same instant. The job ends with one report for all snapshots.
func (k *manager) takeSnapshots(ctx context.Context, name string, snapshots []cloudsim.Snapshot) {
	var cs []fileCopy
	var lastReports []cloudsim.SnapshotReport
	for _, s := range snapshots {
		cs = append(cs, fileCopy{from: Path(k.dir, s.Disk), to: SnapshotPath(k.dir, s.ID), bytes: int64(s.SizeGiB) << 30, mode: snapshotMode})
		lastReports = append(lastReports, cloudsim.SnapshotReport{ID: s.ID, Status: s.Status})
	}
	k.start(ctx, name, func(ctx context.Context) error {
		// The job must call notCreated before the copy. If a disk has no file yet, the copy fails,
		// and the method put may create the file directly after this failure. A later call of
		// notCreated would then return false, and the job would wrongly report lost data.
		notCreated := slices.ContainsFunc(snapshots, func(s cloudsim.Snapshot) bool { return k.notCreated(s.Disk) })
		err := k.runLimited(ctx, func() error { return copyTogether(ctx, cs) })
		lost := errors.Is(err, errLost) && !notCreated
		reports := make([]cloudsim.SnapshotReport, len(snapshots))
		for i, s := range snapshots {
			reports[i] = cloudsim.SnapshotReport{ID: s.ID, Status: cloudsim.DiskStatus{SizeGiB: s.SizeGiB}}
			if err != nil {
				reports[i].Status = cloudsim.DiskStatus{Error: "cannot copy the disk: " + reason(err), Lost: lost}
			}
		}
		return k.reportResult(ctx, name, err, slices.Equal(reports, lastReports), func() error {
			if err := k.cloud.ReportSnapshots(ctx, reports); err != nil {
				return err
			}
			lastReports = reports
			return nil
		}, lost)
	})
}
