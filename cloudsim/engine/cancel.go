package engine

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// CancelOperation cancels one of these operations, if the operation has not ended:
//   - The creation of an instance, load balancer, disk, snapshot or snapshot
//     group: the cloud deletes the new resource.
//   - The start of an instance: the cloud stops the instance.
//   - The attachment of a disk: the disk becomes detached from the instance.
//   - The detachment of a disk: the disk stays attached to the instance. If the hypervisor reports
//     the devices of the instance, and the machine has no device of the disk, CancelOperation
//     returns Conflict.
//
// For all other operations, CancelOperation returns Conflict. For example, a caller cannot cancel a
// deletion, like in a real cloud.
func (e *Engine) CancelOperation(ctx context.Context, id cloudsim.OperationID) (op cloudsim.Operation, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if op, err = get(tx, call, operations, string(id)); err != nil {
			return err
		}
		if op.Over() {
			return cloudsim.Errorf(cloudsim.Conflict, "cannot cancel operation %s: it is already %s", id, op.State)
		}
		why := &cloudsim.OperationError{Kind: cloudsim.Conflict, Detail: "cancelled by " + call.Caller}
		if err := e.endOperation(tx, id, cloudsim.Cancel, why); err != nil {
			return err
		}
		if err := e.undo(tx, op); err != nil {
			return err
		}
		op, err = operations.Get(tx, string(id))
		return err
	})
	return op, err
}

// undo deletes the resource of the cancelled operation op if op creates this resource. Otherwise
// undo moves the resource to its earlier state. It returns Conflict if the cloud cannot undo the
// operation.
func (e *Engine) undo(tx *store.Tx, op cloudsim.Operation) error {
	switch op.Kind {
	case cloudsim.KindInstance:
		return undoWork(tx, op, instances, func(i *cloudsim.Instance) error {
			if err := i.Move(cloudsim.Cancel); err != nil || i.State != cloudsim.InstanceTerminating {
				return err
			}
			return e.settledInstance(tx, i)
		})
	case cloudsim.KindLoadBalancer:
		if op.Verb != cloudsim.Create {
			// A load balancer in state provisioning can have an update operation. Without this
			// check, the cancellation of the update would delete the load balancer.
			return cloudsim.Errorf(cloudsim.Conflict, "cannot cancel the %s of load balancer %s: only its creation can be cancelled", op.Verb, op.Target)
		}
		return undoWork(tx, op, loadBalancers, func(l *cloudsim.LoadBalancer) error {
			if err := l.Move(cloudsim.Cancel); err != nil {
				return err
			}
			return e.settledLoadBalancer(tx, l)
		})
	case cloudsim.KindDisk:
		return undoWork(tx, op, disks, func(d *cloudsim.Disk) error { return e.undoDisk(tx, d) })
	case cloudsim.KindSnapshot:
		return undoWork(tx, op, snapshots, func(s *cloudsim.Snapshot) error {
			if err := s.Move(cloudsim.Cancel); err != nil {
				return err
			}
			return e.settledSnapshot(tx, s)
		})
	case cloudsim.KindSnapshotGroup:
		return undoWork(tx, op, snapshotGroups, func(g *cloudsim.SnapshotGroup) error {
			members, err := membersOf(tx, g)
			if err != nil {
				return err
			}
			if err := moveGroup(tx, g, members, cloudsim.Cancel); err != nil {
				return err
			}
			return e.settledSnapshotGroup(tx, g)
		})
	}
	return cloudsim.Errorf(cloudsim.Conflict, "cannot cancel the %s of %s %s: the cloud cannot undo operations on resources of this kind", op.Verb, op.Kind, op.Target)
}

// undoWork calls undoFn with the resource of operation op. Then undoWork stores the resource,
// unless undoFn has deleted the resource. It returns Conflict if a newer operation works on the
// resource.
func undoWork[T any](tx *store.Tx, op cloudsim.Operation, t store.Table[T], undoFn func(*T) error) error {
	v, err := t.Get(tx, op.Target)
	if err != nil {
		return err
	}
	if t.Meta(&v).Operation != op.ID {
		return cloudsim.Errorf(cloudsim.Conflict, "cannot cancel operation %s: a newer operation on %s %s has replaced it", op.ID, op.Kind, op.Target)
	}
	if err := undoFn(&v); err != nil || !t.Has(tx, op.Target) {
		return err
	}
	return t.Put(tx, &v)
}

// undoDisk undoes the unfinished work on disk d. If the work is a detachment, and the hypervisor
// reports that the machine has no device of the disk, undoDisk returns Conflict.
func (e *Engine) undoDisk(tx *store.Tx, d *cloudsim.Disk) error {
	if err := d.Move(cloudsim.Cancel); err != nil {
		return err
	}
	if d.State == cloudsim.DiskDeleting {
		return e.settledDisk(tx, d)
	}
	var stay []cloudsim.Attachment
	for _, a := range d.Attachments {
		if a.State == cloudsim.AttachmentAttaching {
			continue
		}
		if a.State == cloudsim.AttachmentDetaching && !a.Ready {
			i, err := instances.Get(tx, string(a.Instance))
			if err != nil {
				return err
			}
			if i.ReportsDevices {
				return cloudsim.Errorf(cloudsim.Conflict, "cannot cancel the detachment of disk %s: the machine of instance %s has no device of the disk; wait until the detachment ends, and attach the disk again", d.ID, a.Instance)
			}
		}
		a.State = cloudsim.AttachmentAttached
		stay = append(stay, a)
	}
	d.Attachments = stay
	return markAvailable(d)
}
