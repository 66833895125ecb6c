package csidriver

import (
	"context"
	"regexp"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// controller implements the controller service. It calls only the cloud and
// needs no access to a node.
type controller struct {
	csi.UnimplementedControllerServer
	cfg   Config
	cloud *client.Client
}

var controllerCapabilities = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_VOLUME,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
	csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range controllerCapabilities {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

// These are the patterns of the cloud's ids. The driver compares each id in a
// request with the pattern for this kind of id. Text that does not match its
// pattern never becomes part of a URL or of a file name.
var (
	diskID     = regexp.MustCompile(`^disk-[0-9a-f]{1,32}$`)
	snapshotID = regexp.MustCompile(`^snap-[0-9a-f]{1,32}$`)
	groupID    = regexp.MustCompile(`^sgrp-[0-9a-f]{1,32}$`)
	instanceID = regexp.MustCompile(`^i-[0-9a-f]{1,32}$`)
)

// disk returns the disk of a volume. It returns NotFound if the volume id is
// not valid.
func (c *controller) disk(ctx context.Context, volume string) (cloudsim.Disk, error) {
	return getDisk(ctx, c.cloud, volume)
}

func getDisk(ctx context.Context, cloud *client.Client, volume string) (cloudsim.Disk, error) {
	if !diskID.MatchString(volume) {
		return cloudsim.Disk{}, cloudsim.Errorf(cloudsim.NotFound, "no volume %q", volume)
	}
	return cloud.GetDisk(ctx, cloudsim.DiskID(volume))
}

// isWorking reports whether the cloud is running an operation on d.
func isWorking(d cloudsim.Disk) bool {
	switch d.State {
	case cloudsim.DiskAvailable, cloudsim.DiskInUse, cloudsim.DiskFailed, cloudsim.DiskDeleted:
		return false
	}
	return true
}

// busyOr returns ABORTED if err is a conflict with other work on the disk,
// because the caller can repeat the call later. Otherwise it returns err.
func (c *controller) busyOr(ctx context.Context, id cloudsim.DiskID, err error) error {
	if cloudsim.KindOf(err) != cloudsim.Conflict {
		return err
	}
	if d, gone := c.cloud.GetDisk(ctx, id); gone == nil && isWorking(d) {
		return status.Errorf(codes.Aborted, "%v: the disk is %s", err, d.State)
	}
	return err
}

// awaitSettled waits until the cloud has finished its work on d. If the work
// failed, the method returns the error of the operation.
func (c *controller) awaitSettled(ctx context.Context, d cloudsim.Disk) (cloudsim.Disk, error) {
	for isWorking(d) {
		if err := c.waitForOperation(ctx, d.Operation); err != nil {
			return d, err
		}
		var err error
		if d, err = c.cloud.GetDisk(ctx, d.ID); err != nil {
			return d, err
		}
	}
	return d, nil
}

// waitForOperation returns the error of an operation after the operation has
// ended. If the cloud does not return the state of the operation, the method
// returns Unavailable, because the operation may still be running.
func (c *controller) waitForOperation(ctx context.Context, id cloudsim.OperationID) error {
	op, err := c.cloud.WaitOperation(ctx, id)
	if err != nil && ctx.Err() == nil {
		err = cloudsim.Errorf(cloudsim.Unavailable, "operation %s may still continue: %w", id, err)
	}
	if err == nil && op.State != cloudsim.OperationDone && op.Error != nil {
		err = cloudsim.Errorf(op.Error.Kind, "%s of %s: %s", op.Verb, op.Target, op.Error.Detail)
	}
	return err
}
