package engine

import (
	"context"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// deviceTimeout limits how long the cloud waits for the hypervisor to add or remove a device. The
// hypervisor is the program that runs the machine of an instance. An attachment or detachment first
// takes its configured duration. Then the wait begins. The cloud's clock measures the wait.
const deviceTimeout = time.Minute

// ReportDevices stores a report of the hypervisor about the devices that the machine of an instance
// has. After the first report, an attachment to this instance is complete only after a report that
// the device exists. A detachment is complete only after a report without the device. A report
// without changes writes no event. ReportDevices ignores disks that are not attached to the
// instance, because the hypervisor may not yet know that the cloud has detached these disks.
func (e *Engine) ReportDevices(ctx context.Context, id cloudsim.InstanceID, req cloudsim.ReportDevices) (i cloudsim.Instance, err error) {
	if err := req.Validate(); err != nil {
		return i, err
	}
	return e.setDevices(ctx, id, true, req)
}

// ForgetDevices discards the device reports of an instance. Until the next call of ReportDevices,
// attachments to this instance and detachments from it do not wait for a report.
func (e *Engine) ForgetDevices(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return e.setDevices(ctx, id, false, cloudsim.ReportDevices{})
}

func (e *Engine) setDevices(ctx context.Context, id cloudsim.InstanceID, reports bool, req cloudsim.ReportDevices) (i cloudsim.Instance, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if i, err = get(tx, call, instances, string(id)); err != nil {
			return err
		}
		if i.ReportsDevices != reports {
			i.ReportsDevices = reports
			if err := instances.Put(tx, &i); err != nil {
				return err
			}
		}
		attached, err := disks.Lookup(tx, byInstance, string(id))
		if err != nil {
			return err
		}
		for _, d := range attached {
			n := slices.IndexFunc(d.Attachments, func(a cloudsim.Attachment) bool { return a.Instance == id })
			a, now := &d.Attachments[n], req.Of(d.ID)
			if a.Ready == now.Ready && a.Error == now.Error && (reports || a.State == cloudsim.AttachmentAttached) {
				continue
			}
			a.Ready, a.Error = now.Ready, now.Error
			if err := e.reportedDisk(tx, &d); err != nil {
				return err
			}
		}
		return nil
	})
	return i, err
}

// reportedDisk stores a disk after a hypervisor has reported whether a machine has the device of
// the disk. If an operation of the disk waited only for this report, reportedDisk completes the
// operation.
func (e *Engine) reportedDisk(tx *store.Tx, d *cloudsim.Disk) error {
	if d.State != cloudsim.DiskAttaching && d.State != cloudsim.DiskDetaching {
		return disks.Put(tx, d)
	}
	if a, err := awaitedDevice(tx, d); err != nil || a != nil {
		return putAfter(tx, d, err)
	}
	op, err := operations.Get(tx, string(d.Operation))
	if err != nil || op.Over() {
		return putAfter(tx, d, err)
	}
	if !isDue(op, tx.Now) {
		// The loop in Run removes an operation from the due list at its due time. If a user
		// afterward sets the clock back, the operation is not due and not in the list. Without a
		// new entry, the operation would then never end.
		err := tx.LaterOnce(*op.DueAt, store.Work{Kind: cloudsim.KindDisk, ID: string(d.ID), Verb: cloudsim.Settle, Operation: op.ID})
		return putAfter(tx, d, err)
	}
	if is, err := isHeld(tx, op); is || err != nil {
		return putAfter(tx, d, err)
	}
	return e.finishDisk(tx, d)
}

func putAfter(tx *store.Tx, d *cloudsim.Disk, err error) error {
	if err != nil {
		return err
	}
	return disks.Put(tx, d)
}

// awaitedDevice returns an attachment of disk d that waits for a report of the hypervisor, or nil
// if no attachment waits. In state attaching, an attachment waits until the machine has the device
// of the disk. In state detaching, an attachment waits until the machine no longer has this device.
// If the hypervisor does not report the devices of the instance, the attachment does not wait.
func awaitedDevice(tx *store.Tx, d *cloudsim.Disk) (*cloudsim.Attachment, error) {
	for n := range d.Attachments {
		a := &d.Attachments[n]
		if a.State == cloudsim.AttachmentAttached || a.Ready == (a.State == cloudsim.AttachmentAttaching) {
			continue
		}
		i, err := instances.Get(tx, string(a.Instance))
		if err != nil {
			return nil, err
		}
		if i.ReportsDevices {
			return a, nil
		}
	}
	return nil, nil
}

// awaitDevice reports whether the work on disk d waits for a report of the hypervisor. If the work
// waits, awaitDevice also sets the time limit for this report.
func awaitDevice(tx *store.Tx, d *cloudsim.Disk) (bool, error) {
	a, err := awaitedDevice(tx, d)
	if err != nil || a == nil {
		return false, err
	}
	return true, tx.Later(tx.Now.Add(deviceTimeout), store.Work{Kind: cloudsim.KindDisk, ID: string(d.ID), Verb: cloudsim.Fail, Operation: d.Operation})
}

// lateDevice runs at the end of the time limit deviceTimeout. If the hypervisor has not added or
// removed the device by then, the operation fails, and the disk returns to its earlier state.
func (e *Engine) lateDevice(tx *store.Tx, d *cloudsim.Disk) error {
	a, err := awaitedDevice(tx, d)
	if err != nil || a == nil {
		return err
	}
	did := "added"
	if a.State == cloudsim.AttachmentDetaching {
		did = "removed"
	}
	detail := "the hypervisor of instance " + string(a.Instance) + " has not " + did + " the device of disk " + string(d.ID) + " within " + deviceTimeout.String()
	if a.Error != "" {
		detail += ": " + a.Error
	} else {
		detail += ": check that the hypervisor runs, and repeat the request"
	}
	if err := e.endOperation(tx, d.Operation, cloudsim.Fail, &cloudsim.OperationError{Kind: cloudsim.Unavailable, Detail: detail}); err != nil {
		return err
	}
	if err := e.undoDisk(tx, d); err != nil {
		return err
	}
	return disks.Put(tx, d)
}
