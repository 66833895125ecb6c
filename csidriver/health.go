package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// healthOf returns the health of a disk, as the data plane reported it. For a
// healthy disk, HealthStatuses is empty.
func healthOf(d cloudsim.Disk) *csi.VolumeHealth {
	h := &csi.VolumeHealth{VolumeId: string(d.ID)}
	switch {
	case d.Status.Lost:
		h.HealthStatuses = append(h.HealthStatuses, entry(csi.VolumeHealthErrorType_DATA_LOSS, "DataLost", d.Status.Error))
	case d.Status.Error != "":
		h.HealthStatuses = append(h.HealthStatuses, entry(csi.VolumeHealthErrorType_DEGRADED, "DataPlane", d.Status.Error))
	}
	return h
}

func entry(t csi.VolumeHealthErrorType, reason, message string) *csi.VolumeHealth_VolumeHealthEntry {
	return &csi.VolumeHealth_VolumeHealthEntry{Status: t, Reason: reason, Message: message}
}

// ControllerGetVolumeHealth returns the health of a volume's data.
func (c *controller) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	d, err := c.disk(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: healthOf(d)}, nil
}

// ControllerListVolumeHealth lists the unhealthy volumes. Each call reads one
// page of the list of all volumes, and returns the unhealthy volumes of this
// page. The answer can therefore be empty even if more pages follow.
func (c *controller) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	l, err := c.pageOfDisks(ctx, req.GetMaxEntries(), req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	resp := &csi.ControllerListVolumeHealthResponse{NextToken: l.Next}
	for _, d := range l.Items {
		if h := healthOf(d); len(h.GetHealthStatuses()) > 0 {
			resp.Entries = append(resp.Entries, h)
		}
	}
	return resp, nil
}
