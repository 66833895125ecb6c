package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const byInstance = "instance"

var disks = store.Table[cloudsim.Disk]{
	Kind: cloudsim.KindDisk, Prefix: "disk", CoalesceEvents: true,
	ID:   func(d *cloudsim.Disk) string { return string(d.ID) },
	Meta: func(d *cloudsim.Disk) *cloudsim.Meta { return &d.Meta },
	Uses: usesOfDisk,
	Index: map[string]func(*cloudsim.Disk) []string{
		byInstance: instancesOf,
		bySource:   sourceOf,
		byCopied: func(d *cloudsim.Disk) []string {
			if d.State == cloudsim.DiskCreating || d.State == cloudsim.DiskCopying {
				return sourceOf(d)
			}
			return nil
		},
	},
}

func sourceOf(d *cloudsim.Disk) []string {
	if id := d.Source(); id != "" {
		return []string{id}
	}
	return nil
}

func usesOfDisk(d *cloudsim.Disk) []store.Use {
	return []store.Use{{Name: cloudsim.QuotaDisks, N: 1}, {Name: cloudsim.QuotaDiskGiB, N: int64(d.SizeGiB)}}
}

func instancesOf(d *cloudsim.Disk) []string {
	ids := make([]string, len(d.Attachments))
	for i, a := range d.Attachments {
		ids[i] = string(a.Instance)
	}
	return ids
}

// CreateDisk begins to create a disk. If a disk with the same name exists and matches the request,
// CreateDisk returns the existing disk. If the existing disk does not match, CreateDisk returns
// Exists. While the cloud deletes the existing disk, CreateDisk returns Conflict.
func (e *Engine) CreateDisk(ctx context.Context, req cloudsim.CreateDisk) (d cloudsim.Disk, err error) {
	if err := req.Validate(); err != nil {
		return d, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		d, err = idempotent(tx, call, disks, req, func() (cloudsim.Disk, error) { return e.diskByName(tx, call, req) })
		return err
	})
	return d, err
}

// diskByName returns the existing disk that matches the request, or creates a
// disk.
func (e *Engine) diskByName(tx *store.Tx, call Call, req cloudsim.CreateDisk) (d cloudsim.Disk, err error) {
	project, err := e.projectOf(tx, call)
	if err != nil {
		return d, err
	}
	have, err := disks.Named(tx, project, req.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return e.newDisk(tx, call, project, req)
	case err != nil:
		return d, err
	case have.State == cloudsim.DiskDeleting:
		return d, cloudsim.Errorf(cloudsim.Conflict, "the earlier disk %q (%s) is still being deleted: try again when it is deleted", req.Name, have.ID)
	}
	if differs := diskDiffers(have, req); differs != "" {
		return d, errNameTaken(cloudsim.KindDisk, req.Name, string(have.ID), differs)
	}
	return have, nil
}

// diskDiffers describes a difference between the existing disk and the request.
// It returns "" if the disk matches the request.
func diskDiffers(have cloudsim.Disk, req cloudsim.CreateDisk) string {
	switch {
	case !slices.Equal(have.Zones(), slices.Sorted(slices.Values(req.Zones()))) || have.Type != req.Type:
		return "zone " + strings.Join(have.Zones(), " and ") + " and type " + have.Type
	case have.SourceSnapshot != req.SourceSnapshot || have.SourceDisk != req.SourceDisk:
		return "another source"
	case req.SizeGiB != 0 && have.SizeGiB != req.SizeGiB: // size 0 means the size of the source
		return "another size"
	case req.IOPS != 0 && have.IOPS != req.IOPS:
		return "other IOPS"
	case req.ThroughputMiBps != 0 && have.ThroughputMiBps != req.ThroughputMiBps:
		return "another throughput"
	case have.MultiAttach != req.MultiAttach:
		return "another value of multiAttach"
	case !sameLabels(have.Labels, req.Labels):
		return "other labels"
	}
	return ""
}

func (e *Engine) newDisk(tx *store.Tx, call Call, project cloudsim.ProjectID, req cloudsim.CreateDisk) (d cloudsim.Disk, err error) {
	region, err := regionOfDisk(tx, req)
	if err != nil {
		return d, err
	}
	ty, err := diskTypes.Get(tx, req.Type)
	if errors.Is(err, cloudsim.NotFound) {
		return d, errUnknownReference("type", req.Type, "see GET /v1/disk-types")
	}
	if err != nil {
		return d, err
	}
	if err := fromSource(tx, project, region, &req); err != nil {
		return d, err
	}
	if err := req.CheckType(ty); err != nil {
		return d, err
	}
	d = cloudsim.Disk{
		Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		Zone: req.Zone, ReplicaZones: slices.Sorted(slices.Values(req.ReplicaZones)), Region: region, Type: req.Type,
		SizeGiB: req.SizeGiB, MultiAttach: req.MultiAttach,
		IOPS: cmp.Or(req.IOPS, ty.DefaultIOPS), ThroughputMiBps: cmp.Or(req.ThroughputMiBps, ty.DefaultThroughputMiBps),
		SourceSnapshot: req.SourceSnapshot, SourceDisk: req.SourceDisk,
		State: cloudsim.DiskCreating,
	}
	if err := e.checkQuota(tx, project, usesOfDisk(&d)...); err != nil {
		return d, err
	}
	if err := takePools(tx, d.Zones(), d.Type, d.SizeGiB); err != nil {
		return d, err
	}
	id, err := disks.NextID(tx)
	if err != nil {
		return d, err
	}
	d.ID = cloudsim.DiskID(id)
	return d, e.workOnDisk(tx, call, &d, cloudsim.Create)
}

// regionOfDisk returns the region of the requested zones. It returns Invalid if a zone does not
// exist, or if the zones are in several regions.
func regionOfDisk(tx *store.Tx, req cloudsim.CreateDisk) (region string, err error) {
	field := "zone"
	if len(req.ReplicaZones) > 0 {
		field = "replicaZones"
	}
	for _, z := range req.Zones() {
		r, err := regionOfZone(tx, field, z)
		if err != nil {
			return "", err
		}
		if region != "" && r != region {
			return "", cloudsim.InvalidField(field, "must be in one region, but "+z+" is in region "+r)
		}
		region = r
	}
	return region, nil
}

// fromSource checks the source of the request, if the request has a source. If
// the request has no size, fromSource fills in the size of the source.
func fromSource(tx *store.Tx, project cloudsim.ProjectID, region string, req *cloudsim.CreateDisk) error {
	switch {
	case req.SourceSnapshot != "":
		s, err := snapshots.Get(tx, string(req.SourceSnapshot))
		switch {
		case errors.Is(err, cloudsim.NotFound) || err == nil && s.Project != project:
			return errReferenceNotFound("sourceSnapshot", string(req.SourceSnapshot), "see GET /v1/snapshots")
		case err != nil:
			return err
		case !s.ReadyToUse:
			return cloudsim.Errorf(cloudsim.Conflict, "cannot create a disk from snapshot %s: the snapshot is in state %s", s.ID, s.State)
		}
		req.SizeGiB = cmp.Or(req.SizeGiB, s.SizeGiB)
		return req.OfSnapshot(s, region)
	case req.SourceDisk != "":
		d, err := disks.Get(tx, string(req.SourceDisk))
		switch {
		case errors.Is(err, cloudsim.NotFound) || err == nil && d.Project != project:
			return errReferenceNotFound("sourceDisk", string(req.SourceDisk), "see GET /v1/disks")
		case err != nil:
			return err
		case !d.HasData():
			return cloudsim.Errorf(cloudsim.Conflict, "cannot copy disk %s: the disk is in state %s", d.ID, d.State)
		}
		req.SizeGiB = cmp.Or(req.SizeGiB, d.SizeGiB)
		return req.OfDisk(d)
	}
	return nil
}

func (e *Engine) workOnDisk(tx *store.Tx, call Call, d *cloudsim.Disk, verb cloudsim.Verb) error {
	return beginWork(e, tx, call, disks, d, verb, e.cfg.Profile.Disk, e.settledDisk)
}

func (e *Engine) settledDisk(tx *store.Tx, d *cloudsim.Disk) error {
	if d.State == cloudsim.DiskCopying { // the due list can contain a released operation twice
		return e.copiedDisk(tx, d)
	}
	if d.State == cloudsim.DiskCreating && d.Source() != "" && e.lacksData(d.Status) {
		if err := d.Move(cloudsim.Copy); err != nil {
			return err
		}
		return e.copiedDisk(tx, d)
	}
	if waits, err := awaitDevice(tx, d); waits || err != nil {
		return err
	}
	return e.finishDisk(tx, d)
}

// finishDisk completes the work on disk d, and ends the operation of this work with success.
func (e *Engine) finishDisk(tx *store.Tx, d *cloudsim.Disk) error {
	if err := arrive(d); err != nil {
		return err
	}
	if err := e.endOperation(tx, d.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if d.State != cloudsim.DiskDeleted {
		return disks.Put(tx, d)
	}
	if err := givePools(tx, d.Zones(), d.Type, d.SizeGiB); err != nil {
		return err
	}
	return disks.Delete(tx, d)
}

// copiedDisk stores disk d. If d is in state copying and its data is complete, copiedDisk also
// completes the work on d. If d is in state copying and its data is lost, the disk and its
// operation fail. If a hold or a fault blocks the operation, copiedDisk only stores d.
func (e *Engine) copiedDisk(tx *store.Tx, d *cloudsim.Disk) error {
	if d.State != cloudsim.DiskCopying || e.lacksData(d.Status) && !d.Status.Lost {
		return disks.Put(tx, d)
	}
	held, err := mustNotSettle(tx, d.Operation)
	switch {
	case held || err != nil:
		return putAfter(tx, d, err)
	case e.lacksData(d.Status):
		if err := d.Move(cloudsim.Fail); err != nil {
			return err
		}
		if err := e.endOperation(tx, d.Operation, cloudsim.Fail, lostDataError(d.Status)); err != nil {
			return err
		}
		return disks.Put(tx, d)
	}
	return e.finishDisk(tx, d)
}

// waitForNoData does nothing if the cloud has a data plane. Otherwise it completes all work that
// waits for disk data, because the cloud gets no report about this data. Work that a hold or a
// fault blocks stays unfinished.
func (e *Engine) waitForNoData(tx *store.Tx) error {
	if e.cfg.DiskData {
		return nil
	}
	ds, err := findCopying(tx, disks, func(d *cloudsim.Disk) bool { return d.State == cloudsim.DiskCopying })
	if err != nil {
		return err
	}
	for i := range ds {
		if err := e.copiedDisk(tx, &ds[i]); err != nil {
			return err
		}
	}
	gs, err := findCopying(tx, snapshotGroups, func(g *cloudsim.SnapshotGroup) bool { return g.State == cloudsim.SnapshotCopying })
	if err != nil {
		return err
	}
	for i := range gs {
		members, err := membersOf(tx, &gs[i])
		if err != nil {
			return err
		}
		if err := e.copiedGroup(tx, &gs[i], members); err != nil {
			return err
		}
	}
	ss, err := findCopying(tx, snapshots, func(s *cloudsim.Snapshot) bool { return s.State == cloudsim.SnapshotCopying && s.Group == "" })
	if err != nil {
		return err
	}
	for i := range ss {
		if err := e.copiedSnapshot(tx, &ss[i]); err != nil {
			return err
		}
	}
	return nil
}

// findCopying returns the resources of a table for which isCopying returns true. It reads the whole
// table before it returns, so the caller may then change the resources.
func findCopying[T any](tx *store.Tx, t store.Table[T], isCopying func(*T) bool) (all []T, err error) {
	for v, err := range t.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		if isCopying(&v) {
			all = append(all, v)
		}
	}
	return all, nil
}

// arrive completes the work on disk d. It changes an attachment from the state
// attaching to attached, and removes an attachment in the state detaching.
func arrive(d *cloudsim.Disk) error {
	var left []cloudsim.Attachment
	for _, a := range d.Attachments {
		if a.State != cloudsim.AttachmentDetaching {
			a.State = cloudsim.AttachmentAttached
			left = append(left, a)
		}
	}
	if err := d.Move(cloudsim.Settle); err != nil {
		return err
	}
	d.Attachments = left
	return markAvailable(d)
}

func markAvailable(d *cloudsim.Disk) error {
	if d.State != cloudsim.DiskInUse || len(d.Attachments) > 0 {
		return nil
	}
	return d.Move(cloudsim.Vacate)
}

// GetDisk returns a disk. If the disk does not exist, GetDisk returns NotFound.
func (e *Engine) GetDisk(ctx context.Context, id cloudsim.DiskID) (cloudsim.Disk, error) {
	return read(ctx, e.core, disks, string(id))
}

// ListDisks returns one page of disks. The filter o.Zone selects the disks in one zone. A regional
// disk is in both of its zones. The filter o.Source is the id of a disk or snapshot, and selects
// the disks that were created from this disk or snapshot. The filter o.Instances selects the disks
// with an attachment to one of these instances. These disks include the disks that the cloud is
// attaching or detaching.
func (e *Engine) ListDisks(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Disk], error) {
	return listPage(ctx, e.core, disks, o, func(d *cloudsim.Disk) string {
		if slices.Contains(d.ReplicaZones, o.Zone) {
			return o.Zone
		}
		return d.Zone
	})
}

// changeDisk calls changeFn with the disk, in one transaction. If changeFn returns true, changeDisk
// begins an operation with the given verb.
func (e *Engine) changeDisk(ctx context.Context, id cloudsim.DiskID, verb cloudsim.Verb, changeFn func(*store.Tx, *cloudsim.Disk) (bool, error)) (d cloudsim.Disk, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if d, err = get(tx, call, disks, string(id)); err != nil {
			return err
		}
		if changed, err := changeFn(tx, &d); err != nil || !changed {
			return err
		}
		return e.workOnDisk(tx, call, &d, verb)
	})
	return d, err
}

// ResizeDisk begins to grow a disk and returns the disk. It can also grow an attached disk. If the
// disk already has the requested size, ResizeDisk changes nothing. ResizeDisk returns Conflict
// while other work on the disk runs. It also returns Conflict while the cloud makes a snapshot or a
// copy of the disk, because the snapshot or copy must have the present size.
func (e *Engine) ResizeDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.ResizeDisk) (cloudsim.Disk, error) {
	if err := req.Validate(); err != nil {
		return cloudsim.Disk{}, err
	}
	return e.changeDisk(ctx, id, cloudsim.Resize, func(tx *store.Tx, d *cloudsim.Disk) (bool, error) {
		ty, err := diskTypes.Get(tx, d.Type)
		if err != nil {
			return false, err
		}
		if err := req.CheckType(*d, ty); err != nil {
			return false, err
		}
		if req.SizeGiB == d.SizeGiB && d.State != cloudsim.DiskDeleting {
			return false, nil
		}
		if err := checkNoCopy(tx, cloudsim.Resize, cloudsim.KindDisk, string(id)); err != nil {
			return false, err
		}
		if err := d.Move(cloudsim.Resize); err != nil {
			return false, err
		}
		if err := e.checkQuota(tx, d.Project, store.Use{Name: cloudsim.QuotaDiskGiB, N: int64(req.SizeGiB - d.SizeGiB)}); err != nil {
			return false, err
		}
		if err := takePools(tx, d.Zones(), d.Type, req.SizeGiB-d.SizeGiB); err != nil {
			return false, err
		}
		d.SizeGiB = req.SizeGiB
		return true, nil
	})
}

// UpdateDisk replaces the labels of a disk in any state. It returns Stale if rev
// is neither 0 nor the disk's revision.
func (e *Engine) UpdateDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.UpdateDisk, rev uint64) (d cloudsim.Disk, err error) {
	if err := req.Validate(); err != nil {
		return d, err
	}
	return setLabels(ctx, e, disks, string(id), req.Labels, rev)
}

// ModifyDisk begins to change the type, IOPS or throughput of a disk, and returns the disk. It can
// also change an attached disk. If the disk already has the requested values, ModifyDisk changes
// nothing. ModifyDisk returns Conflict while other work on the disk runs. It also returns Conflict
// if the last modification was less than Config.DiskCooldown ago.
func (e *Engine) ModifyDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.ModifyDisk) (cloudsim.Disk, error) {
	if err := req.Validate(); err != nil {
		return cloudsim.Disk{}, err
	}
	return e.changeDisk(ctx, id, cloudsim.Modify, func(tx *store.Tx, d *cloudsim.Disk) (bool, error) {
		was := *d
		ty, err := diskTypes.Get(tx, cmp.Or(req.Type, d.Type))
		switch {
		case errors.Is(err, cloudsim.NotFound):
			return false, errUnknownReference("type", req.Type, "see GET /v1/disk-types")
		case err != nil:
			return false, err
		}
		changed, err := req.Apply(d, ty)
		if err != nil || !changed && was.State != cloudsim.DiskDeleting {
			return false, err
		}
		if err := d.Move(cloudsim.Modify); err != nil {
			return false, err
		}
		if until := was.ModifiedAt; until != nil && !until.After(tx.Now) && tx.Now.Before(until.Add(e.cfg.DiskCooldown)) { // a user can set the clock back to a time before the last modification
			return false, cloudsim.Errorf(cloudsim.Conflict, "cannot modify disk %s: the last modification was at %s, and the next is possible at %s", id, until.Format(time.RFC3339), until.Add(e.cfg.DiskCooldown).Format(time.RFC3339))
		}
		if d.Type != was.Type {
			if err := takePools(tx, d.Zones(), d.Type, d.SizeGiB); err != nil {
				return false, err
			}
			if err := givePools(tx, d.Zones(), was.Type, d.SizeGiB); err != nil {
				return false, err
			}
		}
		now := tx.Now
		d.ModifiedAt = &now
		return true, nil
	})
}

// DeleteDisk begins to delete a disk and returns the disk. It does not change a disk that is
// already in state deleting. If the cloud is still creating the disk, the creation fails and the
// deletion begins. During other work on the disk, DeleteDisk returns Conflict. It also returns
// Conflict if the disk is attached, or if the cloud is making a snapshot or a copy of the disk.
// DeleteDisk does not delete complete snapshots and copies of the disk.
func (e *Engine) DeleteDisk(ctx context.Context, id cloudsim.DiskID) (cloudsim.Disk, error) {
	return e.changeDisk(ctx, id, cloudsim.Delete, func(tx *store.Tx, d *cloudsim.Disk) (bool, error) {
		if d.State == cloudsim.DiskDeleting {
			return false, nil
		}
		if err := checkNoCopy(tx, cloudsim.Delete, cloudsim.KindDisk, string(id)); err != nil {
			return false, err
		}
		return true, d.Move(cloudsim.Delete)
	})
}

// ReportDisk stores a report of the data plane about the data of a disk. A report without changes
// writes no event.
func (e *Engine) ReportDisk(ctx context.Context, id cloudsim.DiskID, s cloudsim.DiskStatus) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		d, err := get(tx, call, disks, string(id))
		if err != nil || d.Status == s {
			return err
		}
		d.Status = s
		return e.copiedDisk(tx, &d)
	})
}
