package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const byInstance = "instance"

var disks = store.Table[cloudsim.Disk]{
	Kind: cloudsim.KindDisk, Prefix: "disk",
	ID:    func(d *cloudsim.Disk) string { return string(d.ID) },
	Meta:  func(d *cloudsim.Disk) *cloudsim.Meta { return &d.Meta },
	Index: map[string]func(*cloudsim.Disk) []string{byInstance: instancesOf},
}

func instancesOf(d *cloudsim.Disk) []string {
	ids := make([]string, len(d.Attachments))
	for i, a := range d.Attachments {
		ids[i] = string(a.Instance)
	}
	return ids
}

// CreateDisk makes a disk.
func (e *Engine) CreateDisk(ctx context.Context, req cloudsim.CreateDisk) (d cloudsim.Disk, err error) {
	if err := req.Validate(); err != nil {
		return d, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		d, err = once(tx, call, disks, req, func() (cloudsim.Disk, error) { return e.diskByName(tx, call, req) })
		return err
	})
	return d, err
}

// diskByName returns the disk that already answers the request, or makes one.
func (e *Engine) diskByName(tx *store.Tx, call Call, req cloudsim.CreateDisk) (d cloudsim.Disk, err error) {
	project, err := e.home(tx, call)
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
		return d, cloudsim.Errorf(cloudsim.Conflict, "the disk %q before, %s, is still being deleted: ask again when it is gone", req.Name, have.ID)
	}
	if differs := diskDiffers(have, req); differs != "" {
		return d, taken(cloudsim.KindDisk, req.Name, string(have.ID), differs)
	}
	return have, nil
}

// diskDiffers says what a disk has that the request does not ask for, or "".
func diskDiffers(have cloudsim.Disk, req cloudsim.CreateDisk) string {
	switch {
	case have.Zone != req.Zone || have.Type != req.Type:
		return "zone " + have.Zone + " and type " + have.Type
	case have.SizeGiB != req.SizeGiB:
		return "another size"
	case req.IOPS != 0 && have.IOPS != req.IOPS:
		return "other IOPS"
	case have.MultiAttach != req.MultiAttach:
		return "another multiAttach"
	case !sameLabels(have.Labels, req.Labels):
		return "other labels"
	}
	return ""
}

func (e *Engine) newDisk(tx *store.Tx, call Call, project cloudsim.ProjectID, req cloudsim.CreateDisk) (d cloudsim.Disk, err error) {
	region, ok := e.regionOf[req.Zone]
	if !ok {
		return d, unknown("zone", req.Zone, "see GET /v1/zones")
	}
	ty, err := diskTypes.Get(tx, req.Type)
	if errors.Is(err, cloudsim.NotFound) {
		return d, unknown("type", req.Type, "see GET /v1/disk-types")
	}
	if err := errors.Join(err, req.Of(ty)); err != nil {
		return d, err
	}
	id, err := disks.NextID(tx)
	if err != nil {
		return d, err
	}
	d = cloudsim.Disk{
		ID:   cloudsim.DiskID(id),
		Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		Zone: req.Zone, Region: region, Type: req.Type,
		SizeGiB: req.SizeGiB, IOPS: req.IOPS, MultiAttach: req.MultiAttach,
		State: cloudsim.DiskCreating,
	}
	if d.IOPS == 0 {
		d.IOPS = ty.DefaultIOPS
	}
	return d, e.workOnDisk(tx, call, &d, cloudsim.Create)
}

func (e *Engine) workOnDisk(tx *store.Tx, call Call, d *cloudsim.Disk, verb cloudsim.Verb) error {
	return work(e, tx, call, disks, d, verb, e.cfg.Profile.Disk, e.settledDisk)
}

// working reports whether d waits for its work to settle.
func working(d cloudsim.Disk) bool {
	return d.State != cloudsim.DiskAvailable && d.State != cloudsim.DiskInUse
}

func (e *Engine) settledDisk(tx *store.Tx, d *cloudsim.Disk) error {
	if !working(*d) {
		return nil // its instance went, and its work with it
	}
	if err := arrive(d); err != nil {
		return err
	}
	if err := e.end(tx, d.Operation, cloudsim.Settle, nil); err != nil {
		return err
	}
	if d.State == cloudsim.DiskDeleted {
		return disks.Delete(tx, d)
	}
	return disks.Put(tx, d)
}

// arrive moves d to where its work leads: what was attaching is attached, and
// what was detaching is gone.
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
	return vacate(d)
}

// vacate makes a disk available that nothing has any more.
func vacate(d *cloudsim.Disk) error {
	if d.State != cloudsim.DiskInUse || len(d.Attachments) > 0 {
		return nil
	}
	return d.Move(cloudsim.Vacate)
}

// GetDisk returns a disk; NotFound once it is deleted.
func (e *Engine) GetDisk(ctx context.Context, id cloudsim.DiskID) (cloudsim.Disk, error) {
	return read(ctx, e, disks, string(id))
}

// ListDisks returns one page of disks.
func (e *Engine) ListDisks(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Disk], error) {
	return page(ctx, e, disks, o, func(d *cloudsim.Disk) string { return d.Zone })
}

// changeDisk runs change as one transaction; change says whether it changed
// anything, and with which verb.
func (e *Engine) changeDisk(ctx context.Context, id cloudsim.DiskID, verb cloudsim.Verb, change func(*store.Tx, *cloudsim.Disk) (bool, error)) (d cloudsim.Disk, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if d, err = get(tx, call, disks, string(id)); err != nil {
			return err
		}
		if changed, err := change(tx, &d); err != nil || !changed {
			return err
		}
		return e.workOnDisk(tx, call, &d, verb)
	})
	return d, err
}

// ResizeDisk begins to grow a disk, attached or not, and returns it.
func (e *Engine) ResizeDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.ResizeDisk) (cloudsim.Disk, error) {
	if err := req.Validate(); err != nil {
		return cloudsim.Disk{}, err
	}
	return e.changeDisk(ctx, id, cloudsim.Resize, func(tx *store.Tx, d *cloudsim.Disk) (bool, error) {
		ty, err := diskTypes.Get(tx, d.Type)
		if err := errors.Join(err, req.Of(*d, ty)); err != nil {
			return false, err
		}
		if req.SizeGiB == d.SizeGiB && d.State != cloudsim.DiskDeleting {
			return false, nil
		}
		if err := d.Move(cloudsim.Resize); err != nil {
			return false, err
		}
		d.SizeGiB = req.SizeGiB
		return true, nil
	})
}

// DeleteDisk begins to delete a disk and returns it; one that is already being
// deleted is returned as it is. Conflict while it is attached.
func (e *Engine) DeleteDisk(ctx context.Context, id cloudsim.DiskID) (cloudsim.Disk, error) {
	return e.changeDisk(ctx, id, cloudsim.Delete, func(_ *store.Tx, d *cloudsim.Disk) (bool, error) {
		if d.State == cloudsim.DiskDeleting {
			return false, nil
		}
		return true, d.Move(cloudsim.Delete)
	})
}

// ReportDisk records what the data plane found. What is already known changes
// nothing, so reporting it again costs no event.
func (e *Engine) ReportDisk(ctx context.Context, id cloudsim.DiskID, s cloudsim.DiskStatus) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		d, err := get(tx, call, disks, string(id))
		if err != nil || d.Status == s {
			return err
		}
		d.Status = s
		return disks.Put(tx, &d)
	})
}

// forgetAttachments takes the disks out of an instance that is gone. Work that
// was about that instance alone is over.
func (e *Engine) forgetAttachments(tx *store.Tx, id cloudsim.InstanceID) error {
	found, err := disks.Lookup(tx, byInstance, string(id))
	if err != nil {
		return err
	}
	for _, d := range found {
		if err := e.forgetAttachment(tx, &d, id); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) forgetAttachment(tx *store.Tx, d *cloudsim.Disk, id cloudsim.InstanceID) error {
	was, _ := d.Attachment(id)
	d.Attachments = slices.DeleteFunc(d.Attachments, func(a cloudsim.Attachment) bool { return a.Instance == id })
	switch was.State {
	case cloudsim.AttachmentAttaching:
		if err := e.end(tx, d.Operation, cloudsim.Fail, &cloudsim.OperationError{Kind: cloudsim.Conflict, Detail: "instance " + string(id) + " is gone"}); err != nil {
			return err
		}
		if err := arrive(d); err != nil {
			return err
		}
	case cloudsim.AttachmentDetaching:
		if err := e.end(tx, d.Operation, cloudsim.Settle, nil); err != nil {
			return err
		}
		if err := arrive(d); err != nil {
			return err
		}
	default:
		if err := vacate(d); err != nil {
			return err
		}
	}
	return disks.Put(tx, d)
}
