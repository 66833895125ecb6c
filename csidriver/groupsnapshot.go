package csidriver

import (
	"cmp"
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// groupController implements group snapshots (KEP-3476). A group snapshot
// consists of snapshots of several volumes. The cloud takes all of these
// snapshots at the same moment.
type groupController struct {
	csi.UnimplementedGroupControllerServer
	*controller
}

func (g *groupController) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// CreateVolumeGroupSnapshot takes snapshots of all volumes or of none.
func (g *groupController) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if err := checkRequired("name", req.GetName()); err != nil {
		return nil, err
	}
	if len(req.GetSourceVolumeIds()) == 0 {
		return nil, invalidArgument("source_volume_ids", "is required")
	}
	var s shape
	if err := s.read("parameters", req.GetParameters(), keyDeletionPolicy); err != nil {
		return nil, err
	}
	want := cloudsim.CreateSnapshotGroup{Name: nameOf(req.GetName()), Labels: labelsOf(req.GetName(), req.GetParameters())}
	for _, v := range req.GetSourceVolumeIds() {
		if !diskID.MatchString(v) {
			return nil, cloudsim.Errorf(cloudsim.NotFound, "no volume %q", v)
		}
		want.Disks = append(want.Disks, cloudsim.DiskID(v))
	}
	group, err := g.cloud.CreateSnapshotGroup(ctx, want)
	if err != nil {
		return nil, err
	}
	if err := g.awaitReady(ctx, group); err != nil {
		return nil, err
	}
	groupSnapshot, err := g.csiGroup(ctx, group.ID)
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: groupSnapshot}, err
}

// awaitReady waits until a snapshot group is ready to use. If the cloud failed
// to make the group, the method deletes the group and returns an error. See
// controller.awaitReady for a single snapshot.
func (g *groupController) awaitReady(ctx context.Context, group cloudsim.SnapshotGroup) error {
	var why error
	if !group.ReadyToUse && group.State != cloudsim.SnapshotFailed {
		why = g.waitForOperation(ctx, group.Operation)
	}
	group, err := g.cloud.GetSnapshotGroup(ctx, group.ID)
	switch {
	case err != nil:
		return err
	case group.State == cloudsim.SnapshotFailed:
		_, gone := g.cloud.DeleteSnapshotGroup(ctx, group.ID)
		return errors.Join(cmp.Or(why, cloudsim.Errorf(cloudsim.Internal, "snapshot group %s failed: repeat the call", group.ID)), gone)
	case !group.ReadyToUse:
		return cmp.Or(why, status.Errorf(codes.Aborted, "snapshot group %s is not ready yet: repeat the call", group.ID))
	}
	return nil
}

func (g *groupController) csiGroup(ctx context.Context, id cloudsim.SnapshotGroupID) (*csi.VolumeGroupSnapshot, error) {
	group, err := g.cloud.GetSnapshotGroup(ctx, id)
	if err != nil {
		return nil, err
	}
	groupSnapshot := &csi.VolumeGroupSnapshot{
		GroupSnapshotId: string(group.ID), CreationTime: timestamppb.New(group.CreatedAt), ReadyToUse: group.ReadyToUse,
	}
	var members []cloudsim.Snapshot
	for _, m := range group.Snapshots {
		s, err := g.cloud.GetSnapshot(ctx, m)
		if err != nil {
			return nil, err
		}
		members = append(members, s)
	}
	groupSnapshot.Snapshots, err = g.csiSnapshots(ctx, members...)
	return groupSnapshot, err
}

// DeleteVolumeGroupSnapshot deletes a snapshot group and its snapshots. It
// succeeds if the group does not exist.
func (g *groupController) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	group, err := g.findGroup(ctx, req.GetGroupSnapshotId(), req.GetSnapshotIds())
	if err == nil {
		if group, err = g.cloud.DeleteSnapshotGroup(ctx, group.ID); err == nil {
			err = g.waitForOperation(ctx, group.Operation)
		}
	}
	if err != nil && !errors.Is(err, cloudsim.NotFound) {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot returns the description of one snapshot group.
func (g *groupController) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	group, err := g.findGroup(ctx, req.GetGroupSnapshotId(), req.GetSnapshotIds())
	if err != nil {
		return nil, err
	}
	groupSnapshot, err := g.csiGroup(ctx, group.ID)
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: groupSnapshot}, err
}

// findGroup returns the snapshot group with the given id. It returns an error
// if one of the snapshots in snapshotIDs does not belong to the group.
func (g *groupController) findGroup(ctx context.Context, id string, snapshotIDs []string) (group cloudsim.SnapshotGroup, err error) {
	if err := checkRequired("group_snapshot_id", id); err != nil {
		return group, err
	}
	if !groupID.MatchString(id) {
		return group, cloudsim.Errorf(cloudsim.NotFound, "no snapshot group %q", id)
	}
	if group, err = g.cloud.GetSnapshotGroup(ctx, cloudsim.SnapshotGroupID(id)); err != nil {
		return group, err
	}
	has := map[string]bool{}
	for _, m := range group.Snapshots {
		has[string(m)] = true
	}
	for _, m := range snapshotIDs {
		if !has[m] {
			return group, invalidArgument("snapshot_ids", "must be members of group %[2]s, got %[1]q", m, id)
		}
	}
	return group, nil
}
