package csidriver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// order is a CreateVolume request that the driver has translated into a request
// to the cloud.
type order struct {
	disk     cloudsim.CreateDisk // without its zones
	sizes    sizes
	zones    []string // permitted zones, best first
	regional bool
	raised   bool // true after raise has increased the size
}

// CreateVolume makes a disk and waits until its data is complete. If a disk
// with the requested name exists and matches the request, CreateVolume returns this
// disk. The cloud compares the disk with the request.
func (c *controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	o, err := c.orderOf(ctx, req)
	if err != nil {
		return nil, err
	}
	d, err := c.place(ctx, o)
	if err != nil {
		return nil, c.deletingOr(ctx, o.disk.Name, err)
	}
	made, err := c.awaitSettled(ctx, d)
	if err != nil { // the operation failed, or the driver could not wait for it
		if made, _ = c.cloud.GetDisk(ctx, d.ID); made.State != cloudsim.DiskFailed {
			return nil, err
		}
	}
	if made.State == cloudsim.DiskFailed { // the cloud lost the source; delete the failed disk, because a retry needs the name of this disk
		_, gone := c.cloud.DeleteDisk(ctx, d.ID)
		return nil, errors.Join(cloudsim.Errorf(cloudsim.Internal, "the cloud could not copy the data of the source to disk %s: %s", d.ID, made.Status.Error), gone)
	}
	return &csi.CreateVolumeResponse{Volume: c.volume(made, req.GetVolumeContentSource())}, nil
}

func (c *controller) volume(d cloudsim.Disk, source *csi.VolumeContentSource) *csi.Volume {
	return &csi.Volume{
		VolumeId: string(d.ID), CapacityBytes: int64(d.SizeGiB) * gib, ContentSource: source,
		AccessibleTopology: topologyOf(c.cfg.Name, d.Zones()...),
	}
}

func (c *controller) orderOf(ctx context.Context, req *csi.CreateVolumeRequest) (o order, err error) {
	if err := checkRequired("name", req.GetName()); err != nil {
		return o, err
	}
	many, content, err := usesOf(req.GetVolumeCapabilities())
	if err != nil {
		return o, err
	}
	var s shape
	if err := s.read("parameters", req.GetParameters(), keyType, keyIOPS, keyThroughput, keyReplication); err != nil {
		return o, err
	}
	if err := s.read("mutable_parameters", req.GetMutableParameters(), keyType, keyIOPS, keyThroughput); err != nil {
		return o, err
	}
	if o.sizes, err = sizesOf(req.GetCapacityRange()); err != nil {
		return o, err
	}
	if o.zones, err = c.permittedZones(ctx, req.GetAccessibilityRequirements()); err != nil {
		return o, err
	}
	o.regional = s.regional
	labels := labelsOf(req.GetName(), req.GetParameters())
	labels[contentLabel] = content
	if as := calledAs(ctx, ""); as != "" {
		labels[asLabel] = as
	}
	o.disk = cloudsim.CreateDisk{
		Name: nameOf(req.GetName()), Type: s.diskType, IOPS: s.iops, ThroughputMiBps: s.throughput,
		MultiAttach: many, Labels: labels,
	}
	least, err := c.source(ctx, req.GetVolumeContentSource(), &o)
	if err != nil {
		return o, err
	}
	o.disk.Type = cmp.Or(o.disk.Type, c.cfg.DiskType)
	o.disk.SizeGiB, err = c.sizeOf(ctx, o, least)
	return o, err
}

// source stores the id of the snapshot or volume from contentSource in o. The cloud later copies
// the data of this source to the new disk. The method returns the size of the source, which is the
// minimum size of the new disk. If contentSource is nil, the method returns 0.
//
// If contentSource is a volume, the method also changes o:
//   - If the request has no disk type, o gets the disk type of the source.
//   - If the new volume is not regional, o keeps only zones of the source. If no zone remains, the
//     method returns RESOURCE_EXHAUSTED.
func (c *controller) source(ctx context.Context, contentSource *csi.VolumeContentSource, o *order) (least int, err error) {
	switch {
	case contentSource == nil:
		return 0, nil
	case contentSource.GetSnapshot() != nil:
		s, err := c.snapshot(ctx, contentSource.GetSnapshot().GetSnapshotId())
		if err != nil {
			return 0, err
		}
		o.disk.SourceSnapshot = s.ID
		return s.SizeGiB, nil
	case contentSource.GetVolume() != nil:
		d, err := c.disk(ctx, contentSource.GetVolume().GetVolumeId())
		if err != nil {
			return 0, err
		}
		o.disk.SourceDisk, o.disk.Type = d.ID, cmp.Or(o.disk.Type, d.Type)
		if !o.regional { // a copy must be in the zones of its source
			o.zones = slices.DeleteFunc(o.zones, func(z string) bool { return !slices.Contains(d.Zones(), z) })
		}
		if len(o.zones) == 0 {
			return 0, status.Errorf(codes.ResourceExhausted, "accessibility_requirements permit none of the zones of volume %s (%s), but a copy must be in one of these zones", d.ID, strings.Join(d.Zones(), " and "))
		}
		return d.SizeGiB, nil
	}
	return 0, invalidArgument("volume_content_source", "must be a snapshot or a volume")
}

// sizeOf returns the size of a new volume in GiB. The parameter least is the size of the source, or
// 0 without a source. The new volume gets the first of these sizes that exists:
//   - the required size in the request
//   - the size of the source
//   - the default size, but at most the limit in the request
//
// Without a required size in the request, the size is at least the minimum of the disk type. sizeOf
// returns OUT_OF_RANGE if the required size is below the size of the source, or if the limit in the
// request is below the chosen size.
func (c *controller) sizeOf(ctx context.Context, o order, least int) (int, error) {
	if o.sizes.least > 0 && o.sizes.least < least || o.sizes.most < least {
		return 0, status.Errorf(codes.OutOfRange, "the size in capacity_range must be at least %d GiB, the size of the source", least)
	}
	if o.sizes.least > 0 {
		return o.sizes.least, nil
	}
	t, err := c.cloud.GetDiskType(ctx, o.disk.Type)
	if errors.Is(err, cloudsim.NotFound) {
		return 0, invalidArgument("parameters.type", "must be an existing disk type, got %q: see 'allinone cloud disk-types list'", o.disk.Type)
	}
	if err != nil {
		return 0, err
	}
	n := max(t.MinGiB, cmp.Or(least, min(defaultGiB, o.sizes.most)))
	if !o.sizes.take(n) {
		return 0, status.Errorf(codes.OutOfRange, "the limit in capacity_range is below %d GiB, the minimum size of type %s", t.MinGiB, t.Name)
	}
	return n, nil
}

// place makes the disk in the first permitted place with enough capacity. If a
// disk with the requested name exists already and matches the order, the method
// returns this disk.
func (c *controller) place(ctx context.Context, o order) (d cloudsim.Disk, err error) {
	all := possiblePlaces(o.zones, o.regional)
	if len(all) == 0 {
		return d, status.Error(codes.ResourceExhausted, "a regional volume needs two zones, but the zones of the cloud and accessibility_requirements allow only "+strings.Join(o.zones, " "))
	}
	for _, p := range all {
		d, err = c.createAt(ctx, o.disk, p)
		switch kind := cloudsim.KindOf(err); {
		case kind == cloudsim.Exists:
			return c.repeatForExisting(ctx, o, err)
		case kind == cloudsim.Exhausted && !isThrottled(err):
			continue
		case onlyAbout(err, "sizeGiB") && o.sizes.least > 0 && !o.raised:
			if o, err = c.raise(ctx, o, err); err == nil {
				return c.place(ctx, o)
			}
		case onlyAbout(err, "replicaZones") && !c.isRegional(ctx, o.disk.Type):
			return d, invalidArgument("parameters."+keyReplication, "must be zonal for disk type %s, which does not support regional volumes", o.disk.Type)
		case onlyAbout(err, "zone", "replicaZones", "sourceSnapshot", "sourceDisk"):
			// The source may be unavailable in this zone. After RESOURCE_EXHAUSTED, the
			// scheduler tries another node.
			err = status.Errorf(codes.ResourceExhausted, "accessibility_requirements: %s: %v", zoneKey(c.cfg.Name), err)
			continue
		}
		return d, err
	}
	return d, err
}

// isRegional reports whether the disk type supports regional disks. If the query of the disk type
// fails, it returns true. If it returned false, the method place would report without proof that
// the disk type does not support regional disks.
func (c *controller) isRegional(ctx context.Context, diskType string) bool {
	t, err := c.cloud.GetDiskType(ctx, diskType)
	return err != nil || t.Regional
}

// raise increases the size in the order o to the minimum of the disk type. The
// argument sizeErr is the error of the cloud about the size. The method returns
// sizeErr if the size in o is already large enough, or if the minimum exceeds
// the limit of the request.
func (c *controller) raise(ctx context.Context, o order, sizeErr error) (order, error) {
	t, err := c.cloud.GetDiskType(ctx, o.disk.Type)
	if err != nil {
		return o, err
	}
	if t.MinGiB <= o.disk.SizeGiB || !o.sizes.take(t.MinGiB) {
		return o, sizeErr
	}
	o.disk.SizeGiB, o.raised = t.MinGiB, true
	return o, nil
}

func (c *controller) createAt(ctx context.Context, d cloudsim.CreateDisk, p place) (cloudsim.Disk, error) {
	if len(p) == 1 {
		d.Zone = p[0]
	} else {
		d.ReplicaZones = p
	}
	return c.cloud.CreateDisk(ctx, d)
}

// repeatForExisting handles a name conflict with an existing disk. If the size and the place of the
// existing disk fit the request, the method repeats the request with this size and place. The cloud
// then compares all other properties. If the size or the place does not fit, the method returns the
// error of the first request (the parameter named differs).
func (c *controller) repeatForExisting(ctx context.Context, o order, differs error) (d cloudsim.Disk, err error) {
	l, err := c.cloud.ListDisks(ctx, cloudsim.ListOptions{Name: o.disk.Name})
	if err != nil {
		return d, err
	}
	if len(l.Items) != 1 {
		return d, differs
	}
	have := l.Items[0]
	if isRegional := len(have.ReplicaZones) > 0; !o.sizes.take(have.SizeGiB) || isRegional != o.regional || !place(have.Zones()).isIn(o.zones) {
		return d, differs
	}
	o.disk.SizeGiB = have.SizeGiB
	return c.createAt(ctx, o.disk, have.Zones())
}

// deletingOr returns ABORTED if err is a conflict and the cloud is still
// deleting the disk with the given name. Otherwise it returns err.
func (c *controller) deletingOr(ctx context.Context, name string, err error) error {
	if cloudsim.KindOf(err) != cloudsim.Conflict {
		return err
	}
	l, gone := c.cloud.ListDisks(ctx, cloudsim.ListOptions{Name: name})
	if gone == nil && len(l.Items) == 1 && l.Items[0].State == cloudsim.DiskDeleting {
		return status.Error(codes.Aborted, err.Error())
	}
	return err
}

// DeleteVolume deletes a disk that is not attached. It never detaches a disk. If the disk does not
// exist, the call succeeds.
func (c *controller) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if !diskID.MatchString(req.GetVolumeId()) {
		return &csi.DeleteVolumeResponse{}, nil // no volume has an invalid id
	}
	id := cloudsim.DiskID(req.GetVolumeId())
	d, err := c.cloud.DeleteDisk(ctx, id)
	if err == nil {
		_, err = c.awaitSettled(ctx, d)
	}
	if err != nil && !errors.Is(err, cloudsim.NotFound) {
		return nil, c.busyOr(ctx, id, err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ValidateVolumeCapabilities confirms the capabilities that the volume supports. It accepts each
// filesystem that the driver supports, and does not check the filesystem on the volume. Access by
// several nodes needs a multi-attach disk.
func (c *controller) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := checkRequired("volume_id", req.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, invalidArgument("volume_capabilities", "is required")
	}
	d, err := c.disk(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	many, _, err := usesOf(req.GetVolumeCapabilities())
	if err == nil && many && !d.MultiAttach {
		err = invalidArgument("volume_capabilities", "need access by several nodes at once, but disk %s is not multi-attach", d.ID)
	}
	if err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // the specification's form of a negative answer
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters: req.GetParameters(), MutableParameters: req.GetMutableParameters(),
	}}, nil
}
