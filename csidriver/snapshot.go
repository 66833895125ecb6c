package csidriver

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

func int64Value(n int64) *wrapperspb.Int64Value { return wrapperspb.Int64(n) }

func (c *controller) snapshot(ctx context.Context, id string) (cloudsim.Snapshot, error) {
	if !snapshotID.MatchString(id) {
		return cloudsim.Snapshot{}, cloudsim.Errorf(cloudsim.NotFound, "no snapshot %q", id)
	}
	return c.cloud.GetSnapshot(ctx, cloudsim.SnapshotID(id))
}

// CreateSnapshot takes a crash-consistent snapshot of a disk, even if the disk is attached. Callers
// can use the snapshot in all zones of its region. If the request permits none of these zones,
// CreateSnapshot returns RESOURCE_EXHAUSTED.
func (c *controller) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := checkRequired("name", req.GetName(), "source_volume_id", req.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	var s shape
	if err := s.read("parameters", req.GetParameters()); err != nil {
		return nil, err
	}
	d, err := c.disk(ctx, req.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	zones, everywhere, err := c.zonesOf(ctx, d.Region)
	if err != nil {
		return nil, err
	}
	requisite := zonesIn(c.cfg.Name, req.GetAccessibilityRequirements().GetRequisite()...)
	if len(req.GetAccessibilityRequirements().GetRequisite()) > 0 && !slices.ContainsFunc(requisite, func(z string) bool { return slices.Contains(zones, z) }) {
		return nil, status.Errorf(codes.ResourceExhausted, "accessibility_requirements: a snapshot of %s can be used only in the zones %v", d.ID, zones)
	}
	snap, err := c.cloud.CreateSnapshot(ctx, cloudsim.CreateSnapshot{
		Name: nameOf(req.GetName()), Disk: d.ID, Labels: labelsOf(req.GetName(), req.GetParameters()),
	})
	if err != nil {
		return nil, c.busyOr(ctx, d.ID, err)
	}
	if snap, err = c.awaitReady(ctx, snap); err != nil {
		return nil, err
	}
	if everywhere {
		zones = nil
	}
	return &csi.CreateSnapshotResponse{Snapshot: c.snapshotResponse(snap, zones)}, nil
}

// awaitReady waits until a snapshot is ready to use. Before the snapshot is
// ready, writes to the disk can still change the snapshot. The CSI
// specification requires that the driver answers only when writes no longer
// change the snapshot. If the state of the snapshot is "failed", the method
// deletes the snapshot, so that its name is free for the next attempt. If the
// cloud does not return the state, the method keeps the snapshot.
func (c *controller) awaitReady(ctx context.Context, s cloudsim.Snapshot) (cloudsim.Snapshot, error) {
	var why error
	if !s.ReadyToUse && s.State != cloudsim.SnapshotFailed {
		why = c.waitForOperation(ctx, s.Operation)
	}
	s, err := c.cloud.GetSnapshot(ctx, s.ID)
	switch {
	case err != nil:
		return s, err
	case s.State == cloudsim.SnapshotFailed:
		_, gone := c.cloud.DeleteSnapshot(ctx, s.ID)
		return s, errors.Join(cmp.Or(why, cloudsim.Errorf(cloudsim.Internal, "snapshot %s failed: %s", s.ID, s.Status.Error)), gone)
	case !s.ReadyToUse:
		return s, cmp.Or(why, status.Errorf(codes.Aborted, "snapshot %s is not ready yet: repeat the call", s.ID))
	}
	return s, nil
}

// zonesOf lists the zones of a region. If all zones of the cloud are in this
// region, hasAllZones is true.
func (c *controller) zonesOf(ctx context.Context, region string) (names []string, hasAllZones bool, err error) {
	all, _, err := cloudsim.All(ctx, c.cloud.ListZones, cloudsim.ListOptions{})
	for _, z := range all {
		if z.Region == region {
			names = append(names, z.Name)
		}
	}
	return names, len(names) == len(all), err
}

// csiSnapshots returns the CSI descriptions of snapshots. If callers can use a snapshot in all
// zones of the cloud, its description contains no zones. Otherwise it contains the zones in which
// callers can use the snapshot.
func (c *controller) csiSnapshots(ctx context.Context, all ...cloudsim.Snapshot) (snapshots []*csi.Snapshot, err error) {
	zones := map[string][]string{}
	for _, s := range all {
		if _, known := zones[s.Region]; !known {
			in, everywhere, err := c.zonesOf(ctx, s.Region)
			if err != nil {
				return nil, err
			}
			if everywhere {
				in = nil
			}
			zones[s.Region] = in
		}
		snapshots = append(snapshots, c.snapshotResponse(s, zones[s.Region]))
	}
	return snapshots, nil
}

func (c *controller) snapshotResponse(s cloudsim.Snapshot, zones []string) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: string(s.ID), SourceVolumeId: string(s.Disk), SizeBytes: int64(s.SizeGiB) * gib,
		CreationTime: timestamppb.New(s.CreatedAt), ReadyToUse: s.ReadyToUse, GroupSnapshotId: string(s.Group),
		AccessibleTopology: topologyOf(c.cfg.Name, zones...),
	}
}

// DeleteSnapshot deletes a snapshot. Volumes from this snapshot stay. For a
// member of a snapshot group, DeleteSnapshot returns an error, because the
// driver deletes a group only as a whole.
func (c *controller) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := checkRequired("snapshot_id", req.GetSnapshotId()); err != nil {
		return nil, err
	}
	s, err := c.snapshot(ctx, req.GetSnapshotId())
	if err == nil && s.Group != "" {
		return nil, invalidArgument("snapshot_id", "must not be a member of a group, but %s is a member of %s: delete the group", s.ID, s.Group)
	}
	if err == nil {
		if s, err = c.cloud.DeleteSnapshot(ctx, s.ID); err == nil {
			err = c.waitForOperation(ctx, s.Operation)
		}
	}
	if err != nil && !errors.Is(err, cloudsim.NotFound) {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// GetSnapshot returns the description of one snapshot.
func (c *controller) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if err := checkRequired("snapshot_id", req.GetSnapshotId()); err != nil {
		return nil, err
	}
	s, err := c.snapshot(ctx, req.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	snapshots, err := c.csiSnapshots(ctx, s)
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: snapshots[0]}, nil
}

// ListSnapshots lists the snapshots of the project, the snapshots of one volume, or the snapshot
// with the requested id. An unknown id gives an empty list. The list omits snapshots that are not
// ready to use.
func (c *controller) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	o, err := pageOf(req.GetMaxEntries(), req.GetStartingToken(), snapshotID)
	if err != nil {
		return nil, err
	}
	var l cloudsim.List[cloudsim.Snapshot]
	if id := req.GetSnapshotId(); id != "" {
		s, err := c.snapshot(ctx, id)
		if err == nil && (req.GetSourceVolumeId() == "" || req.GetSourceVolumeId() == string(s.Disk)) {
			l.Items = append(l.Items, s)
		}
		if err != nil && !errors.Is(err, cloudsim.NotFound) {
			return nil, err
		}
	} else {
		o.Source = req.GetSourceVolumeId()
		if l, err = c.cloud.ListSnapshots(ctx, o); err != nil {
			return nil, err
		}
	}
	cut := slices.DeleteFunc(l.Items, func(s cloudsim.Snapshot) bool { return !s.ReadyToUse }) // the answer contains only snapshots that are ready to use
	snapshots, err := c.csiSnapshots(ctx, cut...)
	if err != nil {
		return nil, err
	}
	resp := &csi.ListSnapshotsResponse{NextToken: l.Next}
	for _, s := range snapshots {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: s})
	}
	return resp, nil
}
