package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) snapshotRoutes() {
	e := a.engine
	handle(a, op{id: "snapshots.create", method: post, path: "/v1/snapshots", summary: "Take a snapshot of a disk", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createSnapshot)
	lists(a, "snapshots", "/v1/snapshots", "snapshots", engine.Read, e.ListSnapshots)
	gets(a, "snapshots", "/v1/snapshots/{id}", "a snapshot", engine.Read, e.GetSnapshot, revOf[cloudsim.Snapshot])
	act(a, "snapshots.delete", http.MethodDelete, "/v1/snapshots/{id}", "Begin to delete a snapshot. The call fails while a disk is being created from the snapshot", e.DeleteSnapshot)

	handle(a, op{id: "snapshotGroups.create", method: post, path: "/v1/snapshot-groups", summary: "Take snapshots of several disks at one instant", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createSnapshotGroup)
	lists(a, "snapshotGroups", "/v1/snapshot-groups", "snapshot groups", engine.Read, e.ListSnapshotGroups)
	gets(a, "snapshotGroups", "/v1/snapshot-groups/{id}", "a snapshot group", engine.Read, e.GetSnapshotGroup, revOf[cloudsim.SnapshotGroup])
	act(a, "snapshotGroups.delete", http.MethodDelete, "/v1/snapshot-groups/{id}", "Begin to delete a snapshot group and its snapshots. They exist until the operation ends", e.DeleteSnapshotGroup)
}

func (a *api) createSnapshot(ctx context.Context, in *create[cloudsim.CreateSnapshot]) (*body[cloudsim.Snapshot], error) {
	v, err := a.engine.CreateSnapshot(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) createSnapshotGroup(ctx context.Context, in *create[cloudsim.CreateSnapshotGroup]) (*body[cloudsim.SnapshotGroup], error) {
	v, err := a.engine.CreateSnapshotGroup(ctx, in.Body)
	return answer(v, v.Revision, err)
}
