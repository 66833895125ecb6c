package csidriver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// deviceKey is the key of the device name in a publish context.
const deviceKey = "device"

// ControllerPublishVolume attaches a disk and waits until it is attached. A
// repeated call returns the existing attachment.
func (c *controller) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId(), "node_id", req.GetNodeId()); err != nil {
		return nil, err
	}
	u, err := useOf(req.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	if !diskID.MatchString(req.GetVolumeId()) || !instanceID.MatchString(req.GetNodeId()) {
		return nil, cloudsim.Errorf(cloudsim.NotFound, "volume %q or node %q does not exist", req.GetVolumeId(), req.GetNodeId())
	}
	id, to := cloudsim.DiskID(req.GetVolumeId()), cloudsim.InstanceID(req.GetNodeId())
	readOnly := req.GetReadonly() || u.readOnly()
	d, err := c.cloud.AttachDisk(ctx, id, cloudsim.AttachDisk{Instance: to, ReadOnly: readOnly})
	if err != nil {
		return nil, c.incompatibleOr(ctx, id, to, readOnly, err)
	}
	if d, err = c.awaitSettled(ctx, d); err != nil {
		return nil, err
	}
	a, ok := d.Attachment(to)
	if !ok {
		return nil, status.Errorf(codes.Aborted, "volume %s was detached from %s during this call: repeat the call", id, to)
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{deviceKey: a.Device}}, nil
}

// incompatibleOr returns err if err is not a conflict. After a conflict, it reads the disk. If the
// disk is already attached to the node in the other mode (read-only or writable), the method
// returns ALREADY_EXISTS. If the cloud is still working on the disk, the method returns ABORTED. In
// all other cases, it returns err.
func (c *controller) incompatibleOr(ctx context.Context, id cloudsim.DiskID, node cloudsim.InstanceID, readOnly bool, err error) error {
	if cloudsim.KindOf(err) != cloudsim.Conflict {
		return err
	}
	if d, gone := c.cloud.GetDisk(ctx, id); gone == nil {
		if a, ok := d.Attachment(node); ok && a.State != cloudsim.AttachmentDetaching && a.ReadOnly != readOnly {
			return status.Error(codes.AlreadyExists, err.Error())
		}
	}
	return c.busyOr(ctx, id, err)
}

// ControllerUnpublishVolume detaches a disk from a node, or from all nodes if
// the request has no node. It detaches the disk by force if the node is stopped
// or terminating. If the disk or the node does not exist, the call succeeds.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	id, node := cloudsim.DiskID(req.GetVolumeId()), req.GetNodeId()
	switch {
	case !diskID.MatchString(req.GetVolumeId()) || node != "" && !instanceID.MatchString(node):
		return &csi.ControllerUnpublishVolumeResponse{}, nil // no volume or node has an invalid id
	case node != "":
		return &csi.ControllerUnpublishVolumeResponse{}, c.detach(ctx, id, cloudsim.InstanceID(node))
	}
	d, err := c.cloud.GetDisk(ctx, id)
	if err != nil && !errors.Is(err, cloudsim.NotFound) {
		return nil, err
	}
	for _, a := range d.Attachments {
		if err := c.detach(ctx, id, a.Instance); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// detach detaches a disk from a node, and waits until the cloud has finished
// this work. If the cloud does not detach the disk at once, and the node is
// stopped or terminating, the method detaches the disk by force.
func (c *controller) detach(ctx context.Context, id cloudsim.DiskID, node cloudsim.InstanceID) error {
	d, err := c.cloud.DetachDisk(ctx, id, cloudsim.DetachDisk{Instance: node})
	if err != nil && cloudsim.KindOf(err) != cloudsim.Conflict {
		return goneIsDone(err)
	}
	if _, attached := d.Attachment(node); err == nil && !attached {
		return nil
	}
	i, unknown := c.cloud.GetInstance(ctx, node)
	if unknown != nil {
		return goneIsDone(unknown)
	}
	if i.State == cloudsim.InstanceStopped || i.State == cloudsim.InstanceTerminating {
		d, err = c.cloud.DetachDisk(ctx, id, cloudsim.DetachDisk{Instance: node, Force: true})
	}
	if _, attached := d.Attachment(node); err == nil && attached {
		_, err = c.awaitSettled(ctx, d)
	}
	return c.busyOr(ctx, id, goneIsDone(err))
}

// goneIsDone returns nil if err means that the disk or the node does not exist,
// because the disk is then not attached to the node. Otherwise it returns err.
func goneIsDone(err error) error {
	if errors.Is(err, cloudsim.NotFound) {
		return nil
	}
	return err
}
