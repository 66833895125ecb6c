package csidriver

import (
	"context"
	"regexp"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// pageOf parses the paging fields of a list request. A page token is the last
// id of the previous page. A token therefore never expires. If a caller deletes
// objects between two pages, the next page still skips no object.
func pageOf(most int32, token string, id *regexp.Regexp) (o cloudsim.ListOptions, err error) {
	if most < 0 {
		return o, invalidArgument("max_entries", "must not be negative, got %d", most)
	}
	if token != "" && !id.MatchString(token) {
		return o, status.Errorf(codes.Aborted, "starting_token %q is not valid: list again from the beginning", token)
	}
	return cloudsim.ListOptions{After: token, Limit: min(int(most), cloudsim.MaxPageSize)}, nil
}

func (c *controller) pageOfDisks(ctx context.Context, most int32, token string) (l cloudsim.List[cloudsim.Disk], err error) {
	o, err := pageOf(most, token, diskID)
	if err != nil {
		return l, err
	}
	return c.cloud.ListDisks(ctx, o)
}

// ListVolumes lists all disks of the project, including disks that Kubernetes
// did not make. The external-attacher uses the list to check to which nodes the
// volumes are attached.
func (c *controller) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	l, err := c.pageOfDisks(ctx, req.GetMaxEntries(), req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	resp := &csi.ListVolumesResponse{NextToken: l.Next}
	for _, d := range l.Items {
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{
			Volume: c.volume(d, contentOf(d)),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodesOf(d)},
		})
	}
	return resp, nil
}

// ControllerGetVolume returns a volume and the nodes to which it is attached.
func (c *controller) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	d, err := c.disk(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: c.volume(d, contentOf(d)),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: nodesOf(d)},
	}, nil
}

func contentOf(d cloudsim.Disk) *csi.VolumeContentSource {
	switch {
	case d.SourceSnapshot != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: string(d.SourceSnapshot)},
		}}
	case d.SourceDisk != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: string(d.SourceDisk)},
		}}
	}
	return nil
}

// nodesOf lists the nodes of all attachments of a disk. It includes attachments
// that the cloud is still making or removing.
func nodesOf(d cloudsim.Disk) (ids []string) {
	for _, a := range d.Attachments {
		ids = append(ids, string(a.Instance))
	}
	return ids
}
