package csidriver

import (
	"context"
	"regexp"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// pageOf reads the paging of a list. A token is the last id of the page before:
// what is deleted between two pages hides nothing, and a token never ages.
func pageOf(most int32, token string, id *regexp.Regexp) (o cloudsim.ListOptions, err error) {
	if most < 0 {
		return o, invalid("max_entries", "must not be negative, got %d", most)
	}
	if token != "" && !id.MatchString(token) {
		return o, status.Errorf(codes.Aborted, "starting_token %q was not given out: list again from the beginning", token)
	}
	return cloudsim.ListOptions{After: token, Limit: int(most)}, nil
}

// pageOfDisks is the page that a list of volumes, or of something about each,
// asks for.
func (c *controller) pageOfDisks(ctx context.Context, most int32, token string) (l cloudsim.List[cloudsim.Disk], err error) {
	o, err := pageOf(most, token, diskID)
	if err != nil {
		return l, err
	}
	return c.cloud.ListDisks(ctx, o)
}

// ListVolumes lists the disks of the project, also those that are not
// Kubernetes': the attacher asks here where a volume is attached.
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

// ControllerGetVolume tells what a volume is and who has it.
func (c *controller) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := required("volume_id", req.GetVolumeId()); err != nil {
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

// nodesOf are the nodes that have a disk, or may still have it.
func nodesOf(d cloudsim.Disk) (ids []string) {
	for _, a := range d.Attachments {
		ids = append(ids, string(a.Instance))
	}
	return ids
}
