package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// AttachDisk begins to attach a disk and returns the disk. If the disk is already attached or
// attaching to the instance with the same access mode, AttachDisk changes nothing. AttachDisk
// returns an error in these cases:
//   - NotFound: the disk or the instance does not exist.
//   - Invalid: the instance is in a zone in which the disk is not available.
//   - Conflict: the disk is attached to another instance and does not permit several attachments,
//     or it is attached to this instance with another access mode.
//   - Conflict: the disk is in a state that does not permit an attachment, for example detaching or
//     resizing. Or the instance is terminating.
//   - Exhausted: the instance already has as many disks as its instance type permits.
func (e *Engine) AttachDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.AttachDisk) (cloudsim.Disk, error) {
	if err := req.Validate(); err != nil {
		return cloudsim.Disk{}, err
	}
	return e.changeDisk(ctx, id, cloudsim.Attach, func(tx *store.Tx, d *cloudsim.Disk) (bool, error) {
		if have, ok := d.Attachment(req.Instance); ok {
			return false, sameAttachment(d.ID, have, req)
		}
		if len(d.Attachments) > 0 && !d.MultiAttach {
			return false, cloudsim.Errorf(cloudsim.Conflict, "cannot attach disk %s to %s: the disk is attached to %s; detach it first", d.ID, req.Instance, d.Attachments[0].Instance)
		}
		device, err := nextDevice(tx, d, req.Instance)
		if err != nil {
			return false, err
		}
		if err := d.Move(cloudsim.Attach); err != nil {
			return false, err
		}
		d.Attachments = append(d.Attachments, cloudsim.Attachment{
			Instance: req.Instance, ReadOnly: req.ReadOnly, Device: device, State: cloudsim.AttachmentAttaching,
		})
		return true, nil
	})
}

// sameAttachment returns nil if the existing attachment matches the request,
// else Conflict.
func sameAttachment(id cloudsim.DiskID, have cloudsim.Attachment, req cloudsim.AttachDisk) error {
	switch {
	case have.State == cloudsim.AttachmentDetaching:
		return cloudsim.Errorf(cloudsim.Conflict, "cannot attach disk %s to %s: the disk is still detaching from this instance", id, req.Instance)
	case have.ReadOnly && !req.ReadOnly:
		return cloudsim.Errorf(cloudsim.Conflict, "disk %s is attached to %s read-only: detach the disk first", id, req.Instance)
	case !have.ReadOnly && req.ReadOnly:
		return cloudsim.Errorf(cloudsim.Conflict, "disk %s is attached to %s for writing: detach the disk first", id, req.Instance)
	}
	return nil
}

// nextDevice returns the first free device name of the instance. It returns an error if the cloud
// cannot attach disk d to the instance.
func nextDevice(tx *store.Tx, d *cloudsim.Disk, id cloudsim.InstanceID) (string, error) {
	i, err := instances.Get(tx, string(id))
	switch {
	case err != nil || i.Project != d.Project:
		return "", errReferenceNotFound("instance", string(id), "see GET /v1/instances")
	case !slices.Contains(d.Zones(), i.Zone):
		return "", cloudsim.InvalidField("instance", string(id)+" is in zone "+i.Zone+", but disk "+string(d.ID)+" is in "+strings.Join(d.Zones(), " and "))
	case i.State == cloudsim.InstanceTerminating:
		return "", cloudsim.Errorf(cloudsim.Conflict, "cannot attach disk %s to %s: the instance is terminating", d.ID, id)
	}
	ty, err := instanceTypes.Get(tx, i.Type)
	if err != nil {
		return "", err
	}
	attached, err := disks.Lookup(tx, byInstance, string(id))
	if err != nil {
		return "", err
	}
	if len(attached) >= ty.MaxDisks {
		return "", cloudsim.Errorf(cloudsim.Exhausted, "instance %s has %d disks, which is the maximum for type %s", id, len(attached), i.Type)
	}
	var used []string
	for _, other := range attached {
		a, _ := other.Attachment(id)
		used = append(used, a.Device)
	}
	device := "vdb"
	for c := 'b'; slices.Contains(used, device); c++ {
		device = "vd" + string(c)
	}
	return device, nil
}

// DetachDisk begins to detach a disk from an instance and returns the disk. If the disk is not
// attached or is already detaching, DetachDisk changes nothing. If the cloud is still attaching the
// disk to this instance, the attachment fails and the detachment begins. During other work on the
// disk, DetachDisk returns Conflict.
//
// If req.Force is set and the instance is stopped or terminating, DetachDisk detaches the disk at
// once, also during other work. If req.Force is set and the instance is in another state,
// DetachDisk returns Conflict, because the instance could still write to the disk.
func (e *Engine) DetachDisk(ctx context.Context, id cloudsim.DiskID, req cloudsim.DetachDisk) (d cloudsim.Disk, err error) {
	if err := req.Validate(); err != nil {
		return d, err
	}
	if req.Force {
		return e.forceDetach(ctx, id, req.Instance)
	}
	return e.changeDisk(ctx, id, cloudsim.Detach, func(_ *store.Tx, d *cloudsim.Disk) (bool, error) {
		have, ok := d.Attachment(req.Instance)
		if !ok || have.State == cloudsim.AttachmentDetaching {
			return false, nil
		}
		if d.State == cloudsim.DiskAttaching && have.State != cloudsim.AttachmentAttaching {
			return false, cloudsim.Errorf(cloudsim.Conflict, "cannot detach disk %s from %s: the disk is attaching to another instance", d.ID, req.Instance)
		}
		if err := d.Move(cloudsim.Detach); err != nil {
			return false, err
		}
		for n := range d.Attachments {
			if d.Attachments[n].Instance == req.Instance {
				d.Attachments[n].State = cloudsim.AttachmentDetaching
			}
		}
		return true, nil
	})
}

// forceDetach detaches a disk at once from an instance that is stopped or
// terminating.
func (e *Engine) forceDetach(ctx context.Context, id cloudsim.DiskID, instance cloudsim.InstanceID) (d cloudsim.Disk, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if d, err = get(tx, call, disks, string(id)); err != nil {
			return err
		}
		if _, ok := d.Attachment(instance); !ok {
			return nil
		}
		i, err := instances.Get(tx, string(instance))
		if err != nil {
			return err // a deleted instance has no attachments, so NotFound is not possible
		}
		if i.State != cloudsim.InstanceStopped && i.State != cloudsim.InstanceTerminating {
			return cloudsim.Errorf(cloudsim.Conflict, "cannot detach disk %s from %s by force: the instance is %s and could still write: stop the instance first", id, instance, i.State)
		}
		return e.forgetAttachment(tx, &d, instance)
	})
	return d, err
}

// forgetAttachments detaches all disks from a deleted instance. It also ends
// the running attach and detach operations of that instance.
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
		if err := e.endOperation(tx, d.Operation, cloudsim.Fail, &cloudsim.OperationError{Kind: cloudsim.Conflict, Detail: "instance " + string(id) + " was deleted, or the disk was detached by force"}); err != nil {
			return err
		}
		if err := arrive(d); err != nil {
			return err
		}
	case cloudsim.AttachmentDetaching:
		if err := e.endOperation(tx, d.Operation, cloudsim.Settle, nil); err != nil {
			return err
		}
		if err := arrive(d); err != nil {
			return err
		}
	default:
		if err := markAvailable(d); err != nil {
			return err
		}
	}
	return disks.Put(tx, d)
}
