package csidriver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// deviceKey of a publish context is what the instance calls the disk.
const deviceKey = "device"

// ControllerPublishVolume attaches a disk and waits until it is attached. An
// attachment that a lost reply did not tell of is found.
func (c *controller) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId(), "node_id", req.GetNodeId()); err != nil {
		return nil, err
	}
	u, err := useOf(req.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	if !diskID.MatchString(req.GetVolumeId()) || !instanceID.MatchString(req.GetNodeId()) {
		return nil, cloudsim.Errorf(cloudsim.NotFound, "no volume %q, or no node %q", req.GetVolumeId(), req.GetNodeId())
	}
	id, to := cloudsim.DiskID(req.GetVolumeId()), cloudsim.InstanceID(req.GetNodeId())
	readOnly := req.GetReadonly() || u.readOnly()
	d, err := c.cloud.AttachDisk(ctx, id, cloudsim.AttachDisk{Instance: to, ReadOnly: readOnly})
	if err != nil {
		return nil, c.incompatibleOr(ctx, id, to, readOnly, err)
	}
	if d, err = c.settled(ctx, d); err != nil {
		return nil, err
	}
	a, ok := d.Attachment(to)
	if !ok {
		return nil, status.Errorf(codes.Aborted, "volume %s was detached from %s meanwhile", id, to)
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{deviceKey: a.Device}}, nil
}

// incompatibleOr is err, or ALREADY_EXISTS if it is because the node has the
// volume in the other way.
func (c *controller) incompatibleOr(ctx context.Context, id cloudsim.DiskID, to cloudsim.InstanceID, readOnly bool, err error) error {
	if cloudsim.KindOf(err) != cloudsim.Conflict {
		return err
	}
	if d, gone := c.cloud.GetDisk(ctx, id); gone == nil {
		if a, ok := d.Attachment(to); ok && a.State != cloudsim.AttachmentDetaching && a.ReadOnly != readOnly {
			return status.Error(codes.AlreadyExists, err.Error())
		}
	}
	return c.busyOr(ctx, id, err)
}

// ControllerUnpublishVolume detaches a disk from a node, or from all if there
// is none in the request. A node that is off lets go of it by force; what is
// gone has nothing.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	d, err := c.disk(ctx, req.GetVolumeId())
	if errors.Is(err, cloudsim.NotFound) {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	for _, a := range d.Attachments {
		if node := req.GetNodeId(); node != "" && node != string(a.Instance) {
			continue
		}
		if err := c.detach(ctx, d.ID, a.Instance); err != nil {
			return nil, c.busyOr(ctx, d.ID, err)
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (c *controller) detach(ctx context.Context, id cloudsim.DiskID, from cloudsim.InstanceID) error {
	i, err := c.cloud.GetInstance(ctx, from)
	if err != nil && !errors.Is(err, cloudsim.NotFound) {
		return err
	}
	force := i.State == cloudsim.InstanceStopped || i.State == cloudsim.InstanceTerminating
	d, err := c.cloud.DetachDisk(ctx, id, cloudsim.DetachDisk{Instance: from, Force: force})
	if err == nil {
		if _, still := d.Attachment(from); still {
			_, err = c.settled(ctx, d)
		}
	}
	if errors.Is(err, cloudsim.NotFound) {
		return nil
	}
	return err
}
